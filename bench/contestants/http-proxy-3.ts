import { Agent, type IncomingMessage } from "node:http";
import { Agent as SecureAgent } from "node:https";
import type { Socket } from "node:net";
import { createProxyServer } from "http-proxy-3";
import { answerFailure, options, start, target } from "./_start.ts";

// Without an agent, http-proxy-3 opens a connection for each request, which costs more than twice as much.
const AgentOf = target.startsWith("https:") ? SecureAgent : Agent;
const agent = new AgentOf({ keepAlive: true });
const proxy = createProxyServer({ target, agent, ...options });
proxy.on("error", (_, __, res) => answerFailure(res));
const server = await start("node", (req, res) => proxy.web(req, res));
server.on("upgrade", (req: IncomingMessage, socket: Socket, head: Buffer) => {
  proxy.ws(req, socket, head);
});
