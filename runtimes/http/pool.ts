import type { Agent, ClientRequest, RequestOptions } from "node:http";
import type { Socket } from "node:net";
import { poolDefaults, type PoolOptions } from "../../src/options.ts";
import type { Upstream } from "../../src/target.ts";
import type { OriginStats, PoolStats } from "../../src/transport.ts";

type Http = typeof import("node:http");
type Https = typeof import("node:https");

/** Bun's own `node:http`, taken at run time: a bundle for another runtime has nothing of Node's in it. */
const { process } = globalThis as unknown as {
  process: { getBuiltinModule(name: string): unknown };
};

/** Counters over all origins of a transport. */
export type Counters = { -readonly [name in Exclude<keyof PoolStats, "origins">]: PoolStats[name] };

/** The connections to one origin. */
export class Pool {
  readonly name: string;
  readonly #agent: Agent;
  readonly #request: Http["request"];
  readonly #options: RequestOptions;
  readonly #counters: Counters;
  readonly #sockets: Set<Socket> = new Set();
  #onEmpty: (() => void) | undefined;

  constructor(upstream: Upstream, options: PoolOptions, counters: Counters) {
    const { origin, hostname, secure, socketPath, tls } = upstream;
    const { maxSockets, maxFreeSockets, freeSocketTimeout, connectTimeout } = {
      ...poolDefaults,
      ...options,
    };
    const module = process.getBuiltinModule(secure ? "node:https" : "node:http") as Http & Https;
    this.name = socketPath === undefined ? origin : `unix:${socketPath}`;
    this.#request = module.request;
    this.#counters = counters;
    this.#agent = new module.Agent({
      keepAlive: true,
      maxSockets,
      maxFreeSockets,
      // The one used last is the least likely to be stale, and those not needed grow old.
      scheduling: "lifo",
      timeout: freeSocketTimeout,
      ...tls,
    });
    this.#options = {
      agent: this.#agent,
      ...(socketPath === undefined
        ? { host: hostname, port: new URL(origin).port || (secure ? 443 : 80) }
        : { socketPath }),
      // Otherwise SNI and certificate check would follow `Host`. An address has no name (RFC 6066 §3).
      ...(secure && {
        servername: tls?.servername ?? (/^[\d.]+$|:/.test(hostname) ? "" : hostname),
      }),
    };
    const connect = this.#agent.createConnection.bind(this.#agent);
    this.#agent.createConnection = (...args) => {
      const socket = connect(...args) as Socket;
      this.#watch(socket, secure ? "secureConnect" : "connect", connectTimeout);
      return socket;
    };
  }

  request(options: RequestOptions): ClientRequest {
    this.#counters.requests++;
    return this.#request({ ...this.#options, ...options });
  }

  get stats(): OriginStats {
    const { sockets, freeSockets, requests } = this.#agent;
    return { inUse: count(sockets), free: count(freeSockets), waiting: count(requests) };
  }

  /** Lets running and waiting requests finish, then closes. */
  close(): Promise<void> {
    // A connection whose request is over is then not kept.
    (this.#agent as { maxFreeSockets: number }).maxFreeSockets = 0;
    for (const list of Object.values(this.#agent.freeSockets)) {
      for (const socket of [...(list ?? [])]) socket.destroy();
    }
    if (this.#sockets.size === 0) return Promise.resolve();
    return new Promise((resolve) => (this.#onEmpty = resolve));
  }

  #watch(socket: Socket, ready: string, connectTimeout: number): void {
    let connected = false;
    this.#sockets.add(socket);
    const late = (): void => {
      socket.destroy(Object.assign(new Error("connect timeout"), { code: "ETIMEDOUT" }));
    };
    const timer = connectTimeout > 0 ? setTimeout(late, connectTimeout) : undefined;
    socket.once(ready, () => {
      connected = true;
      clearTimeout(timer);
      this.#counters.created++;
    });
    socket.once("close", () => {
      clearTimeout(timer);
      this.#counters[connected ? "closed" : "failed"]++;
      this.#sockets.delete(socket);
      if (this.#sockets.size === 0) this.#onEmpty?.();
    });
  }
}

function count(byName: NodeJS.ReadOnlyDict<unknown[]>): number {
  return Object.values(byName).reduce((sum, list) => sum + (list?.length ?? 0), 0);
}
