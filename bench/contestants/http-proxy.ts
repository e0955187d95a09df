import { Agent, type IncomingMessage, type ServerResponse } from "node:http";
import { createRequire } from "node:module";
import { listen, target } from "./_serve.ts";

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
listen((req, res) => proxy.web(req, res));
