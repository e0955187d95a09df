import { badRequest } from "../error.ts";

const PORT = "(?::(?:[0-5]?\\d{0,4}|6(?:[0-4]\\d{3}|5(?:[0-4]\\d\\d|5(?:[0-2]\\d|3[0-5])))))?";

/**
 * `uri-host [":" port]` (RFC 9110 §7.2, RFC 3986 §3.2.2) with a name or an IPv4 address, or nothing at all,
 * which says that there is no authority (RFC 9112 §3.2). There are three exceptions:
 * no `,`, because a server that joins two `Host` lines joins them by one; no percent-encoding, because URL
 * parsers decode it, and the router would see another name than the upstream; no port above 65535.
 */
export const NAME_AND_PORT: RegExp = new RegExp(`^(?:[\\w.~!$&'()*+;=-]+${PORT})?$`);

const BRACKETED = new RegExp(`^\\[[\\da-f:.]+\\]${PORT}$`, "i");

/** Whether the value of a `Host` field is an authority, or empty. */
export function isAuthority(value: string): boolean {
  // Only a parser tells whether the colons in brackets make an IPv6 address.
  return NAME_AND_PORT.test(value) || (BRACKETED.test(value) && URL.canParse(`http://${value}`));
}

/**
 * Whether two authorities are one, apart from letter case and the scheme's default port.
 * @param secure whether the scheme is `https`
 */
export function isSameAuthority(one: string, other: string, secure: boolean): boolean {
  return one === other || normalize(one, secure) === normalize(other, secure);
}

/**
 * The host of a request whose target names an authority, in absolute-form or as `:authority`.
 *
 * Where the target and `Host` name two, the router has seen one of them and the upstream would be
 * told the other. Only a server could put that right in time (RFC 9112 §3.2.2), so it is refused here.
 * @param named the target's authority
 * @param host value of the `Host` field
 * @param secure whether the scheme is `https`
 * @throws ProxyError 400
 */
export function agreedHost(named: string, host: string | undefined, secure: boolean): string {
  const agrees = host === undefined ? isAuthority(named) : isSameAuthority(named, host, secure);
  if (!agrees) throw badRequest("Host");
  return host ?? named;
}

/** What is no authority gets a value that equals no other. */
function normalize(value: string, secure: boolean): string | symbol {
  if (value === "" || !isAuthority(value)) return Symbol(value);
  return URL.parse(`${secure ? "https" : "http"}://${value}`)?.host ?? Symbol(value);
}
