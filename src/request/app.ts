/**
 * An app in this process, whose `fetch` answers instead of the network: a Worker's service binding, a Durable Object's
 * stub, an h3 or Hono app, another proxy.
 */
export interface FetchTarget {
  /**
   * Answers a request. The proxy calls it as a method of this object, with a `Request` alone, whose `signal` aborts when
   * the client leaves or a deadline passes. An exception becomes 502.
   */
  fetch(request: Request): Response | Promise<Response>;
  /**
   * The URL that the app sees as its own: scheme and authority, and the base path and query that go in front of the
   * request's. It is read once per object.
   *
   * The default is a fixed name, because a client chooses its `Host` and could so choose what the app trusts. It is not
   * `localhost`, because many apps grant their developer's machine more. Names below `.invalid` never resolve (RFC 6761
   * §6.4), so a URL that the app makes of it reaches no other server.
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
 * A stub of workerd's inherits every property as a function, for its remote object may have such a method: `"url" in
 * env.SERVICE` is true, and `typeof env.SERVICE.url` is `"function"`. So an inherited function is no `url`, and only own
 * properties are refused.
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
