/**
 * Runs an Express app that forwards requests and WebSockets below `/api` to an upstream:
 *
 *     node index.ts
 */
import { createServer, type IncomingMessage } from "node:http";
import { createProxy } from "fetchway";
import express from "express";

const proxy = createProxy({ target: "http://127.0.0.1:4000" });

// Not `app.use("/api", …)`: Express removes "/api" from the path of a request, and does not see WebSockets.
const isApi = ({ url }: IncomingMessage): boolean => url?.startsWith("/api/") ?? false;

const app = express()
  .use((req, res, next) => (isApi(req) ? proxy.nodeHandler(req, res, next) : next()))
  .use("/health", (_, res) => void res.end("ok"));

const port = Number(process.env["PORT"] ?? 3000);
const server = createServer(app);
server.listen(port, "127.0.0.1", () => console.log(`http://127.0.0.1:${port}/`));
proxy.attach(server, { match: isApi });
