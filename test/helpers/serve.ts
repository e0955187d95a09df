/** Starts servers on Node, for tests, hosts and benchmarks. They listen on 127.0.0.1, on a free port by default. */
import { once } from "node:events";
import { createServer, type RequestListener } from "node:http";
import { type AddressInfo, connect, createServer as createNetServer, type Server } from "node:net";
import type { H3 } from "h3";
import type { ServerOptions } from "srvx";

export type Fetch = (request: Request) => Response | Promise<Response>;

/** The handler that each kind of server accepts. */
export interface Handlers {
  node: RequestListener;
  srvx: Fetch | Omit<ServerOptions, "port" | "hostname">;
  /** An app, or a handler for all routes of an app. */
  h3: Fetch | H3;
  hono: Fetch | { fetch: Fetch };
}

export type ServerKind = keyof Handlers;

export interface Serving {
  readonly port: number;
  readonly server: Server;
  /** Stops accepting connections. */
  readonly close: () => void;
}

/** The number of connections that may wait to be accepted: benchmarks open thousands at once. */
const BACKLOG = 4096;

/** Options of srvx, also used for h3: srvx prints nothing, and does not wait for requests when the process ends. */
const quiet = { hostname: "127.0.0.1", silent: true, gracefulShutdown: false } as const;

/**
 * Makes a server listen, unless it listens already.
 * @returns the port
 */
export async function listen(server: Server, port = 0, host = "127.0.0.1"): Promise<number> {
  if (server.address() === null) server.listen(port, host, BACKLOG);
  if (!server.listening) await once(server, "listening");
  return (server.address() as AddressInfo).port;
}

/**
 * Returns a free port for a program that needs a fixed port, or for a server that restarts. Until the program or the server
 * listens, connections to the port are refused. An open connection reserves the port: otherwise, the system could assign it to
 * a server of another test that asks for any free port.
 */
export async function findPort(): Promise<number> {
  const server = createNetServer((socket) => void socket.unref());
  const port = await listen(server);
  connect(port, "127.0.0.1").unref();
  await once(server, "connection");
  server.close();
  return port;
}

/**
 * Starts a server of this kind. The framework is imported by the first call and not before, because @hono/node-server
 * replaces the global `Response`.
 */
export async function serve<Kind extends ServerKind>(
  kind: Kind,
  handler: Handlers[Kind],
  port = 0,
): Promise<Serving> {
  const start = starters[kind] as (handler: Handlers[Kind], port: number) => Promise<Server>;
  const server = await start(handler, port);
  if (!server.listening) await once(server, "listening");
  return {
    port: (server.address() as AddressInfo).port,
    server,
    close: () => void server.close(),
  };
}

const starters: {
  [Kind in ServerKind]: (handler: Handlers[Kind], port: number) => Promise<Server>;
} = {
  async node(handler, port) {
    const server = createServer(handler);
    await listen(server, port);
    return server;
  },
  async srvx(handler, port) {
    const { serve: serveSrvx } = await import("srvx");
    const own = typeof handler === "function" ? { fetch: handler } : handler;
    const server = serveSrvx({ ...own, ...quiet, port });
    await server.ready();
    return server.node?.server as Server;
  },
  async h3(handler, port) {
    const { H3, serve: serveH3 } = await import("h3");
    const app =
      typeof handler === "function" ? new H3().all("/**", ({ req }) => handler(req)) : handler;
    const server = serveH3(app, { ...quiet, port });
    await server.ready();
    return server.node?.server as Server;
  },
  async hono(handler, port) {
    const { serve: serveHono } = await import("@hono/node-server");
    const { Hono } = await import("hono");
    const { fetch } =
      typeof handler === "function" ? new Hono().all("*", (c) => handler(c.req.raw)) : handler;
    return serveHono({ fetch: fetch, port, hostname: "127.0.0.1" });
  },
};
