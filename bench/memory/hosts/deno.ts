/** The proxy on Deno, and at /own an idle event stream of the server itself for comparison. */
import { createProxy } from "#fetchway";
import { getEnv, serveDeno } from "../../../test/helpers/serve.deno.ts";

const event = new TextEncoder().encode("data: ready\n\n");
const proxy = createProxy({
  target: getEnv("TARGET") ?? "",
  pool: { maxSockets: 20_000 },
});

function sendEvent(controller: ReadableStreamDefaultController<Uint8Array>): void {
  controller.enqueue(event);
}

function ownStream(): Response {
  const headers = { "content-type": "text/event-stream" };
  return new Response(new ReadableStream<Uint8Array>({ start: sendEvent }), { headers });
}

serveDeno(
  (request, info) => (request.url.endsWith("/own") ? ownStream() : proxy.fetch(request, info)),
  Number(getEnv("PORT")),
);
