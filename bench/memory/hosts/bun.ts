/** The proxy on Bun, and at /own an idle event stream of the server itself for comparison. */
import { createProxy } from "#fetchway";
import { type BunHandler, getEnv, serveBun } from "../../../test/helpers/serve.bun.ts";

const event = new TextEncoder().encode("data: ready\n\n");
const proxy = createProxy({ target: getEnv("TARGET") ?? "", pool: { maxSockets: 20_000 } });

function sendEvent(controller: ReadableStreamDefaultController<Uint8Array>): void {
  controller.enqueue(event);
}

function ownStream(): Response {
  const headers = { "content-type": "text/event-stream" };
  return new Response(new ReadableStream<Uint8Array>({ start: sendEvent }), { headers });
}

const handler: BunHandler = {
  ...proxy,
  fetch(request, server) {
    if (!request.url.endsWith("/own")) return proxy.fetch(request, server);
    server.timeout(request, 0);
    return ownStream();
  },
};
serveBun(handler, Number(getEnv("PORT")));
