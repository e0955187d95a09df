/** Run by Deno itself: the proxy, and at /own what the server's own idle event stream costs. */
import { createProxy } from "#proxy";

declare const Deno: {
  env: { get(name: string): string | undefined };
  serve(
    options: object,
    handler: (request: Request, info: unknown) => Response | Promise<Response>,
  ): unknown;
};

const event = new TextEncoder().encode("data: ready\n\n");
const proxy = createProxy({
  target: Deno.env.get("TARGET") ?? "",
  pool: { maxSockets: 20_000 },
});

function sendEvent(controller: ReadableStreamDefaultController<Uint8Array>): void {
  controller.enqueue(event);
}

function ownStream(): Response {
  const headers = { "content-type": "text/event-stream" };
  return new Response(new ReadableStream<Uint8Array>({ start: sendEvent }), { headers });
}

const port = Number(Deno.env.get("PORT"));
Deno.serve({ port, hostname: "127.0.0.1", onListen() {} }, (request, info) =>
  request.url.endsWith("/own") ? ownStream() : proxy.fetch(request, info),
);
