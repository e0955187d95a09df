/** The proxy on Node's servers, and at /own what a server's own idle event stream costs. */
import type { ServerResponse } from "node:http";
import { serve as serveHono } from "@hono/node-server";
import { H3, serve as serveH3 } from "h3";
import { Hono } from "hono";
import { serve as serveSrvx } from "srvx";
import { createProxy } from "#proxy";
import { hostname, listen, port, target } from "../../contestants/_serve.ts";

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

const servers: Record<string, () => unknown> = {
  node: () =>
    listen((req, res) => (req.url === "/own" ? writeOwn(res) : proxy.nodeHandler(req, res))),
  srvx: () => serveSrvx({ fetch, port, hostname, silent: true }),
  h3: () =>
    serveH3(
      new H3().all("/**", ({ req }) => fetch(req)),
      { port, hostname, silent: true },
    ),
  hono: () =>
    serveHono({ fetch: new Hono().all("*", (c) => fetch(c.req.raw)).fetch, port, hostname }),
};
servers[process.argv[2] ?? ""]?.();
