/** Servers with WebSockets, each wired as users wire it. Bun and Deno run this file, so it imports no module of Node. */
import { createProxy, type CreateProxyOptions, proxyFetch } from "#fetchway";
import { H3, serve as serveH3 } from "h3";
import { serve } from "srvx";

declare const Bun: { serve(options: object): { port: number } } | undefined;
declare const Deno: {
  serve(options: object, fetch: unknown): { addr: { port: number } };
};

const target = process.env["UPSTREAM"] ?? "";

function create(options: Partial<CreateProxyOptions> = {}): ReturnType<typeof createProxy> {
  return createProxy({
    target,
    onError: ({ message }) => console.error(message),
    ...options,
  });
}

const proxy = create();
const { websocket } = proxy as { websocket?: never };
const listening = { port: 0, hostname: "127.0.0.1", silent: true } as const;
const bun = { websocket: websocket as never };

function start(fetch: unknown, handlers: object = { websocket }): number {
  if (typeof Bun !== "undefined") return Bun.serve({ ...listening, fetch, ...handlers }).port;
  return Deno.serve({ ...listening, onListen() {} }, fetch).addr.port;
}

async function portOf(server: { ready(): Promise<{ url?: string | undefined }> }): Promise<number> {
  return Number(new URL((await server.ready()).url ?? "").port);
}

const closing = create();

const ports = {
  plain: start(proxy.fetch),
  srvx: await portOf(serve({ ...listening, bun, fetch: proxy.fetch })),
  srvxCall: await portOf(
    serve({ ...listening, bun, fetch: (request) => proxyFetch(request, target) }),
  ),
  h3: await portOf(
    serveH3(
      new H3().all("/**", (event) => proxy.fetch(event.req)),
      { ...listening, bun },
    ),
  ),
  // These two servers have no WebSocket handlers. The proxy of `unwired` does not get the server either.
  unwired: start((request: Request) => proxyFetch(request, target), {}),
  unhandled: start(proxy.fetch, {}),
  silent: start(create({ tunnelTimeout: 3000 }).fetch),
  replaced: start(create({ onResponse: () => new Response("no", { status: 403 }) }).fetch),
  closing: start((request: Request, context: unknown) => {
    if (request.url.endsWith("/stats")) return Response.json(closing.stats());
    if (!request.url.endsWith("/close")) return closing.fetch(request, context);
    return closing.close().then(() => new Response("closed"));
  }),
};
console.log(`ports ${JSON.stringify(ports)}`);
