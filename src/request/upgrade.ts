import { ProxyError } from "../error.ts";

/**
 * Refuses a request for a WebSocket. The proxy does not forward `Upgrade`, and the upstream would answer a plain GET with
 * 200. Other protocols are ignored, as RFC 9110 §7.8 allows.
 * @param upgrade the value of the request's `Upgrade`
 * @throws ProxyError 501
 */
export function refuseWebSocket(upgrade: string): void {
  const protocols = upgrade.split(",");
  if (!protocols.some((protocol) => /^[\t ]*websocket[\t ]*(?:\/|$)/i.test(protocol))) return;
  throw new ProxyError("http_request_error", {
    status: 501,
    message: "the request asks for a WebSocket: upgrades are not supported yet",
  });
}
