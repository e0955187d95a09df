import type { Lifetime } from "../../src/deadline.ts";
import {
  closeWithin,
  type FilledPoolOptions,
  fillPoolOptions,
  poolClosed,
  type PoolOptions,
} from "../../src/pool.ts";
import { addOrigin, Counters } from "../../src/stats.ts";
import type { Upstream } from "../../src/target.ts";
import type {
  Capabilities,
  Hop,
  OriginStats,
  PoolStats,
  Reply,
  Transport,
} from "../../src/transport.ts";
import { Resolver } from "../dns.ts";
import { toDestination } from "../destination.ts";
import { Exchange } from "./exchange.ts";
import { OriginPool } from "./pool.ts";

const CAPABILITIES: Capabilities = { decodes: [], host: true, unixSocket: true, tls: true };

/** Milliseconds after which an origin without connections is forgotten, */
const EVICTION = 60_000;
/** or at once where there are more than so many: targets may be made of what clients send. */
const ORIGINS = 1000;

function runUnlessAborted(pool: OriginPool, exchange: Exchange): void {
  if (!exchange.aborted) pool.run(exchange);
}

/**
 * undici's connections, through `dispatch` and not `fetch`: the bytes stay raw,
 * fields keep order and case, and `Host` is what it is told to be.
 */
export class NodeTransport implements Transport {
  readonly name = "node";
  readonly capabilities: Capabilities = CAPABILITIES;
  readonly #options: FilledPoolOptions;
  readonly #resolver: Resolver | undefined;
  readonly #counters: Counters = new Counters();
  readonly #pools: Map<string, OriginPool> = new Map();
  /** Upstreams are parsed once and shared: most requests find their pool by identity. */
  readonly #poolOf: WeakMap<Upstream, OriginPool> = new WeakMap();
  #limit = ORIGINS;
  #sweep: NodeJS.Timeout | undefined;
  #closed = false;

  constructor(options: PoolOptions) {
    this.#options = fillPoolOptions(options);
    const { dns } = this.#options;
    this.#resolver = dns === false ? undefined : new Resolver(dns);
  }

  send(hop: Hop, lifetime: Lifetime): Promise<Reply> {
    return new Promise((resolve, reject) => {
      const pool = this.#pool(hop.upstream);
      const exchange = new Exchange(hop, lifetime, pool, resolve, reject);
      const { method, body } = hop;
      // A small body is in the same packet as its head, but parsed after the handler
      // has run: by the check phase it is here, and goes out in one write with the head.
      // And undici looks at a kept connection in the check phase after that: what has been
      // closed meanwhile is known by then, and not used for what cannot be sent twice.
      if (body === null && (method === "GET" || method === "HEAD")) pool.run(exchange);
      else setImmediate(runUnlessAborted, pool, exchange);
    });
  }

  stats(): PoolStats {
    return this.#counters.stats(() => {
      const origins: Record<string, OriginStats> = {};
      for (const pool of this.#pools.values()) addOrigin(origins, pool.name, pool.stats);
      return origins;
    });
  }

  async close(timeout = 0): Promise<void> {
    const closing = (): Promise<unknown> => {
      this.#closed = true;
      clearTimeout(this.#sweep);
      return Promise.all(Array.from(this.#pools.values(), (pool) => pool.close()));
    };
    await closeWithin(timeout, closing, () => this.destroy());
  }

  destroy(): void {
    this.#closed = true;
    clearTimeout(this.#sweep);
    for (const pool of this.#pools.values()) pool.destroy();
  }

  #pool(upstream: Upstream): OriginPool {
    let pool = this.#poolOf.get(upstream);
    if (pool !== undefined && !pool.evicted) return pool;
    const destination = toDestination(upstream, this.#options);
    // Connections are shared only where nothing of them differs (GHSA-v574-6498-x57v: keys that ran together).
    const key = JSON.stringify([destination.origin, destination.socketPath, destination.tls]);
    pool = this.#pools.get(key);
    if (pool === undefined) {
      if (this.#closed) throw poolClosed();
      if (this.#pools.size >= this.#limit) this.#evict((each) => each.empty);
      pool = new OriginPool(destination, this.#options, this.#counters, this.#resolver);
      this.#pools.set(key, pool);
      this.#sweep ??= setTimeout(() => this.#evict((each) => each.wasEmpty()), EVICTION).unref();
    }
    this.#poolOf.set(upstream, pool);
    return pool;
  }

  #evict(dispensable: (pool: OriginPool) => boolean): void {
    for (const [key, pool] of this.#pools) {
      if (!dispensable(pool)) continue;
      pool.evicted = true;
      this.#pools.delete(key);
    }
    this.#counters.version++;
    // Where most are in use, not with each that is new.
    this.#limit = Math.max(ORIGINS, 2 * this.#pools.size);
    // A timer would keep all this in memory although nobody uses it any more.
    if (this.#pools.size > 0) this.#sweep?.refresh();
    else this.#sweep = undefined;
  }
}
