/**
 * An app in this process: its `fetch` answers, and nothing goes over the network. A Worker's service binding, a Durable
 * Object's stub, an h3 or Hono app, another proxy.
 */
export interface FetchTarget {
  /**
   * Answers a request. It is called as a method of this object, with a `Request` alone, whose `signal` aborts when the
   * client leaves or a deadline passes. What it throws becomes 502.
   */
  fetch(request: Request): Response | Promise<Response>;
  /**
   * What the app sees as its own URL: scheme and authority, and the base path and query that go in front of the
   * request's. Read once per object. Without it that is `http://app.invalid`, and never the client's `Host`, for a client
   * chooses that. No resolver knows a name below `.invalid` (RFC 6761 §6.4), so that a URL that the app makes of it leads
   * nowhere; and no app takes it for its developer's machine, as many take `localhost`.
   * @default "http://app.invalid"
   */
  url?: string | URL;
}

const DEFAULT_URL = "http://app.invalid";

/**
 * Whether a target is an app. Some of workerd's stubs are functions too, so this comes before asking whether a target is
 * a function of the request.
 */
export function isApp(target: unknown): target is FetchTarget {
  return typeof (target as Partial<FetchTarget> | null | undefined)?.fetch === "function";
}

/**
 * The URL that an app answers for.
 *
 * On workerd every property of a stub is there, as a method that a remote object may have: `"url" in env.SERVICE` is
 * true. So a `url` that is a function, or inherited, is none, and only own properties are refused.
 *
 * @throws TypeError for what does not go together with `fetch`
 */
export function urlOf(app: FetchTarget): string | URL {
  for (const option of ["socketPath", "tls"] as const) {
    if (ownValue(app, option) === undefined) continue;
    throw new TypeError(
      `fetchway: bad target: it has both \`fetch\` and \`${option}\`; leave out \`${option}\`, ` +
        "for nothing is connected to, or `fetch`",
    );
  }
  const { url } = app;
  if (typeof url === "string" || url instanceof URL) return url;
  if (ownValue(app, "url") === undefined) return DEFAULT_URL;
  throw new TypeError(
    'fetchway: bad target: the `url` beside `fetch` must be an absolute URL such as "https://shop.example"',
  );
}

function ownValue(app: FetchTarget, name: string): unknown {
  return Object.hasOwn(app, name) ? (app as unknown as Record<string, unknown>)[name] : undefined;
}
