/**
 * Returns the prefix that a framework has removed from a path before it passed the request on to a mounted app; `""` for
 * none. The result has no slash at its end.
 * @param sent the path and query that the client has sent
 * @param path the path and query that the framework has passed on
 */
export function findMount(sent: string, path: string): string {
  if (sent === path || !sent.startsWith("/")) return "";
  const [whole = ""] = sent.split("?", 1);
  const [rest = ""] = path.split("?", 1);
  // For a request to the mount itself, such as `/api`, the framework passes on the path `/`.
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

/** A request of h3 on any runtime, including one that h3 passes on to a mount. */
interface RoutedRequest {
  readonly context?: {
    readonly matchedRoute?: { readonly route?: unknown };
    readonly params?: Readonly<Record<string, string>>;
  };
}

/**
 * Returns the prefix that a mount of h3 has removed; `""` for none. h3 exposes the matched route, such as `/api/**`, and
 * the text that matched the stars. A route that is not a mount passes on the whole path.
 */
export function findRoutePrefix(request: Request, path: string): string {
  const { matchedRoute, params } = (request as RoutedRequest).context ?? {};
  const [, prefix] = /^((?:\/[^/*:?()\\]+)+)\/\*\*$/.exec(String(matchedRoute?.route)) ?? [];
  if (prefix === undefined) return "";
  return path.split("?", 1)[0] === `/${params?.["_"] ?? ""}` ? prefix : "";
}
