/**
 * Runs an h3 app on Node that forwards requests below `/api`, and all WebSockets, through a keep-alive `Agent` of undici:
 *
 *     node index.ts
 */
import { createProxy } from "fetchway/undici";
import { H3, serve } from "h3";

const proxy = createProxy({ target: "http://127.0.0.1:4000", pool: { maxSockets: 50 } });

const app = new H3()
  .get("/health", () => "ok")
  .get("/connections", () => proxy.stats())
  .all("/api/**", (event) => proxy.fetch(event.req));

const port = Number(process.env["PORT"] ?? 3000);
serve(app, { port, hostname: "127.0.0.1", plugins: [proxy.plugin] });
