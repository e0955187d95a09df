import { expect, test } from "vitest";
import { refuseWebSocket } from "../src/request/upgrade.ts";
import { proxyError } from "./_fakes.ts";

test.each(["websocket", "WebSocket", "h2c,\tWEBSOCKET ", "websocket/13", "websocket /13,"])(
  "%j is refused",
  (upgrade) => {
    const refused = (): void => refuseWebSocket(upgrade);
    expect(refused).toThrow(proxyError("http_request_error", 501));
    expect(refused).toThrow(/asks for a WebSocket: upgrades are not supported yet/);
  },
);

test.each(["", "h2c", "TLS/1.0, websockets", "x-websocket", "web socket", "websocket x"])(
  "%j is ignored",
  (upgrade) => {
    expect(() => refuseWebSocket(upgrade)).not.toThrow();
  },
);
