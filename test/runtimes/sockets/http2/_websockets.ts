/**
 * Serves a proxy that uses HTTP/2 to its upstream, on the runtime's own server (`own`), and with the entry for Node on a server
 * of `node:http2` (`http2`). Node, Bun and Deno run this program.
 */
import { createServer } from "node:http";
import { createServer as createHttp2 } from "node:http2";
import type { AddressInfo, Server } from "node:net";
import process from "node:process";
import { createProxy } from "#fetchway";
import { createProxy as createNodeProxy } from "../../../../runtimes/node.ts";

declare const Bun: { serve(options: object): { port: number } } | undefined;
declare const Deno: { serve(options: object, fetch: unknown): { addr: { port: number } } };

const tls = { ca: process.env["CA"] ?? "" };
const options = { target: process.env["UPSTREAM"] ?? "", pool: { http2: true, tls } };
const proxy = createProxy(options);
const node = createNodeProxy(options);
const hostname = "127.0.0.1";

/** Answers requests for the proxy's statistics, and forwards all other requests. */
function fetch(request: Request, context?: unknown): Response | Promise<Response> {
  const { pathname } = new URL(request.url);
  if (pathname === "/stats") return Response.json(proxy.stats());
  return proxy.fetch(request, context);
}

async function listen(server: Server): Promise<number> {
  await new Promise<void>((resolve) => server.listen(0, hostname, resolve));
  return (server.address() as AddressInfo).port;
}

async function listenOwn(): Promise<number> {
  if (typeof Bun !== "undefined") {
    const { websocket } = proxy as { websocket?: unknown };
    return Bun.serve({ port: 0, hostname, fetch, websocket }).port;
  }
  if ("Deno" in globalThis)
    return Deno.serve({ port: 0, hostname, onListen() {} }, fetch).addr.port;
  const server = createServer((req, res) => {
    if (req.url === "/stats") return void res.end(JSON.stringify(node.stats()));
    return node.nodeHandler(req, res);
  });
  node.attach(server);
  return listen(server);
}

const front = createHttp2({ settings: { enableConnectProtocol: true } }, node.nodeHandler);
node.attach(front);
console.log(`ports ${JSON.stringify({ own: await listenOwn(), http2: await listen(front) })}`);
