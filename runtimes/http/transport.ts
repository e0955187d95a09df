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
import { toDestination } from "../destination.ts";
import { Resolver } from "../dns.ts";
import { Exchange } from "./exchange.ts";
import { Pool } from "./pool.ts";
import { UnframedBody } from "./unframed.ts";

const CAPABILITIES: Capabilities = { decodes: [], host: true, unixSocket: true, tls: true };

/** Origins that are remembered although they have no connection: targets may be made of what clients send. */
const ORIGINS = 100;

/** Connections through the `node:http` client of a runtime that is not Node, which writes what it is told. */
export class HttpTransport implements Transport {
  readonly name: string;
  readonly capabilities: Capabilities = CAPABILITIES;
  readonly #options: FilledPoolOptions;
  readonly #resolver: Resolver | undefined;
  readonly #counters: Counters = new Counters();
  readonly #pools: Map<string, Pool> = new Map();
  readonly #poolOf: WeakMap<Upstream, Pool> = new WeakMap();
  #limit = ORIGINS;
  #closed = false;

  constructor(name: string, options: PoolOptions) {
    this.name = name;
    this.#options = fillPoolOptions(options);
    const { dns } = this.#options;
    this.#resolver = dns === false ? undefined : new Resolver(dns);
  }

  send(hop: Hop, lifetime: Lifetime): Promise<Reply> {
    if (hop.body instanceof UnframedBody) return this.#sendUnframed(hop, hop.body, lifetime);
    return new Promise((resolve, reject) => {
      new Exchange(hop, lifetime, resolve, reject).run(this.#pool(hop.upstream));
    });
  }

  async #sendUnframed(hop: Hop, unframed: UnframedBody, lifetime: Lifetime): Promise<Reply> {
    const aborted = new Promise<never>((_, reject) => (lifetime.onabort = reject));
    const body = await Promise.race([unframed.unlessEmpty(), aborted]);
    return this.send({ ...hop, body }, lifetime);
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
      return Promise.all(Array.from(this.#pools.values(), (pool) => pool.close()));
    };
    await closeWithin(timeout, closing, () => this.destroy());
  }

  destroy(): void {
    this.#closed = true;
    for (const pool of this.#pools.values()) pool.destroy();
  }

  #pool(upstream: Upstream): Pool {
    let pool = this.#poolOf.get(upstream);
    if (pool !== undefined && !pool.evicted) return pool;
    const destination = toDestination(upstream, this.#options);
    // Connections are shared only where nothing of them differs (GHSA-v574-6498-x57v: keys that ran together).
    const key = JSON.stringify([destination.origin, destination.socketPath, destination.tls]);
    pool = this.#pools.get(key);
    if (pool === undefined) {
      if (this.#closed) throw poolClosed();
      if (this.#pools.size >= this.#limit) this.#evict();
      pool = new Pool(destination, this.#options, this.#counters, this.#resolver);
      this.#pools.set(key, pool);
    }
    this.#poolOf.set(upstream, pool);
    return pool;
  }

  /** Forgets the origins that have no connection. */
  #evict(): void {
    for (const [key, pool] of this.#pools) {
      if (!pool.empty) continue;
      pool.evicted = true;
      this.#pools.delete(key);
    }
    this.#counters.version++;
    // Where most are in use, not with each that is new.
    this.#limit = Math.max(ORIGINS, 2 * this.#pools.size);
  }
}
