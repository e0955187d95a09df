/** Apps of seven frameworks with the same routes. Some of the routes pass requests to a proxy. */
import { once } from "node:events";
import { createServer as createHttp1Server, type RequestListener, type Server } from "node:http";
import { createSecureServer } from "node:http2";
import express, { type NextFunction, type Request as Req, type Response as Res } from "express";
import fastify from "fastify";
import { H3, HTTPError, serve as serveH3 } from "h3";
import Koa from "koa";
import { serve as serveSrvx } from "srvx";
import { createServer as createVite } from "vite";
import type { NodeProxy } from "../../../runtimes/node.ts";

/** The cookies that the middleware of each app sets. */
export const cookies: string[] = ["a=1; Path=/", "b=2; Path=/"];

const options = { port: 0, hostname: "127.0.0.1", silent: true, gracefulShutdown: false } as const;

function fail(): never {
  throw new Error("the app's exception");
}

const never = new Promise<never>(() => {});

/** Answers a web request by its path. Requests for paths without a `case` go to the proxy unchanged. */
async function answer(request: Request, proxy: NodeProxy, context?: unknown): Promise<Response> {
  switch (new URL(request.url).pathname) {
    case "/refused":
      return new Response("no entry", { status: 401, headers: { "x-why": "no login" } });
    case "/own":
      return new Response(null, { status: 204, headers: { "x-own": "1" } });
    case "/broken":
      return fail();
    case "/never":
      return never;
    case "/cloned":
      return proxy.fetch(request.clone());
    case "/copied":
      return proxy.fetch(new Request(new URL("/elsewhere", request.url), request));
    default:
      return proxy.fetch(request, context);
  }
}

type Pair = [path: string, answer: () => void];

/** Runs the function that `own` has for a path, or `others` if `own` has none. */
function choose(path: string | undefined, others: () => void, ...own: Pair[]): void {
  const [, run = others] = own.find(([name]) => name === path) ?? [];
  run();
}

/** The certificate of an HTTP/2 server; undefined for an HTTP/1.1 server. */
type Tls = { readonly cert: string; readonly key: string } | undefined;

/** Creates an HTTP/2 server if there is a certificate, otherwise an HTTP/1.1 server. */
function createServer(listener: RequestListener, tls: Tls): Server {
  if (tls === undefined) return createHttp1Server(listener);
  return createSecureServer(tls, listener as never) as unknown as Server;
}

/**
 * For each framework, a function that makes a server, whose middleware sets cookies and `X-By`. The servers of h3, srvx and
 * Hono listen already.
 */
