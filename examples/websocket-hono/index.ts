/**
 * Runs a Hono app on Node that forwards requests and WebSockets below `/api` to an upstream:
 *
 *     node index.ts
 */
import { createProxy } from "fetchway";
import { serve } from "@hono/node-server";
import { Hono } from "hono";

const proxy = createProxy({ target: "http://127.0.0.1:4000" });

const app = new Hono()
  .get("/health", (c) => c.text("ok"))
  .all("/api/*", (c) => proxy.fetch(c.req.raw));

const port = Number(process.env["PORT"] ?? 3000);
const server = serve({ fetch: app.fetch, port, hostname: "127.0.0.1" }, (address) => {
  console.log(`http://127.0.0.1:${address.port}/`);
});
proxy.attach(server, { match: (req) => req.url?.startsWith("/api/") ?? false });
