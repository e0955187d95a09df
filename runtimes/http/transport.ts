import type { Lifetime } from "../../src/deadline.ts";
import { ProxyError } from "../../src/error.ts";
import { fillPoolOptions, type FilledPoolOptions, type PoolOptions } from "../../src/pool.ts";
import type { Upstream } from "../../src/target.ts";
import type { Capabilities, Hop, PoolStats, Reply, Transport } from "../../src/transport.ts";
import { Resolver } from "../dns.ts";
import { Exchange } from "./exchange.ts";
import { type Counters, Pool } from "./pool.ts";
import { UnframedBody } from "./unframed.ts";

const CAPABILITIES: Capabilities = { decodes: [], host: true, unixSocket: true, tls: true };

/** Origins that are remembered although they have no connection. */
const MANY = 100;
const CLOSED = "the proxy was closed";

/** Connections through the `node:http` client of a runtime that is not Node, which writes what it is told. */
export class HttpTransport implements Transport {
  readonly name: string;
  readonly capabilities: Capabilities = CAPABILITIES;
  readonly #options: FilledPoolOptions;
  readonly #resolver: Resolver | undefined;
  readonly #counters: Counters = { created: 0, closed: 0, failed: 0, timedOut: 0, requests: 0 };
  readonly #pools: Map<string, Pool> = new Map();
  readonly #poolOf: WeakMap<Upstream, Pool> = new WeakMap();
  #tidyAt = MANY;
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
      if (this.#closed) throw new ProxyError("destination_unavailable", { message: CLOSED });
      new Exchange(hop, lifetime, resolve, reject).run(this.#pool(hop.upstream));
    });
  }

  async #sendUnframed(hop: Hop, unframed: UnframedBody, lifetime: Lifetime): Promise<Reply> {
    const aborted = new Promise<never>((_, reject) => (lifetime.onabort = reject));
    const body = await Promise.race([unframed.unlessEmpty(), aborted]);
    return this.send({ ...hop, body }, lifetime);
  }

  stats(): PoolStats {
    const origins = Array.from(this.#pools.values(), (pool) => [pool.name, pool.stats] as const);
    return { ...this.#counters, origins: Object.fromEntries(origins) };
  }

  async close(): Promise<void> {
    this.#closed = true;
    await Promise.all(Array.from(this.#pools.values(), (pool) => pool.close()));
  }

  destroy(): void {
    this.#closed = true;
    for (const pool of this.#pools.values()) pool.destroy();
  }

  #pool(upstream: Upstream): Pool {
    let pool = this.#poolOf.get(upstream);
    if (pool !== undefined && !pool.retired) return pool;
    // Connections are shared only where nothing of them differs (GHSA-v574-6498-x57v: keys that ran together).
    const key = JSON.stringify([upstream.origin, upstream.socketPath, upstream.tls]);
    pool = this.#pools.get(key);
    if (pool === undefined) {
      if (this.#pools.size >= this.#tidyAt) this.#tidy();
      pool = new Pool(upstream, this.#options, this.#resolver, this.#counters);
      this.#pools.set(key, pool);
    }
    this.#poolOf.set(upstream, pool);
    return pool;
  }

  /** Forgets the origins that have no connection: targets may be made of what clients send. */
  #tidy(): void {
    for (const [key, pool] of this.#pools) {
      if (!pool.isUnused) continue;
      pool.retired = true;
      this.#pools.delete(key);
    }
    this.#tidyAt = Math.max(MANY, 2 * this.#pools.size);
  }
}
