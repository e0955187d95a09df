/**
 * Runs a Hono app on Node that forwards requests and WebSockets below `/api` through a keep-alive `Agent` of undici, with
 * undici's own options:
 *
 *     node index.ts
 */
import { serve } from "@hono/node-server";
import { createProxy, createUndiciTransport } from "fetchway/undici";
import { Hono } from "hono";

const transport = createUndiciTransport({ connections: 50, maxRequestsPerClient: 10_000 });
const proxy = createProxy({ target: "http://127.0.0.1:4000", transport });

const app = new Hono()
  .get("/health", (c) => c.text("ok"))
  .get("/connections", (c) => c.json(proxy.stats()))
  .all("/api/*", (c) => proxy.fetch(c.req.raw));

const port = Number(process.env["PORT"] ?? 3000);
const server = serve({ fetch: app.fetch, port, hostname: "127.0.0.1" }, (address) => {
  console.log(`http://127.0.0.1:${address.port}/`);
});
proxy.attach(server, { match: (req) => req.url?.startsWith("/api/") ?? false });
