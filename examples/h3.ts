/**
 * Runs an h3 app that forwards requests below `/api` to an upstream. The same source runs on every runtime:
 *
 *     npx srvx examples/h3.ts                            # Node
 *     bun run examples/h3.ts
 *     deno serve -A examples/h3.ts
 *     npx wrangler dev examples/h3.ts
 *
 * In a project of your own, import from "fetchway".
 */
import { createProxy } from "#proxy";
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
