import type { Scope } from "../exchange/scope.ts";
import { closeWithin, poolClosed } from "../closing.ts";
import {
  type FilledPoolOptions,
  fillPoolOptions,
  type PoolOptions,
} from "../options/pooloptions.ts";
import { addOrigin, Counters } from "../stats.ts";
import type { Upstream } from "../request/target.ts";
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

/** How long the pools of origins without connections are kept: clients may decide how many targets there are. */
interface Memory {
  /** The number of pools above which empty pools are evicted. */
  readonly origins: number;
  /** Milliseconds between evictions of unused pools; left out where such a timer would keep the process alive. */
  readonly time?: number;
}

/** For a runtime whose timers keep the process alive: empty pools are evicted by number only. */
const UNTIMED: Memory = { origins: 100 };

/** What a runtime passes to the client. */
export interface ClientParts {
  /** Makes the connector, with the pool's options. */
  readonly createConnector: (options: FilledPoolOptions) => Connector;
  /** The codec of the runtime; the portable one if left out. */
  readonly codec?: Codec;
  /** How long empty pools are kept. */
  readonly memory?: Memory;
  /** Calls `attempt.run(pool)`, now or later; now if left out. */
  readonly schedule?: (attempt: Attempt, pool: Pool, request: UpstreamRequest) => void;
  /** How chunks of bodies share memory with later chunks. */
  readonly chunks?: ChunkMemory | undefined;
}

function runNow(attempt: Attempt, pool: Pool): void {
  attempt.run(pool);
}

/** An HTTP/1.1 client on the connections of a runtime, with a pool of connections to each origin. */
export class HttpTransport implements Transport {
  readonly name: string;
  readonly capabilities: Capabilities = CAPABILITIES;
  readonly #chunks: ChunkMemory | undefined;
  readonly #options: FilledPoolOptions;
  readonly #memory: Memory;
  readonly #connector: Connector;
  readonly #schedule: NonNullable<ClientParts["schedule"]>;
  readonly #codec: Codec;
  readonly #counters: Counters = new Counters();
  readonly #idle: IdleList;
  readonly #pools: Map<string, Pool> = new Map();
  /** The pools by upstream. An upstream is parsed once and shared, so most requests find their pool by identity. */
  readonly #poolOf: WeakMap<Upstream, Pool> = new WeakMap();
  #limit: number;
  #sweep: ReturnType<typeof setTimeout> | undefined;
  #closed = false;

  constructor(name: string, options: PoolOptions, parts: ClientParts) {
    this.name = name;
    this.#chunks = parts.chunks;
    this.#schedule = parts.schedule ?? runNow;
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
      this.#schedule(attempt, this.#poolFor(request.upstream), request);
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
   * Returns the pool for an upstream.
   * @throws ProxyError for a new upstream if the transport has been closed
   */
  #poolFor(upstream: Upstream): Pool {
    let pool = this.#poolOf.get(upstream);
    if (pool !== undefined && !pool.evicted) return pool;
    const destination = toDestination(upstream, this.#options);
    // Only equal destinations share connections. JSON keeps the parts of the key apart (GHSA-v574-6498-x57v).
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
      // Without pools there is no timer, because a timer would keep an unused transport in memory.
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
    // If most pools are in use, evict again when their number has doubled, not with each new pool.
    this.#limit = Math.max(this.#memory.origins, 2 * this.#pools.size);
  }

  #end(): void {
    this.#closed = true;
    clearTimeout(this.#sweep);
  }
}
