import { getHeaders, type HeaderList, trimOws } from "../fields/headers.ts";

/**
 * Fields that some shared caches obey in place of `Cache-Control` (RFC 9213), and `Surrogate-Control`, their predecessor.
 */
const TARGETED = /^(?:[\w-]+-cache-control|surrogate-control)$/i;

/**
 * Whether shared caches may store a response (RFC 9111 §3); `"as-it-says"` if the response allows it. If the response
 * neither allows nor forbids it, the result is `"by-default"`: a cache may reuse the response for a time that it chooses
 * (RFC 9111 §4.2.2), or after a validation, unless `private` is added to `Cache-Control`.
 */
export function mayShare(headers: HeaderList): "never" | "by-default" | "as-it-says" {
  for (let i = 0; i < headers.length; i += 2) {
    if (!TARGETED.test(headers[i] as string)) continue;
    if (!isForbidden(readDirectives([headers[i + 1] as string]))) return "as-it-says";
  }
  const directives = readDirectives(getHeaders(headers, "cache-control"));
  if (isForbidden(directives)) return "never";
  if (directives.has("public")) return "as-it-says";
  const age = directives.get("s-maxage") ?? directives.get("max-age");
  if (age !== undefined) return /^0+$/.test(age) ? "by-default" : "as-it-says";
  // A value that is not a date, such as `0` or `-1`, means a time in the past (RFC 9111 §5.3).
  const isFresh = getHeaders(headers, "expires").some((date) => Date.parse(date) > Date.now());
  return isFresh ? "as-it-says" : "by-default";
}

/** Whether shared caches must not store a response with these directives. */
function isForbidden(directives: ReadonlyMap<string, string>): boolean {
  // A cache that knows the status ignores `no-store` beside `must-understand` (RFC 9111 §5.2.2.3).
  if (directives.has("no-store") && !directives.has("must-understand")) return true;
  // With field names as its argument, `private` applies to these fields only (RFC 9111 §5.2.2.7).
  return directives.get("private") === "";
}

/**
 * Returns the arguments of the directives by name; `""` for a directive without an argument. For a quoted argument, it
 * returns only the quotes.
 */
function readDirectives(values: readonly string[]): ReadonlyMap<string, string> {
  const directives = new Map<string, string>();
  const unquoted = values.join(",").replaceAll(/"(?:[^"\\]|\\.)*"?/g, '""');
  for (const each of unquoted.split(",")) {
    const [name = "", argument = ""] = each.split("=");
    directives.set(trimOws(name).toLowerCase(), trimOws(argument));
  }
  return directives;
}
