import type { IncomingMessage } from "node:http";
import type { Socket } from "node:net";
import { createProxyServer } from "httpxy";
import { answerFailure, options, start, target } from "./_start.ts";

const proxy = createProxyServer({ target, ...options });
const server = await start(
  "node",
  (req, res) => void proxy.web(req, res).catch(() => answerFailure(res)),
);
server.on("upgrade", (req: IncomingMessage, socket: Socket, head: Buffer) => {
  proxy.ws(req, socket, {}, head).catch(() => socket.destroy());
});
