/** Run by Bun itself: the proxy, and at /own what the server's own idle event stream costs. */
import { createProxy } from "#proxy";

declare const Bun: {
  env: Record<string, string | undefined>;
  serve(options: object): unknown;
};

const event = new TextEncoder().encode("data: ready\n\n");
const proxy = createProxy({ target: Bun.env["TARGET"] ?? "", pool: { maxSockets: 20_000 } });

function sendEvent(controller: ReadableStreamDefaultController<Uint8Array>): void {
  controller.enqueue(event);
}

function ownStream(): Response {
  const headers = { "content-type": "text/event-stream" };
  return new Response(new ReadableStream<Uint8Array>({ start: sendEvent }), { headers });
}

Bun.serve({
  ...proxy,
  port: Number(Bun.env["PORT"]),
  hostname: "127.0.0.1",
  fetch: (request: Request, server: { timeout(request: Request, seconds: number): void }) => {
    if (!request.url.endsWith("/own")) return proxy.fetch(request, server);
    server.timeout(request, 0);
    return ownStream();
  },
});
