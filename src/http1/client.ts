import type { Scope } from "../exchange/scope.ts";
import {
  closeWithin,
  type FilledPoolOptions,
  fillPoolOptions,
  poolClosed,
  type PoolOptions,
} from "../options/pool.ts";
import { addOrigin, Counters } from "../counters.ts";
import type { Upstream } from "../request/target.ts";
import type {
  Capabilities,
  UpstreamRequest,
  OriginStats,
  PoolStats,
  UpstreamResponse,
  Transport,
} from "../transport.ts";
import { Attempt, type ChunkMemory } from "./attempt.ts";
import { type Codec, portableCodec } from "./codec.ts";
import type { Connector, Destination } from "./connector.ts";
import { IdleList, OriginPool } from "./originpool.ts";
import { startBackgroundTimer } from "./timers.ts";

const CAPABILITIES: Capabilities = {
  decodes: [],
  host: true,
  unixSocket: true,
  tls: true,
  upgrade: true,
};

/** When the pools of unused origins are removed: clients may decide how many targets there are. */
interface EvictionLimits {
  /** The number of pools above which empty pools are removed. */
  readonly origins: number;
  /** Milliseconds between removals of unused pools; undefined on runtimes whose timers keep the process alive. */
  readonly interval?: number;
}

/** The limits for a runtime whose timers keep the process alive: empty pools are removed by number only. */
const UNTIMED: EvictionLimits = { origins: 100 };

/** The parts of the client that come from a runtime. */
export interface ClientParts {
  /** Makes the connector, with the pool's options. */
  readonly createConnector: (options: FilledPoolOptions) => Connector;
  /** The codec of the runtime; the portable one by default. */
  readonly codec?: Codec;
  /** When unused pools are removed. */
  readonly eviction?: EvictionLimits;
  /**
   * Calls `attempt.begin(pool)` later, when a small body has arrived, or when the runtime has noticed which connections the
   * upstream has closed. A GET or HEAD without a body does not wait. Every attempt begins at once if this is left out.
   */
  readonly schedule?: (attempt: Attempt, pool: OriginPool) => void;
  /** How chunks of bodies share memory with later chunks. */
  readonly chunkMemory?: ChunkMemory | undefined;
}

/** An HTTP/1.1 client on the connections of a runtime, with a pool of connections to each origin. */
export class HttpTransport implements Transport {
  readonly name: string;
  readonly capabilities: Capabilities = CAPABILITIES;
  readonly #chunkMemory: ChunkMemory | undefined;
  readonly #options: FilledPoolOptions;
  readonly #eviction: EvictionLimits;
  readonly #connector: Connector;
  readonly #schedule: ClientParts["schedule"];
  readonly #codec: Codec;
  readonly #counters: Counters = new Counters();
  readonly #idleList: IdleList;
  readonly #pools: Map<string, OriginPool> = new Map();
  /** The pools by upstream. An upstream is parsed once and shared, so most requests find their pool by identity. */
  readonly #poolOf: WeakMap<Upstream, OriginPool> = new WeakMap();
  /** The number of pools above which empty pools are removed. */
  #limit: number;
  #evictionTimer: ReturnType<typeof setTimeout> | undefined;
  #isClosed = false;

  constructor(name: string, options: PoolOptions, parts: ClientParts) {
    this.name = name;
    this.#chunkMemory = parts.chunkMemory;
    this.#schedule = parts.schedule;
    this.#codec = parts.codec ?? portableCodec;
    this.#options = fillPoolOptions(options);
    this.#eviction = parts.eviction ?? UNTIMED;
    this.#limit = this.#eviction.origins;
    this.#idleList = new IdleList(this.#options.maxTotalFreeSockets);
    this.#connector = parts.createConnector(this.#options);
  }

  send(request: UpstreamRequest, scope: Scope): Promise<UpstreamResponse> {
    return new Promise((resolve, reject) => {
      const attempt = new Attempt(request, scope, resolve, reject, this.#chunkMemory);
      const pool = this.#poolFor(request.upstream);
      const { method, body } = request;
      const mayWait = body !== null || (method !== "GET" && method !== "HEAD");
      if (mayWait && this.#schedule !== undefined) this.#schedule(attempt, pool);
      else attempt.begin(pool);
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
      this.#refuseNew();
      return Promise.all(Array.from(this.#pools.values(), (pool) => pool.close(timeout === 0)));
    };
    await closeWithin(timeout, closing, () => this.destroy());
  }

  destroy(): void {
    this.#refuseNew();
    for (const pool of this.#pools.values()) pool.destroy();
  }

  /**
   * Returns the pool for an upstream.
   * @throws ProxyError for a new upstream if the transport has been closed
   */
  #poolFor(upstream: Upstream): OriginPool {
    let pool = this.#poolOf.get(upstream);
    if (pool !== undefined && !pool.isEvicted) return pool;
    const destination = toDestination(upstream, this.#options);
    // Only equal destinations share connections. JSON keeps the parts of the key apart (GHSA-v574-6498-x57v).
    const key = JSON.stringify([destination.origin, destination.socketPath, destination.tls]);
    pool = this.#pools.get(key);
    if (pool === undefined) {
      if (this.#isClosed) throw poolClosed();
      if (this.#pools.size >= this.#limit) this.#evict((each) => each.isEmpty);
      pool = new OriginPool(destination, this.#options, {
        counters: this.#counters,
        idleList: this.#idleList,
        connector: this.#connector,
        codec: this.#codec,
      });
      this.#pools.set(key, pool);
      this.#armEviction();
    }
    this.#poolOf.set(upstream, pool);
    return pool;
  }

  #armEviction(): void {
    const { interval } = this.#eviction;
    if (interval === undefined) return;
    this.#evictionTimer ??= startBackgroundTimer(() => {
      this.#evictionTimer = undefined;
      this.#evict((each) => each.checkUnused());
      // Without pools there is no timer, because a timer would keep an unused transport in memory.
      if (this.#pools.size > 0) this.#armEviction();
    }, interval);
  }

  #evict(isUnused: (pool: OriginPool) => boolean): void {
    for (const [key, pool] of this.#pools) {
      if (!isUnused(pool)) continue;
      pool.isEvicted = true;
      this.#pools.delete(key);
    }
    this.#counters.version++;
    // If most pools are in use, evict again when their number has doubled, not with each new pool.
    this.#limit = Math.max(this.#eviction.origins, 2 * this.#pools.size);
  }

  #refuseNew(): void {
    this.#isClosed = true;
    clearTimeout(this.#evictionTimer);
  }
}

/** Returns the destination of an upstream, with the pool's options where the target has none. */
function toDestination(upstream: Upstream, options: FilledPoolOptions): Destination {
  const { origin, hostname, secure } = upstream;
  const tls = secure ? (upstream.tls ?? options.tls) : undefined;
  return { origin, hostname, secure, socketPath: upstream.socketPath ?? options.socketPath, tls };
}
