import { badRequest } from "../error.ts";

const PORT = "(?::(?:[0-5]?\\d{0,4}|6(?:[0-4]\\d{3}|5(?:[0-4]\\d\\d|5(?:[0-2]\\d|3[0-5])))))?";

/**
 * Matches `uri-host [":" port]` (RFC 9110 §7.2, RFC 3986 §3.2.2) with a name or an IPv4 address. It also matches the empty
 * string, which says that the URL has no authority (RFC 9112 §3.2).
 *
 * The pattern excludes three things that the grammar allows: `,`, because a server that joins two `Host` lines joins them
 * with a comma; percent-encoding, because URL parsers decode it, so that the router and the upstream would see two different
 * names; and ports above 65535.
 */
export const NAME_AND_PORT: RegExp = new RegExp(`^(?:[\\w.~!$&'()*+;=-]+${PORT})?$`);

const BRACKETED = new RegExp(`^\\[[\\da-f:.]+\\]${PORT}$`, "i");

/** Whether the value of a `Host` field is an authority, or empty. */
export function isAuthority(value: string): boolean {
  // Only a parser can decide whether the text in the brackets is an IPv6 address.
  return NAME_AND_PORT.test(value) || (BRACKETED.test(value) && URL.canParse(`http://${value}`));
}

/**
 * Whether two authorities are equal, apart from letter case and the scheme's default port.
 * @param secure whether the scheme is `https`
 */
export function isSameAuthority(one: string, other: string, secure: boolean): boolean {
  return one === other || normalizeAuthority(one, secure) === normalizeAuthority(other, secure);
}

/**
 * Returns the host of a request whose target contains an authority, in absolute-form or as `:authority`.
 *
 * If the target and `Host` differ, the app's router may have used one of them, and the upstream would get the other.
 * Only the server could correct that before the router runs (RFC 9112 §3.2.2), so the proxy refuses the request.
 * @param named the authority in the request target
 * @param host the value of the `Host` field
 * @param secure whether the scheme is `https`
 * @throws ProxyError 400
 */
export function agreeOnHost(named: string, host: string | undefined, secure: boolean): string {
  const agrees = host === undefined ? isAuthority(named) : isSameAuthority(named, host, secure);
  if (!agrees) throw badRequest("Host");
  return host ?? named;
}

/** Returns an authority as URL parsers write it; for any other text, a new symbol, which is not equal to anything. */
function normalizeAuthority(value: string, secure: boolean): string | symbol {
  if (value === "" || !isAuthority(value)) return Symbol(value);
  return URL.parse(`${secure ? "https" : "http"}://${value}`)?.host ?? Symbol(value);
}
