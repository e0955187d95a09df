import { badRequest, ProxyError } from "../error.ts";
import { getHeader } from "../fields/headers.ts";
import { chooseProtocol, nominatesUpgrade } from "../fields/protocols.ts";
import type { Incoming } from "./incoming.ts";

/**
 * Returns the protocol to which a request asks to switch, if this proxy carries that protocol.
 *
 * Any other protocol is ignored, and the request is forwarded without `Upgrade` (RFC 9110 §7.8): so is `h2c`, which some
 * clients ask for with every first request.
 * @param upgrade the value of the request's `Upgrade`
 * @param carried the protocols that this proxy carries, in lower case
 * @param hint says how a server of this runtime hands over such requests
 * @throws ProxyError 400 for an upgrade with a body, and 501 where the server cannot switch the connection
 */
export function readUpgrade(
  incoming: Incoming,
  upgrade: string,
  carried: readonly string[],
  hint: string = "",
): string | undefined {
  const protocol = chooseProtocol(upgrade, carried);
  if (protocol === undefined || !mayUpgrade(incoming)) return undefined;
  const { headers } = incoming;
  // A body would stand between the request and the bytes of the new protocol, and servers differ about its end.
  for (const name of ["content-length", "transfer-encoding"]) {
    if (getHeader(headers, name) !== undefined) throw badRequest(`${name} beside Upgrade`);
  }
  if (incoming.upgrade !== undefined) return protocol;
  throw new ProxyError("http_request_error", {
    status: 501,
    message: `the request asks to switch to ${protocol}, and the server does not hand such requests over${hint}`,
  });
}

/** Whether `Upgrade` has an effect: it has none in HTTP/1.0, nor if `Connection` does not name it (RFC 9110 §7.8). */
function mayUpgrade(incoming: Incoming): boolean {
  if (incoming.method !== "GET") return false;
  // A server that can switch the connection has read the version and `Connection` itself, and may not show them.
  if (incoming.upgrade !== undefined) return true;
  return incoming.version() === "1.1" && nominatesUpgrade(incoming.headers);
}
