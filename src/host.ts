import { badRequest } from "./error.ts";
import type { Incoming } from "./incoming.ts";

/**
 * `uri-host [":" port]` (RFC 9110 §7.2, RFC 3986 §3.2.2), or nothing at all, with three exceptions:
 * no `,`, because a server that joins two `Host` lines joins them by one; no percent-encoding, because URL
 * parsers decode it, and the router would see another name than the upstream; no port above 65535.
 */
const AUTHORITY =
  /^(?:(?:[\w.~!$&'()*+;=-]+|\[[\da-f:.]+\])(?::(?:[0-5]?\d{0,4}|6(?:[0-4]\d{3}|5(?:[0-4]\d\d|5(?:[0-2]\d|3[0-5])))))?)?$/i;

/** Whether the value of a `Host` field is an authority. An empty one is: it says that there is none (RFC 9112 §3.2). */
export function isAuthority(value: string): boolean {
  if (!AUTHORITY.test(value)) return false;
  // Only a parser tells whether the colons in brackets make an IPv6 address.
  return value.charCodeAt(0) !== 0x5b /* [ */ || URL.canParse(`http://${value}`);
}

/**
 * Whether two authorities are one, apart from letter case and the scheme's default port.
 * @param secure whether the scheme is `https`
 */
export function isSameAuthority(one: string, other: string, secure: boolean): boolean {
  return one === other || normalize(one, secure) === normalize(other, secure);
}

/**
 * The host that a request is for.
 *
 * Where the request target and `Host` name two, the router has seen one of them and the upstream would
 * be told the other. Only a server could put that right in time (RFC 9112 §3.2.2), so it is refused here.
 * @param host value of the `Host` field
 * @throws ProxyError 400
 */
export function hostOf(
  { authority, named, secure }: Pick<Incoming, "authority" | "named" | "secure">,
  host: string | undefined,
): string {
  if (named === undefined) return host ?? authority;
  const agrees = host === undefined ? isAuthority(named) : isSameAuthority(named, host, secure);
  if (!agrees) throw badRequest("Host");
  return host ?? named;
}

/** What is no authority gets a value that equals no other. */
function normalize(value: string, secure: boolean): string | symbol {
  if (value === "" || !isAuthority(value)) return Symbol(value);
  return URL.parse(`${secure ? "https" : "http"}://${value}`)?.host ?? Symbol(value);
}
