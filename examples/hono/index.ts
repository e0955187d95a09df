/**
 * Runs a Hono app that forwards requests below `/api` to an upstream. The same source runs on every runtime:
 *
 *     npx srvx index.ts                          # Node
 *     bun run index.ts
 *     deno serve -A index.ts
 *     npx wrangler dev index.ts
 */
import { proxyFetch } from "fetchway";
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
