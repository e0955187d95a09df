import { ProxyError } from "../error.ts";

/**
 * Makes sure that a request asks for no WebSocket: without its `Upgrade`, the upstream would take it for a plain
 * GET and answer 200. Other protocols are ignored, as every server may (RFC 9110 §7.8).
 * @param upgrade the request's `Upgrade`
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