export const frameworks: Record<string, (proxy: NodeProxy, tls?: Tls) => Promise<Server>> = {
  async h3(proxy, tls) {
    const app = new H3()
      .use((event) => {
        event.res.headers.set("x-by", "app");
        for (const cookie of cookies) event.res.headers.append("set-cookie", cookie);
      })
      .all("/broken", () => {
        throw new HTTPError({ status: 500, unhandled: false });
      })
      .mount("/mounted", proxy.fetch)
      .all("/**", (event) => answer(event.req, proxy));
    const server = serveH3(app, { ...options, ...(tls && { tls }) });
    await server.ready();
    return server.node?.server as Server;
  },

  async srvx(proxy, tls) {
    const server = serveSrvx({
      ...options,
      ...(tls && { tls }),
      middleware: [
        async (_request, next) => {
          const response = await next();
          response.headers.set("x-by", "app");
          for (const cookie of cookies) response.headers.append("set-cookie", cookie);
          return response;
        },
      ],
      fetch: (request) => answer(request, proxy),
      error: () => new Response("error", { status: 500 }),
    });
    await server.ready();
    return server.node?.server as Server;
  },

  async express(proxy) {
    const app = express()
      .use((_: Req, res: Res, next: NextFunction) => {
        res.setHeader("X-By", "app");
        res.setHeader("Set-Cookie", cookies);
        next();
      })
      .use((req: Req, res: Res, next: NextFunction) => {
        choose(
          req.url,
          next,
          ["/refused", () => res.status(401).setHeader("x-why", "no login").send("no entry")],
          ["/own", () => res.status(204).setHeader("x-own", "1").end()],
          ["/broken", fail],
          ["/never", () => {}],
        );
      })
      .use(proxy.nodeHandler)
      .use((_error: unknown, _req: Req, res: Res, _next: NextFunction) => {
        res.status(500).send("error");
      });
    return createHttp1Server(app);
  },

  async connect(proxy, tls) {
    const vite = await createVite({
      configFile: false,
      logLevel: "silent",
      appType: "custom",
      server: { middlewareMode: true, ws: false, watch: null, allowedHosts: true },
      optimizeDeps: { noDiscovery: true },
    });
    const { middlewares } = vite;
    middlewares.use((req, res, next) => {
      res.setHeader("X-By", "app");
      res.setHeader("Set-Cookie", cookies);
      choose(
        req.url,
        next,
        ["/refused", () => res.writeHead(401, { "x-why": "no login" }).end("no entry")],
        ["/own", () => res.writeHead(204, { "x-own": "1" }).end()],
        ["/broken", fail],
        ["/never", () => {}],
      );
    });
    middlewares.use(proxy.nodeHandler);
    return createServer(middlewares, tls).on("close", () => void vite.close());
  },

  async koa(proxy, tls) {
    const app = new Koa();
    app.silent = true;
    app.use((ctx, next) => {
      ctx.set("X-By", "app");
      ctx.set("Set-Cookie", cookies);
      return next();
    });
    app.use(async (ctx) => {
      if (ctx.path === "/refused") {
        ctx.status = 401;
        ctx.set("x-why", "no login");
        ctx.body = "no entry";
      } else if (ctx.path === "/own") {
        ctx.status = 204;
        ctx.set("x-own", "1");
      } else if (ctx.path === "/broken") fail();
      else if (ctx.path === "/never") await never;
      else {
        ctx.respond = false;
        proxy.nodeHandler(ctx.req, ctx.res);
      }
    });
    return createServer(app.callback(), tls);
  },

  async fastify(proxy, tls) {
    const app = fastify({ serverFactory: (handler) => createServer(handler, tls) });
    app.addHook("onRequest", async (_, reply) => {
      reply.raw.setHeader("X-By", "app");
      reply.raw.setHeader("Set-Cookie", cookies);
    });
    app.get("/refused", async (_, reply) => {
      await reply.code(401).header("x-why", "no login").send("no entry");
    });
    app.get("/own", async (_, reply) => {
      await reply.code(204).header("x-own", "1").send();
    });
    app.get("/broken", async () => fail());
    app.get("/never", () => never);
    app.get("/*", (request, reply) => {
      reply.hijack();
      proxy.nodeHandler(request.raw, reply.raw);
    });
    await app.ready();
    return app.server;
  },

  // Keep Hono last, because @hono/node-server replaces the global `Response`.
  async hono(proxy, tls) {
    const [{ serve }, { Hono }, { cors }, { mount }, { secureHeaders }] = await Promise.all([
      import("@hono/node-server"),
      import("hono"),
      import("hono/cors"),
      import("hono/mount"),
      import("hono/secure-headers"),
    ]);
    const app = new Hono()
      .use(cors(), secureHeaders(), async (c, next) => {
        await next();
        c.header("x-by", "app");
        for (const cookie of cookies) c.header("set-cookie", cookie, { append: true });
      })
      .all("/mounted/*", mount(proxy.fetch))
      .all("*", (c) => answer(c.req.raw, proxy))
      .onError((_, c) => c.text("error", 500));
    const own = tls && { createServer: createSecureServer, serverOptions: tls };
    const server = serve({ fetch: app.fetch, port: 0, hostname: "127.0.0.1", ...own }) as Server;
    if (!server.listening) await once(server, "listening");
    return server;
  },
};
