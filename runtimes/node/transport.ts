import type { Lifetime } from "../../src/deadline.ts";
import type { PoolOptions } from "../../src/pool.ts";
import type { Upstream } from "../../src/target.ts";
import type {
  Capabilities,
  Hop,
  OriginStats,
  PoolStats,
  Reply,
  Transport,
} from "../../src/transport.ts";
import { Exchange } from "./exchange.ts";
import { type Counters, OriginPool } from "./pool.ts";
import { IncomingBody } from "./upload.ts";

const CAPABILITIES: Capabilities = { decodes: [], host: true, unixSocket: true, tls: true };

/** Bytes that Node's server takes in before it stops reading. */
const SMALL = 65_536;

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
  readonly #options: PoolOptions;
  readonly #counters: Counters = { created: 0, closed: 0, failed: 0, requests: 0 };
  readonly #pools: Map<string, OriginPool> = new Map();
  /** Upstreams are parsed once and shared: most requests find their pool by identity. */
  readonly #poolOf: WeakMap<Upstream, OriginPool> = new WeakMap();

  constructor(options: PoolOptions) {
    this.#options = options;
  }

  send(hop: Hop, lifetime: Lifetime): Promise<Reply> {
    return new Promise((resolve, reject) => {
      const pool = this.#pool(hop.upstream);
      const exchange = new Exchange(hop, lifetime, pool, resolve, reject);
      // A small body is in the same packet as its head, but parsed after the handler
      // has run: by the check phase it is here, and goes out in one write with the head.
      if (hop.body instanceof IncomingBody && (hop.contentLength ?? 0) <= SMALL) {
        setImmediate(runUnlessAborted, pool, exchange);
      } else pool.run(exchange);
    });
  }

  stats(): PoolStats {
    const origins: Record<string, OriginStats> = {};
    for (const pool of this.#pools.values()) origins[pool.name] = pool.stats;
    return { ...this.#counters, origins };
  }

  async close(): Promise<void> {
    await Promise.all(Array.from(this.#pools.values(), (pool) => pool.close()));
  }

  #pool(upstream: Upstream): OriginPool {
    let pool = this.#poolOf.get(upstream);
    if (pool !== undefined) return pool;
    // Connections are shared only where nothing of them differs (GHSA-v574-6498-x57v: keys that ran together).
    const key = JSON.stringify([upstream.origin, upstream.socketPath, upstream.tls]);
    pool = this.#pools.get(key);
    if (pool === undefined) {
      pool = new OriginPool(upstream, this.#options, this.#counters);
      this.#pools.set(key, pool);
    }
    this.#poolOf.set(upstream, pool);
    return pool;
  }
}
