import { Agent, type IncomingMessage, type ServerResponse } from "node:http";
import { createRequire } from "node:module";
import { answerFailure, start, target } from "./_start.ts";

interface ProxyServer {
  on(event: "error", listener: (e: Error, req: IncomingMessage, res: ServerResponse) => void): void;
  web(req: IncomingMessage, res: ServerResponse): void;
}

// The package http-proxy contains no types.
const { createProxyServer } = createRequire(import.meta.url)("http-proxy") as {
  createProxyServer: (options: { target: string; agent: Agent }) => ProxyServer;
};
// Without an agent, http-proxy opens a connection for each request.
const proxy = createProxyServer({ target, agent: new Agent({ keepAlive: true }) });
proxy.on("error", (_, __, res) => answerFailure(res));
await start("node", (req, res) => proxy.web(req, res));
