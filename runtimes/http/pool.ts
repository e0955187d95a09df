import type { Agent, ClientRequest, RequestOptions } from "node:http";
import type { Socket } from "node:net";
import { getHeader } from "../../src/headers.ts";
import { fillPoolOptions, type PoolOptions } from "../../src/pool.ts";
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

/** Milliseconds before the upstream closes an idle connection in which it is not used any more. */
const MARGIN = 1000;

/** The connections to one origin. */
export class Pool {
  readonly name: string;
  readonly #agent: Agent;
  readonly #request: Http["request"];
  readonly #options: RequestOptions;
  readonly #counters: Counters;
  readonly #sockets: Set<Socket> = new Set();
  /** Until when connections that are idle may be. */
  readonly #expiry: WeakMap<Socket, number> = new WeakMap();
  #sweep: ReturnType<typeof setTimeout> | undefined;
  #sweepAt = Infinity;
  #onEmpty: (() => void) | undefined;

  constructor(upstream: Upstream, options: PoolOptions, counters: Counters) {
    const { origin, hostname, secure, socketPath, tls } = upstream;
    const { maxSockets, maxFreeSockets, freeSocketTimeout, connectTimeout } =
      fillPoolOptions(options);
    const module = process.getBuiltinModule(secure ? "node:https" : "node:http") as Http & Https;
    this.name = socketPath === undefined ? origin : `unix:${socketPath}`;
    this.#request = module.request;
    this.#counters = counters;
    // The one used last is the least likely to be stale, and those not needed grow old.
    const agent = new module.Agent({ keepAlive: true, maxSockets, scheduling: "lifo", ...tls });
    this.#agent = agent;
    // As an option, 0 would be taken for none.
    Object.assign(agent, { maxFreeSockets });
    this.#options = {
      agent,
      ...(socketPath === undefined
        ? { host: hostname, port: new URL(origin).port || (secure ? 443 : 80) }
        : { socketPath }),
      // Otherwise SNI and certificate check would follow `Host`. An address has no name (RFC 6066 §3).
      ...(secure && {
        servername: tls?.servername ?? (/^[\d.]+$|:/.test(hostname) ? "" : hostname),
      }),
    };
    const connect = agent.createConnection.bind(agent);
    agent.createConnection = (...args) => {
      const socket = connect(...args) as Socket;
      this.#watch(socket, secure ? "secureConnect" : "connect", connectTimeout);
      return socket;
    };
    // There is but one origin to tell from others.
    (agent as { getName(): string }).getName = () => this.name;
    // Its own way is a timer for each socket, set anew after each request.
    agent.keepSocketAlive = (socket: Socket) => this.#keep(socket, freeSocketTimeout);
  }

  request(options: RequestOptions): ClientRequest {
    this.#counters.requests++;
    return this.#request({ ...this.#options, ...options });
  }

  get stats(): OriginStats {
    const { sockets, freeSockets, requests } = this.#agent;
    return {
      inUse: listed(sockets).length,
      free: listed(freeSockets).length,
      waiting: listed(requests).length,
    };
  }

  /** Lets running and waiting requests finish, then closes. */
  close(): Promise<void> {
    // A connection whose request is over is then not kept.
    Object.assign(this.#agent, { maxFreeSockets: 0 });
    for (const socket of listed(this.#agent.freeSockets)) socket.destroy();
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

  /** The connection's request is over. The upstream's hint may shorten the time for the next, never lengthen it. */
  #keep(socket: Socket, freeSocketTimeout: number): boolean {
    const { rawHeaders = [] } = (socket as Used)._httpMessage?.res ?? {};
    const hint = /timeout=(\d+)/i.exec(getHeader(rawHeaders, "keep-alive") ?? "")?.[1];
    const announced = hint === undefined ? Infinity : Number(hint) * 1000 - MARGIN;
    const left = Math.min(freeSocketTimeout, announced);
    if (left <= 0) return false;
    const expiry = performance.now() + left;
    this.#expiry.set(socket, expiry);
    if (expiry < this.#sweepAt) this.#armSweep(expiry);
    socket.unref();
    return true;
  }

  #armSweep(at: number): void {
    clearTimeout(this.#sweep);
    this.#sweepAt = at;
    const wait = Math.max(1, Math.ceil(at - performance.now()));
    this.#sweep = setTimeout(() => this.#closeExpired(), wait);
    this.#sweep.unref?.();
  }

  #closeExpired(): void {
    const now = performance.now();
    let next = Infinity;
    for (const socket of listed(this.#agent.freeSockets)) {
      const expiry = this.#expiry.get(socket) ?? now;
      if (expiry <= now) socket.destroy();
      else next = Math.min(next, expiry);
    }
    this.#sweepAt = Infinity;
    if (next < Infinity) this.#armSweep(next);
  }
}

/** A connection that has carried a request. */
type Used = Socket & { _httpMessage?: { res?: { rawHeaders: string[] } } };

function listed<T>(byName: NodeJS.ReadOnlyDict<T[]>): T[] {
  return Object.values(byName).flatMap((list) => list ?? []);
}
