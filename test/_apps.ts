/** Servers around the proxy in the test's own process, closed after each test. */
import { once } from "node:events";
import { createServer, type RequestListener } from "node:http";
import type { AddressInfo, Server } from "node:net";
import { serve as serveHono } from "@hono/node-server";
import { serve as serveH3, type H3 } from "h3";
import { serve as serveSrvx, type Server as SrvxServer, type ServerOptions } from "srvx";
import { afterAll, afterEach, beforeAll, expect } from "vitest";
import { connect, type Answer, type Client } from "./_client.ts";
import type { Call } from "./_link.ts";
import { quietly } from "./_srvx.ts";
import { Upstream } from "./_upstream.ts";

type Fetch = (request: Request) => Response | Promise<Response>;

export interface Apps {
  upstream: Upstream;
  serveNode(handler: RequestListener): Promise<number>;
  serveSrvx(options: ServerOptions): Promise<number>;
  serveH3(app: H3): Promise<number>;
  serveHono(app: { fetch: Fetch }): Promise<number>;
  /** Starts a server, and has it closed after the test. */
  listen(server: Server): Promise<number>;
  /** Has the server closed after the test. */
  track(server: Server): Promise<number>;
  connect(port: number): Promise<Client>;
  ask(port: number, bytes: string | Uint8Array): Promise<Answer>;
  /** The only request that the upstream has seen. */
  only(): Call;
}

export function useApps(): Apps {
  const upstream = new Upstream();
  const closing: (() => unknown)[] = [];
  const onceReady = async (server: SrvxServer): Promise<number> => {
    await server.ready();
    return apps.track(server.node?.server as Server);
  };
  const apps: Apps = {
    upstream,
    serveNode: (handler) => apps.listen(createServer(handler)),
    serveSrvx: (options) => onceReady(serveSrvx({ ...options, ...quietly })),
    serveH3: (app) => onceReady(serveH3(app, quietly)),
    serveHono: (app) => apps.track(serveHono({ fetch: app.fetch, port: 0, hostname: "127.0.0.1" })),
    listen(server) {
      server.listen(0, "127.0.0.1");
      return apps.track(server);
    },
    async track(server) {
      if (!server.listening) await once(server, "listening");
      closing.push(() => server.close());
      return (server.address() as AddressInfo).port;
    },
    async connect(port) {
      const client = await connect(port);
      closing.push(() => client.leave("FIN"));
      return client;
    },
    async ask(port, bytes) {
      const client = await apps.connect(port);
      client.send(bytes);
      return client.read(/^\w+/.exec(Buffer.from(bytes).toString("latin1"))?.[0]);
    },
    only() {
      expect(upstream.calls).toHaveLength(1);
      return upstream.calls[0] as Call;
    },
  };
  beforeAll(() => upstream.listen());
  afterEach(async () => {
    const { faults } = upstream;
    for (const close of closing.splice(0).toReversed()) close();
    await upstream.reset();
    expect(faults).toEqual([]);
  });
  afterAll(() => upstream.stop());
  return apps;
}
