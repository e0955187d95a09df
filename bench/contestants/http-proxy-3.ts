import { Agent } from "node:http";
import { createProxyServer } from "http-proxy-3";
import { start, target } from "./_start.ts";

// By default it opens a connection for each request, at more than twice the cost.
const proxy = createProxyServer({ target, agent: new Agent({ keepAlive: true }) });
proxy.on("error", () => {});
await start("node", (req, res) => proxy.web(req, res));
