/**
 * A Worker that answers `/health` itself, and forwards all other requests and all WebSockets to an upstream:
 *
 *     npx wrangler dev index.ts
 */
import { createProxy } from "fetchway";

const proxy = createProxy({ target: "http://127.0.0.1:4000" });

const worker = {
  fetch(request: Request): Response | Promise<Response> {
    if (new URL(request.url).pathname === "/health") return new Response("ok");
    return proxy.fetch(request);
  },
};
export default worker;
