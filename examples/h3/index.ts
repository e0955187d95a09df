/**
 * Runs an h3 app that forwards requests below `/api` to an upstream. The same source runs on every runtime:
 *
 *     npx srvx index.ts                            # Node
 *     bun run index.ts
 *     deno serve -A index.ts
 *     npx wrangler dev index.ts
 */
import { createProxy } from "fetchway";
import { H3 } from "h3";

const api = createProxy({ target: "http://127.0.0.1:4000", timeout: 10_000 });

const app = new H3()
  .use((event, next) => {
    event.res.headers.set("x-served-by", "h3");
    return next();
  })
  .get("/health", () => "ok")
  .mount("/api", api.fetch);

const server = { fetch: (request: Request) => app.fetch(request) };
export default server;
