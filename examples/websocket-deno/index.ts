/**
 * Runs a Deno server that answers `/health` itself, and forwards all other requests and all WebSockets to an upstream:
 *
 *     deno serve -A --port 3000 index.ts
 */
import { createProxy } from "fetchway";

const proxy = createProxy({ target: "http://127.0.0.1:4000" });

const server = {
  fetch(request: Request, info?: unknown): Response | Promise<Response> {
    if (new URL(request.url).pathname === "/health") return new Response("ok");
    return proxy.fetch(request, info);
  },
};
export default server;
