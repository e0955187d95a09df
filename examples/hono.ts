/**
 * Runs a Hono app that forwards requests below `/api` to an upstream. The same source runs on every runtime:
 *
 *     npx srvx examples/hono.ts                          # Node
 *     bun run examples/hono.ts
 *     deno serve -A examples/hono.ts
 *     npx wrangler dev examples/hono.ts
 *
 * In a project of your own, import from "fetchway".
 */
import { proxyFetch } from "#proxy";
import { Hono } from "hono";

const target = "http://127.0.0.1:4000";
const options = { stripPrefix: "/api", timeout: 10_000 };

const app = new Hono()
  .use(async (c, next) => {
    await next();
    c.header("x-served-by", "hono");
  })
  .get("/health", (c) => c.text("ok"))
  .all("/api/*", (c) => proxyFetch(c.req.raw, target, options));

export default app;
