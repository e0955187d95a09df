/** The proxy on workerd, and at /own an idle event stream of the server itself for comparison. */
import { createProxy, type Proxy } from "../../../runtimes/workerd.ts";

const event = new TextEncoder().encode("data: ready\n\n");
let proxy: Proxy | undefined;

function ownStream(): Response {
  const { readable, writable } = new TransformStream<Uint8Array, Uint8Array>();
  void writable.getWriter().write(event);
  return new Response(readable, { headers: { "content-type": "text/event-stream" } });
}

const worker: {
  fetch(request: Request, env: { TARGET: string }): Response | Promise<Response>;
} = {
  fetch(request, env) {
    if (request.url.endsWith("/own")) return ownStream();
    proxy ??= createProxy({ target: env.TARGET });
    return proxy.fetch(request, env);
  },
};
export default worker;
