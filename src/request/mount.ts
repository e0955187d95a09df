/**
 * Returns what a framework has cut off the front of a path before it passed the request on, as `mount()` does; `""` for
 * nothing. The result has no slash at its end.
 * @param sent the path and query that the client has sent
 * @param path the path and query that the framework has passed on
 */
export function findMount(sent: string, path: string): string {
  if (sent === path || !sent.startsWith("/")) return "";
  const [whole = ""] = sent.split("?", 1);
  const [rest = ""] = path.split("?", 1);
  // A mount that is requested without a further path, `/api`, gets `/`.
  if (rest === "/" && !whole.endsWith("/")) return whole;
  const segments = whole.split("/");
  const cut = segments.splice(0, segments.length - rest.split("/").length + 1);
  // Some frameworks pass the path on with other percent-encoding.
  return decodePath(`/${segments.join("/")}`) === decodePath(rest) ? cut.join("/") : "";
}

function decodePath(path: string): string {
  try {
    return decodeURIComponent(path);
  } catch {
    return path;
  }
}

/** What h3 has on its requests, also on those that it passes on to a mount, on every runtime. */
interface RoutedRequest {
  readonly context?: {
    readonly matchedRoute?: { readonly route?: unknown };
    readonly params?: Readonly<Record<string, string>>;
  };
}

/**
 * Returns what a mount of h3's has cut off; `""` for nothing. h3 tells the route that it has matched, `/api/**`, and the
 * text that the stars stand for. A route that is no mount passes the whole path on.
 */
export function findRoutePrefix(request: Request, path: string): string {
  const { matchedRoute, params } = (request as RoutedRequest).context ?? {};
  const [, prefix] = /^((?:\/[^/*:?()\\]+)+)\/\*\*$/.exec(String(matchedRoute?.route)) ?? [];
  if (prefix === undefined) return "";
  return path.split("?", 1)[0] === `/${params?.["_"] ?? ""}` ? prefix : "";
}
