import type { Scope } from "../scope.ts";
import {
  closeWithin,
  type FilledPoolOptions,
  fillPoolOptions,
  poolClosed,
  type PoolOptions,
} from "../pool.ts";
import { addOrigin, Counters } from "../stats.ts";
import type { Upstream } from "../target.ts";
import type {
  Capabilities,
  UpstreamRequest,
  OriginStats,
  PoolStats,
  UpstreamResponse,
  Transport,
} from "../transport.ts";
import { Attempt, type Memory as ChunkMemory } from "./attempt.ts";
import { type Codec, portableCodec } from "./codec.ts";
import type { Connector } from "./connector.ts";
import { toDestination } from "./destination.ts";
import { IdleList } from "./idle.ts";
import { Pool } from "./originpool.ts";
import { later } from "./times.ts";

const CAPABILITIES: Capabilities = { decodes: [], host: true, unixSocket: true, tls: true };

/** How long origins without connections are remembered: targets may be made of what clients send. */
interface Memory {
  /** With more of them than so many, no longer. */
  readonly origins: number;
  /** Milliseconds; left out where a timer would hold the process. */
  readonly time?: number;
}

/** Where a timer would hold the process. */
const UNTIMED: Memory = { origins: 100 };

/** What a runtime hands in. */
export interface ClientParts {
  /** Makes what connects, with the pool's options. */
  readonly createConnector: (options: FilledPoolOptions) => Connector;
  /** The portable one if left out. */
  readonly codec?: Codec;
  readonly memory?: Memory;
  /** How chunks of bodies share memory. */
  readonly chunks?: ChunkMemory | undefined;
}

/** An HTTP/1.1 client on the connections of a runtime, with a pool of connections to each origin. */
export class HttpTransport implements Transport {
  readonly name: string;
  readonly capabilities: Capabilities = CAPABILITIES;
  readonly #chunks: ChunkMemory | undefined;
  readonly #options: FilledPoolOptions;
  readonly #memory: Memory;
  readonly #connector: Connector;
  readonly #codec: Codec;
  readonly #counters: Counters = new Counters();
  readonly #idle: IdleList;
  readonly #pools: Map<string, Pool> = new Map();
  /** Upstreams are parsed once and shared: most requests find their pool by identity. */
  readonly #poolOf: WeakMap<Upstream, Pool> = new WeakMap();
  #limit: number;
  #sweep: ReturnType<typeof setTimeout> | undefined;
  #closed = false;

  constructor(name: string, options: PoolOptions, parts: ClientParts) {
    this.name = name;
    this.#chunks = parts.chunks;
    this.#codec = parts.codec ?? portableCodec;
    this.#options = fillPoolOptions(options);
    this.#memory = parts.memory ?? UNTIMED;
    this.#limit = this.#memory.origins;
    this.#idle = new IdleList(this.#options.maxTotalFreeSockets);
    this.#connector = parts.createConnector(this.#options);
  }

  send(request: UpstreamRequest, scope: Scope): Promise<UpstreamResponse> {
    return new Promise((resolve, reject) => {
      const attempt = new Attempt(request, scope, resolve, reject, this.#chunks);
      this.run(attempt, this.#poolFor(request.upstream), request);
    });
  }

  /** When an attempt is started. */
  protected run(attempt: Attempt, pool: Pool, _hop: UpstreamRequest): void {
    attempt.run(pool);
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
      this.#end();
      return Promise.all(Array.from(this.#pools.values(), (pool) => pool.close()));
    };
    await closeWithin(timeout, closing, () => this.destroy());
  }

  destroy(): void {
    this.#end();
    for (const pool of this.#pools.values()) pool.destroy();
  }

  /**
   * The pool for an upstream.
   * @throws ProxyError for one that is new when the transport has been closed
   */
  #poolFor(upstream: Upstream): Pool {
    let pool = this.#poolOf.get(upstream);
    if (pool !== undefined && !pool.evicted) return pool;
    const destination = toDestination(upstream, this.#options);
    // Connections are shared only where nothing of them differs (GHSA-v574-6498-x57v: keys that ran together).
    const key = JSON.stringify([destination.origin, destination.socketPath, destination.tls]);
    pool = this.#pools.get(key);
    if (pool === undefined) {
      if (this.#closed) throw poolClosed();
      if (this.#pools.size >= this.#limit) this.#evict((each) => each.empty);
      pool = new Pool(destination, this.#options, {
        counters: this.#counters,
        idle: this.#idle,
        connector: this.#connector,
        codec: this.#codec,
      });
      this.#pools.set(key, pool);
      this.#armSweep();
    }
    this.#poolOf.set(upstream, pool);
    return pool;
  }

  #armSweep(): void {
    const { time } = this.#memory;
    if (time === undefined) return;
    this.#sweep ??= later(() => {
      this.#sweep = undefined;
      this.#evict((each) => each.wasEmpty());
      // A timer would keep all this in memory although nobody uses it any more.
      if (this.#pools.size > 0) this.#armSweep();
    }, time);
  }

  #evict(dispensable: (pool: Pool) => boolean): void {
    for (const [key, pool] of this.#pools) {
      if (!dispensable(pool)) continue;
      pool.evicted = true;
      this.#pools.delete(key);
    }
    this.#counters.version++;
    // Where most are in use, not with each that is new.
    this.#limit = Math.max(this.#memory.origins, 2 * this.#pools.size);
  }

  #end(): void {
    this.#closed = true;
    clearTimeout(this.#sweep);
  }
}
