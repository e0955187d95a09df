/**
 * An app in this process, whose `fetch` the proxy calls instead of sending the request to a server: a Worker's service
 * binding, a Durable Object's stub, an h3 or Hono app, or another proxy.
 */
export interface FetchTarget {
  /**
   * Returns the response to a request. The proxy calls it as a method of this object, with a `Request` as the only argument;
   * the request's `signal` is aborted when the client disconnects or a deadline passes. An exception becomes 502.
   */
  fetch(request: Request): Response | Promise<Response>;
  /**
   * The URL of the app in the requests that it gets: the scheme, the authority, and optionally a base path and a query,
   * which are prepended to those of each request. It is read once per object.
   *
   * The default is a fixed name, because the client's `Host` would let clients choose a name that the app trusts. It is not
   * `localhost`, because many apps give `localhost` more rights. Names below `.invalid` never resolve (RFC 6761 §6.4), so
   * that a URL which the app makes from this name reaches no other server.
   * @default "http://app.invalid"
   */
  url?: string | URL;
}

const DEFAULT_URL = "http://app.invalid";

/**
 * Whether a target is an app. Call this before you test whether the target is a function of the request, because some
 * stubs of workerd are functions, too.
 */
export function isApp(target: unknown): target is FetchTarget {
  return typeof (target as Partial<FetchTarget> | null | undefined)?.fetch === "function";
}

/**
 * Returns the URL of an app.
 *
 * A stub of workerd inherits a function for every property name, because its remote object may have such a method:
 * `"url" in env.SERVICE` is true, and `typeof env.SERVICE.url` is `"function"`. So this function ignores an inherited
 * function, and refuses only own properties.
 *
 * @returns the app's `url`, which is not checked, or the default
 * @throws TypeError if the app has its own property `socketPath` or `tls`
 */
export function urlOf(app: FetchTarget): string | URL {
  for (const option of ["socketPath", "tls"]) {
    if (ownValue(app, option) !== undefined) {
      throw new TypeError(
        `fetchway: bad target: it has both \`fetch\` and \`${option}\`; leave out one of them`,
      );
    }
  }
  const { url } = app;
  if (typeof url === "string" || url instanceof URL) return url;
  const own = ownValue(app, "url");
  return own === undefined ? DEFAULT_URL : (own as string);
}

function ownValue(app: FetchTarget, name: string): unknown {
  return Object.hasOwn(app, name) ? (app as unknown as Record<string, unknown>)[name] : undefined;
}
