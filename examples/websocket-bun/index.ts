/**
 * Runs a Bun server that answers `/health` itself, and forwards all other requests and all WebSockets to an upstream:
 *
 *     bun run index.ts
 */
import { createProxy } from "fetchway/bun";

declare const Bun: { serve(options: object): { url: URL } };

const proxy = createProxy({ target: "http://127.0.0.1:4000" });

const server = Bun.serve({
  port: Number(process.env["PORT"] ?? 3000),
  hostname: "127.0.0.1",
  routes: { "/health": new Response("ok") },
  fetch: proxy.fetch,
  websocket: proxy.websocket,
});
console.log(server.url.href);
