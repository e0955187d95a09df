/** A WebSocket handshake as bytes, and WebSockets on both sides of a proxy. */
import { once } from "node:events";
import { WebSocket } from "ws";
import type { Upstream } from "./upstream.ts";
import { within } from "./wait.ts";
import { accept } from "./websocket.ts";
import type { Header } from "./wire.ts";

/** The header fields of a client's WebSocket handshake. */
export const handshake: Header[] = [
  ["Connection", "Upgrade"],
  ["Upgrade", "websocket"],
  ["Sec-WebSocket-Version", "13"],
  ["Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="],
];

/** Returns the header fields with which a request asks to switch to a protocol. */
export function offer(protocol: string): Header[] {
  return [
    ["Connection", "Upgrade"],
    ["Upgrade", protocol],
  ];
}

/** Answers handshakes with a WebSocket that sends each message back. */
export function echoMessages(upstream: Upstream): WebSocket[] {
  const sockets: WebSocket[] = [];
  upstream.script = async (call) => {
    const socket = await accept(call);
    sockets.push(socket);
    socket.on("message", (data, isBinary) => socket.send(data, { binary: isBinary }));
  };
  return sockets;
}

/** Opens a WebSocket, sends a message, and resolves to the answer. */
export async function sayHello(url: string, options: object = {}): Promise<string> {
  const socket = new WebSocket(url, options);
  await within(once(socket, "open"), `the opening of ${url}`);
  const answered = once(socket, "message");
  socket.send("hello");
  const [data] = (await within(answered, "the answer")) as [Buffer];
  socket.close();
  await within(once(socket, "close"), "the end");
  return data.toString();
}
