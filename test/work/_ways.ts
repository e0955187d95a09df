/**
 * The ways in which a request and its response can pass through the proxy on Node. Each way is a server; the
 * proxies of all have the same options.
 */
import { createServer as createHttp2 } from "node:http2";
import { H3 } from "h3";
import { Hono } from "hono";
import { toNodeHandler } from "srvx/node";
import { createProxy, proxyFetch, type ProxyOptions } from "#fetchway";
import type { Apps } from "../helpers/apps.ts";

type Fetch = (request: Request) => Response | Promise<Response>;

/**
 * Sets the same client address for all ways, because a Request that user code has constructed has no client address.
 */
const options: ProxyOptions = { clientAddress: () => "192.0.2.7" };

/** Constructs a Request that has no reference to the server's request. */
function makeRequest(request: Request): Request {
  const { url, method, headers, body } = request;
  return new Request(url, {
    method,
    headers: [...headers],
    ...(body && { body, duplex: "half" }),
  });
}

/** Starts the server of a way, and returns its port. */
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

/** Starts srvx with requests whose `runtime` property differs from the one that srvx sets today. */
function onChangedSrvx(apps: Apps, change: (runtime: Runtime) => unknown): Promise<number> {
  return onSrvx(apps, (request) => {
    const runtime = change((request as unknown as { runtime: Runtime }).runtime);
    // Change the property on a proxy of the request, because srvx itself needs the original property.
    const get = (target: Request, name: string | symbol): unknown =>
      name === "runtime" ? runtime : Reflect.get(target, name, target);
    return forwarder(apps)(new Proxy(request, { get }));
  });
}

interface Runtime {
  node: { req: object; res: object };
}

/** Servers of HTTP/1 that do not replace the global `Response`. */
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

/** srvx as it is, and with missing or changed undocumented properties, on which the fast paths of the proxy depend. */
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

export const http2Ways: Record<string, Way> = {
  "node:http2": (apps) => onHttp2(apps, handler(apps)),
  "srvx, HTTP/2": (apps) => onHttp2(apps, toNodeHandler(forwarder(apps))),
};

/** Servers that run in a process in which @hono/node-server has replaced the global `Response`. */
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
