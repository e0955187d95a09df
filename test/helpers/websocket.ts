/** The upstream's side of a WebSocket, on a connection of the scriptable upstream. */
import type { IncomingMessage } from "node:http";
import { type WebSocket, WebSocketServer } from "ws";
import type { Call } from "./link.ts";

/** Answers a handshake with a 101. @returns the upstream's end of the WebSocket */
export function accept(call: Call, protocol?: string): Promise<WebSocket> {
  const server = new WebSocketServer({
    noServer: true,
    perMessageDeflate: true,
    ...(protocol !== undefined && { handleProtocols: () => protocol }),
  });
  const { socket, rest } = call.link.takeOver();
  const headers = Object.fromEntries(
    call.headers.map(([name, value]) => [name.toLowerCase(), value]),
  );
  const message = { method: call.method, url: call.target, headers, socket } as unknown;
  return new Promise((resolve) => {
    server.handleUpgrade(message as IncomingMessage, socket, rest, (webSocket) => {
      webSocket.on("error", () => {});
      socket.resume();
      resolve(webSocket);
    });
  });
}
