import { Agent, type IncomingMessage, type ServerResponse } from "node:http";
import { createRequire } from "node:module";
import { start, target } from "./_start.ts";

interface ProxyServer {
  on(event: "error", listener: () => void): void;
  web(req: IncomingMessage, res: ServerResponse): void;
}

// It has no types of its own.
const { createProxyServer } = createRequire(import.meta.url)("http-proxy") as {
  createProxyServer: (options: { target: string; agent: Agent }) => ProxyServer;
};
// By default it opens a connection for each request.
const proxy = createProxyServer({ target, agent: new Agent({ keepAlive: true }) });
proxy.on("error", () => {});
await start("node", (req, res) => proxy.web(req, res));
