import { badRequest, ProxyError } from "../error.ts";
import { getHeader } from "../fields/headers.ts";
import { chooseProtocol, nominatesUpgrade } from "../fields/protocols.ts";
import type { Incoming } from "./incoming.ts";

/**
 * Returns the protocol that a request asks to switch to, if this proxy carries that protocol.
 *
 * Any other protocol, and a protocol that the request may not ask for (`mayAsk`), is ignored, and the request is forwarded
 * without `Upgrade` (RFC 9110 §7.8). Some clients ask for `h2c` with every first request.
 * @param upgrade the value of the request's `Upgrade`
 * @param carried the protocols that this proxy carries, in lower case
 * @param hint says how a server of this runtime hands over such requests
 * @throws ProxyError 400 for a GET with a body, and 501 where the server cannot switch the connection
 */
export function readUpgrade(
  incoming: Incoming,
  upgrade: string,
  carried: readonly string[],
  hint: string = "",
): string | undefined {
  const protocol = chooseProtocol(upgrade, carried);
  const { method, headers } = incoming;
  const length = getHeader(headers, "content-length");
  const coding = getHeader(headers, "transfer-encoding");
  const isAsked = protocol !== undefined && mayAsk(protocol, method, length, coding);
  if (!isAsked || !hasEffect(incoming)) return undefined;
  // A body would precede the bytes of the new protocol, and servers disagree about where it ends.
  if (announcesBody(length, coding)) {
    throw badRequest(
      `${coding === undefined ? "Content-Length" : "Transfer-Encoding"} with Upgrade`,
    );
  }
  if (incoming.upgrade !== undefined) return protocol;
  throw new ProxyError("http_request_error", {
    status: 501,
    message: `the request asks to switch to ${protocol}, but the server does not hand over upgrades${hint}`,
  });
}

/**
 * Whether a request may ask to switch to a protocol. A GET request always may. A request with another method may not
 * ask for a WebSocket (RFC 6455 §4.1), and may ask for another protocol only if it announces no body: Docker asks for
 * `tcp` by POST.
 * @param length the value of Content-Length
 * @param coding the value of Transfer-Encoding
 */
export function mayAsk(
  protocol: string,
  method: string | undefined,
  length: string | undefined,
  coding: string | undefined,
): boolean {
  return method === "GET" || (protocol !== "websocket" && !announcesBody(length, coding));
}

/** Whether fields announce a body. A length of 0, which Java's WebSocket client sends, announces none. */
function announcesBody(length: string | undefined, coding: string | undefined): boolean {
  return coding !== undefined || (length !== undefined && length !== "0");
}

/**
 * Whether the `Upgrade` of a request has an effect. It has none in HTTP/1.0, or if `Connection` does not list `Upgrade`
 * (RFC 9110 §7.8).
 */
export function hasEffect(incoming: Incoming): boolean {
  // A server that can switch the connection has checked the version and `Connection` itself, and need not show them.
  if (incoming.upgrade !== undefined) return true;
  return incoming.version() === "1.1" && nominatesUpgrade(incoming.headers);
}
