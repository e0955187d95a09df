import type { Lifetime } from "../../src/deadline.ts";
import { ProxyError } from "../../src/error.ts";
import type { PoolOptions } from "../../src/pool.ts";
import type { Upstream } from "../../src/target.ts";
import type { Capabilities, Hop, PoolStats, Reply, Transport } from "../../src/transport.ts";
import { toNetworkError } from "../node/errors.ts";
import { Exchange } from "./exchange.ts";
import { type Counters, Pool } from "./pool.ts";
import { UnframedBody } from "./unframed.ts";

const CAPABILITIES: Capabilities = { decodes: [], host: true, unixSocket: true, tls: true };

/** Connections through the `node:http` client of a runtime that is not Node, which writes what it is told. */
export class HttpTransport implements Transport {
  readonly name: string;
  readonly capabilities: Capabilities = CAPABILITIES;
  readonly #options: PoolOptions;
  readonly #counters: Counters = { created: 0, closed: 0, failed: 0, requests: 0 };
  readonly #pools: Map<string, Pool> = new Map();
  readonly #poolOf: WeakMap<Upstream, Pool> = new WeakMap();
  #closed = false;

  constructor(name: string, options: PoolOptions) {
    this.name = name;
    this.#options = options;
  }

  send(hop: Hop, lifetime: Lifetime): Promise<Reply> {
    if (hop.body instanceof UnframedBody) return this.#sendUnframed(hop, hop.body, lifetime);
    return new Promise((resolve, reject) => {
      if (this.#closed)
        throw new ProxyError("destination_unavailable", { message: "the proxy has been closed" });
      try {
        new Exchange(hop, lifetime, this.#pool(hop.upstream), resolve, reject);
      } catch (thrown) {
        // A field that nobody can send.
        throw toNetworkError(thrown, false);
      }
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

  #pool(upstream: Upstream): Pool {
    let pool = this.#poolOf.get(upstream);
    if (pool !== undefined) return pool;
    // Connections are shared only where nothing of them differs (GHSA-v574-6498-x57v: keys that ran together).
    const key = JSON.stringify([upstream.origin, upstream.socketPath, upstream.tls]);
    pool = this.#pools.get(key) ?? new Pool(upstream, this.#options, this.#counters);
    this.#pools.set(key, pool);
    this.#poolOf.set(upstream, pool);
    return pool;
  }
}
