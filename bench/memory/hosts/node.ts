/** The proxy on Node's servers, and at /own an idle event stream of the server itself for comparison. */
import type { ServerResponse } from "node:http";
import { createProxy } from "#fetchway";
import type { ServerKind } from "../../../test/helpers/serve.ts";
import { start, target } from "../../contestants/_start.ts";

const EVENT = "data: ready\n\n";
const headers = { "content-type": "text/event-stream" };
const proxy = createProxy({ target, pool: { maxSockets: 20_000 } });

function sendEvent(controller: ReadableStreamDefaultController<Uint8Array>): void {
  controller.enqueue(Buffer.from(EVENT));
}

function ownStream(): Response {
  return new Response(new ReadableStream<Uint8Array>({ start: sendEvent }), { headers });
}

function writeOwn(res: ServerResponse): void {
  res.writeHead(200, headers);
  res.write(EVENT);
}

const fetch = (request: Request): Response | Promise<Response> =>
  request.url.endsWith("/own") ? ownStream() : proxy.fetch(request);

const kind = process.argv[2] as ServerKind;
if (kind === "node") {
  await start(kind, (req, res) =>
    req.url === "/own" ? writeOwn(res) : proxy.nodeHandler(req, res),
  );
} else await start(kind, fetch);
