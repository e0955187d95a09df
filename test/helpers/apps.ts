/** Starts servers that contain the proxy in the test's own process, and closes them after each test. */
import type { Server } from "node:net";
import { afterAll, afterEach, beforeAll, expect } from "vitest";
import { connect, type Answer, type Client } from "./client.ts";
import type { Call } from "./link.ts";
import { type Handlers, listen, serve, type ServerKind } from "./serve.ts";
import { Upstream } from "./upstream.ts";

export interface Apps {
  upstream: Upstream;
  /**
   * Starts a server of this kind, and closes it after the test.
   * @returns its port
   */
  serve<Kind extends ServerKind>(kind: Kind, handler: Handlers[Kind]): Promise<number>;
  /**
   * Makes the given server listen, unless it listens already, and closes it after the test.
   * @returns its port
   */
  listen(server: Server): Promise<number>;
  connect(port: number): Promise<Client>;
  ask(port: number, bytes: string | Uint8Array): Promise<Answer>;
  /** Returns the request that the upstream has received, and fails unless it has received exactly one. */
  only(): Call;
}

export function useApps(): Apps {
  const upstream = new Upstream();
  const closing: (() => unknown)[] = [];
  const apps: Apps = {
    upstream,
    async serve(kind, handler) {
      const { port, close } = await serve(kind, handler);
      closing.push(close);
      return port;
    },
    async listen(server) {
      closing.push(() => server.close());
      return listen(server);
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
