/** The same proxy on every way that a request and its response can take through it on Node. */
import { createServer as createHttp2 } from "node:http2";
import { H3 } from "h3";
import { Hono } from "hono";
import { toNodeHandler } from "srvx/node";
import { createProxy, proxyFetch, type ProxyOptions } from "#proxy";
import type { Apps } from "./_apps.ts";

type Fetch = (request: Request) => Response | Promise<Response>;

/** What only a server knows is given, so that a Request made by hand says the same. */
const options: ProxyOptions = { clientAddress: () => "192.0.2.7" };

/** A Request with nothing of the server's under it. */
function makeRequest(request: Request): Request {
  const { url, method, headers, body } = request;
  return new Request(url, {
    method,
    headers: [...headers],
    ...(body && { body, duplex: "half" }),
  });
}

/** A way's server; the promise is of its port. */
export type Way = (apps: Apps) => Promise<number>;

const onSrvx = (apps: Apps, fetch: Fetch): Promise<number> => apps.serve("srvx", { fetch });

const onHttp2 = (apps: Apps, handler: unknown): Promise<number> =>
  apps.listen(createHttp2({}, handler as never));

const forwarder =
  ({ upstream }: Apps): Fetch =>
  (request) =>
    proxyFetch(request, upstream.url, options);

const handler = ({ upstream }: Apps): ReturnType<typeof createProxy>["nodeHandler"] =>
  createProxy({ target: upstream.url, ...options }).nodeHandler;

/** A server that shows something else of itself on its requests than it does today. */
function onChangedSrvx(apps: Apps, change: (runtime: Runtime) => unknown): Promise<number> {
  return onSrvx(apps, (request) => {
    const runtime = change((request as unknown as { runtime: Runtime }).runtime);
    // Not on the request itself: the server needs its own.
    const get = (target: Request, name: string | symbol): unknown =>
      name === "runtime" ? runtime : Reflect.get(target, name, target);
    return forwarder(apps)(new Proxy(request, { get }));
  });
}

interface Runtime {
  node: { req: object; res: object };
}

/** HTTP/1 in front, and nothing that replaces the global `Response`. */
export const ways: Record<string, Way> = {
  "node:http": (apps) => apps.serve("node", handler(apps)),
  srvx: (apps) => onSrvx(apps, forwarder(apps)),
  h3: (apps) =>
    apps.serve(
      "h3",
      new H3().all("/**", (event) => forwarder(apps)(event.req)),
    ),
  "a Request made by hand": (apps) =>
    onSrvx(apps, (request) => forwarder(apps)(makeRequest(request))),
  "request headers read": (apps) =>
    onSrvx(apps, (request) => {
      void [...request.headers];
      return forwarder(apps)(request);
    }),
  "request headers changed": (apps) =>
    onSrvx(apps, (request) => {
      request.headers.set("x-middleware", "1");
      request.headers.delete("x-middleware");
      return forwarder(apps)(request);
    }),
  "response headers read": (apps) =>
    onSrvx(apps, async (request) => {
      const response = await forwarder(apps)(request);
      void response.headers.get("x-a");
      return response;
    }),
  "response body looked at": (apps) =>
    onSrvx(apps, async (request) => {
      const response = await forwarder(apps)(request);
      void response.body;
      return response;
    }),
  "a Response made of the response": (apps) =>
    onSrvx(apps, async (request) => {
      const { status, headers, body } = await forwarder(apps)(request);
      return new Response(body, { status, headers });
    }),
  "a clone of the response": (apps) =>
    onSrvx(apps, async (request) => (await forwarder(apps)(request)).clone()),
};

/** What is left if servers change what nobody has promised. */
export const changedWays: Record<string, Way> = {
  "srvx as it is": ways["srvx"] as Way,
  "srvx without runtime": (apps) => onChangedSrvx(apps, () => undefined),
  "srvx without node": (apps) => onChangedSrvx(apps, () => ({ name: "node" })),
  "srvx without res": (apps) => onChangedSrvx(apps, ({ node: { req } }) => ({ node: { req } })),
  "srvx with another req": (apps) => onChangedSrvx(apps, ({ node }) => ({ node: { req: node } })),
  "srvx that reads a response as a web one": (apps) =>
    onSrvx(apps, async (request) => {
      const response = await forwarder(apps)(request);
      return Object.defineProperty(response, "_toNodeResponse", { value: undefined });
    }),
};

/** HTTP/2 in front. */
export const http2Ways: Record<string, Way> = {
  "node:http2": (apps) => onHttp2(apps, handler(apps)),
  "srvx, HTTP/2": (apps) => onHttp2(apps, toNodeHandler(forwarder(apps))),
};

/** Servers that replace the global `Response` of the process as soon as they start. */
export const replacingWays: Record<string, Way> = {
  hono: (apps) =>
    apps.serve(
      "hono",
      new Hono().all("*", (c) => forwarder(apps)(c.req.raw)),
    ),
  "hono, a Request made by hand": (apps) =>
    apps.serve(
      "hono",
      new Hono().all("*", (c) => forwarder(apps)(makeRequest(c.req.raw))),
    ),
  "hono without its symbols": (apps) =>
    apps.serve(
      "hono",
      new Hono().all("*", (c) => forwarder(apps)(Object.create(c.req.raw) as Request)),
    ),
  "node:http beside hono": (apps) => apps.serve("node", handler(apps)),
};
