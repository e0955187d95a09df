import { ProxyError } from "../error.ts";
import {
  type FilledPoolOptions,
  fillPoolOptions,
  type PoolOptions,
} from "../options/pooloptions.ts";
import type { Upstream } from "../target/target.ts";
import { isPlain } from "../target/sameoptions.ts";
import { closeWithin, poolClosed } from "../transport/closing.ts";
import type { UpstreamRequest, UpstreamResponse } from "../transport/message.ts";
import { ownTransports, type Capabilities, type Transport } from "../transport/port.ts";
import { RunningExchanges, type Scope } from "../transport/scope.ts";
import { addOrigin, Counters, type OriginStats, type PoolStats } from "../transport/stats.ts";
import { startBackgroundTimer } from "../transport/timers.ts";
import { Attempt } from "./attempt.ts";
import type { ChunkMemory } from "./writebody.ts";
import type { Codec } from "./codec.ts";
import type { Connector, Destination } from "./connector.ts";
import { OriginPool } from "./originpool.ts";
import { type BeginLater, IdleList, type Pool, type PoolParts } from "./pool.ts";

const CAPABILITIES: Capabilities = {
  decodes: [],
  host: true,
  unixSocket: true,
  tls: true,
  upgrade: true,
  http2: true,
  address: true,
};

const NO_HTTP2 = "this transport was made without an HTTP/2 client";

/**
 * When there are this many pools, the empty ones are removed before another pool is created. Clients that choose the target
 * could otherwise create any number of pools.
 */
const MAX_POOLS = 1000;
/** Milliseconds between removals of unused pools. */
const EVICTION_INTERVAL = 60_000;

/** The arguments of one attempt: the request, its scope, and the two functions of the promise for its response. */
export type AttemptArguments = [
  request: UpstreamRequest,
  scope: Scope,
  resolve: (response: UpstreamResponse) => void,
  reject: (error: ProxyError) => void,
];

/** The connections to one origin that carry several requests at the same time. */
export type SharedPool = Pool & {
  /** Sends a request, as soon as a connection has room for it. */
  send(...attempt: AttemptArguments): void;
};

/** The parts of the HTTP/1.1 client that an HTTP/2 client of the same transport uses. */
export interface SharedParts extends PoolParts {
  readonly beginLater: BeginLater | undefined;
  /**
   * Makes the pool for those requests of an HTTP/2 pool that must be sent over HTTP/1.1.
   * @param connector opens the connections of the pool
   */
  createHttp1Pool(connector: Connector): OriginPool;
  /** Sends a request over HTTP/1.1 that has waited for `beginLater`, if it had to (`mustWait`). */
  sendOverHttp1(pool: OriginPool, ...attempt: AttemptArguments): void;
}

/** An HTTP/2 client. */
export interface Http2Client {
  createHttp2Pool(
    destination: Destination,
    options: FilledPoolOptions,
    parts: SharedParts,
  ): SharedPool;
}

/** The parts of the transport that come from a runtime. */
export interface ClientParts {
  /** Makes the connector, with the pool's options. */
  readonly createConnector: (options: FilledPoolOptions) => Connector;
  readonly codec: Codec;
  /**
   * Calls `pool.begin(attempt)` later: by then, a small request body has arrived, and the runtime has noticed which idle
   * connections the upstream has closed. A GET or HEAD without a body begins immediately. If `schedule` is not set, every
   * attempt begins immediately.
   */
  readonly schedule?: BeginLater;
  /** Which chunks of bodies are freed once they are sent; none by default. */
  readonly chunkMemory?: ChunkMemory | undefined;
  /** Loads the HTTP/2 client, where the runtime has one; called when the first request asks for HTTP/2. */
  readonly loadHttp2?: () => Promise<Http2Client>;
}

/**
 * A transport that sends requests over the sockets of a runtime: by HTTP/1.1, or by HTTP/2 with the client that `loadHttp2`
 * loads. Each destination has a pool of connections.
 */
export class HttpTransport implements Transport {
  readonly name: string;
  readonly capabilities: Capabilities = CAPABILITIES;
  readonly running: RunningExchanges = new RunningExchanges();
  readonly #chunkMemory: ChunkMemory | undefined;
  readonly #options: FilledPoolOptions;
  readonly #connector: Connector;
  readonly #schedule: ClientParts["schedule"];
  readonly #codec: Codec;
  readonly #counters: Counters;
  readonly #idleList: IdleList;
  readonly #pools: Map<string, Pool> = new Map();
  /** The pools by upstream. An upstream is parsed once and shared, so most requests find their pool by identity. */
  readonly #poolOf: WeakMap<Upstream, OriginPool> = new WeakMap();
  readonly #http2PoolOf: WeakMap<Upstream, SharedPool> = new WeakMap();
  readonly #loadHttp2: ClientParts["loadHttp2"];
  /** The HTTP/2 client, once it is loaded. */
  #http2: Http2Client | undefined;
  /** The number of pools at which the empty ones are removed; above `MAX_POOLS` while most pools are in use. */
  #limit = MAX_POOLS;
  #evictionTimer: ReturnType<typeof setTimeout> | undefined;
  #isClosed = false;

  constructor(name: string, options: PoolOptions, parts: ClientParts) {
    this.name = name;
    this.#chunkMemory = parts.chunkMemory;
    this.#schedule = parts.schedule;
    this.#codec = parts.codec;
    this.#loadHttp2 = parts.loadHttp2;
    this.#options = fillPoolOptions(options);
    this.#counters = new Counters(this.#options.maxSockets);
    this.#idleList = new IdleList(this.#options.maxTotalFreeSockets);
    this.#connector = parts.createConnector(this.#options);
    ownTransports.add(this);
  }

  send(request: UpstreamRequest, scope: Scope): Promise<UpstreamResponse> {
    if (!this.running.admits(scope)) {
      scope.end();
      return Promise.reject(poolClosed());
    }
    const { upstream } = request;
    const isHttp2 = upstream.http2 ?? this.#options.http2;
    const { upgrade = "websocket" } = request;
    // HTTP/2 has no `Upgrade` (RFC 9113 §8.6), so upgrades use HTTP/1.1, except WebSockets (RFC 8441).
    if (isHttp2 && upgrade === "websocket") return this.#sendOverHttp2(request, scope);
    return new Promise((resolve, reject) => {
      const attempt = new Attempt(request, scope, resolve, reject, this.#chunkMemory);
      this.#begin(attempt, this.#poolFor(upstream), request);
    });
  }

  #sendOverHttp2(request: UpstreamRequest, scope: Scope): Promise<UpstreamResponse> {
    const client = this.#http2;
    // Load the client only once: an `import()` takes time even if the module is already loaded.
    if (client === undefined) return this.#loadAndSend(request, scope);
    return new Promise((resolve, reject) => {
      this.#http2PoolFor(request.upstream, client).send(request, scope, resolve, reject);
    });
  }

  async #loadAndSend(request: UpstreamRequest, scope: Scope): Promise<UpstreamResponse> {
    this.#http2 = await this.#loadHttp2?.();
    if (this.#http2 === undefined) {
      throw new ProxyError("proxy_internal_error", { message: NO_HTTP2 });
    }
    return this.#sendOverHttp2(request, scope);
  }

  #begin(attempt: Attempt, pool: OriginPool, request: UpstreamRequest): void {
    pool.accept(attempt, mustWait(request) ? this.#schedule : undefined);
  }

  async resolve(hostname: string): Promise<readonly string[]> {
    const found = (await this.#connector.resolve?.(hostname)) ?? [];
    return found.map(({ address }) => address);
  }

  checkTarget(upstream: Upstream): void {
    this.#connector.checkTarget?.(upstream);
  }

  stats(): PoolStats {
    return this.#counters.stats(() => {
      const origins: Record<string, OriginStats> = {};
      for (const pool of this.#pools.values()) addOrigin(origins, pool.name, pool.stats);
      return origins;
    });
  }

  async close(timeout = 0): Promise<void> {
    const closing = async (): Promise<unknown> => {
      await this.running.close();
      this.#refuseNew();
      return Promise.all(Array.from(this.#pools.values(), (pool) => pool.close(timeout === 0)));
    };
    await closeWithin(timeout, closing, () => this.destroy());
  }

  destroy(): void {
    this.running.destroy();
    this.#refuseNew();
    for (const pool of this.#pools.values()) pool.destroy();
  }

  /**
   * Returns the pool for an upstream.
   * @throws ProxyError for a new upstream if the transport has been closed
   */
  #poolFor(upstream: Upstream): OriginPool {
    const pool = this.#poolOf.get(upstream);
    return pool === undefined || pool.isEvicted ? this.#addPoolFor(upstream) : pool;
  }

  #addPoolFor(upstream: Upstream): OriginPool {
    const destination = toDestination(upstream, this.#options);
    const create = (): OriginPool => this.#createHttp1Pool(destination, this.#connector);
    const pool = this.#findPool(destination, create);
    this.#poolOf.set(upstream, pool);
    return pool;
  }

  #http2PoolFor(upstream: Upstream, client: Http2Client): SharedPool {
    const pool = this.#http2PoolOf.get(upstream);
    return pool === undefined || pool.isEvicted ? this.#addHttp2PoolFor(upstream, client) : pool;
  }

  #addHttp2PoolFor(upstream: Upstream, client: Http2Client): SharedPool {
    const destination = toDestination(upstream, this.#options);
    const shared = { ...destination, http2: true };
    const pool = this.#findPool(shared, () =>
      client.createHttp2Pool(shared, this.#options, {
        counters: this.#counters,
        idleList: this.#idleList,
        connector: this.#connector,
        beginLater: this.#schedule,
        createHttp1Pool: (connector) => this.#createHttp1Pool(destination, connector),
        sendOverHttp1: (http1, request, ...rest) => {
          new Attempt(request, ...rest, this.#chunkMemory).begin(http1);
        },
      }),
    );
    this.#http2PoolOf.set(upstream, pool);
    return pool;
  }

  /**
   * Returns the pool for a destination, or creates it. All upstreams with an equal destination share the pool. A destination
   * with `http2` has a different pool than one without, and `create` must create a pool of the matching kind.
   */
  #findPool<P extends Pool>(destination: Destination, create: () => P): P {
    const { origin, socketPath, address, tls, http2 = false } = destination;
    // Only equal destinations share connections. JSON separates the parts of the key, so that different destinations
    // never have the same key (GHSA-v574-6498-x57v).
    const key = JSON.stringify([origin, socketPath, address, tls, http2], nameIdentity);
    let pool = this.#pools.get(key);
    if (pool === undefined) {
      if (this.#isClosed) throw poolClosed();
      if (this.#pools.size >= this.#limit) this.#evict((each) => each.isEmpty);
      pool = create();
      this.#pools.set(key, pool);
      this.#armEviction();
    }
    return pool as P;
  }

  #createHttp1Pool(destination: Destination, connector: Connector): OriginPool {
    const parts = { counters: this.#counters, idleList: this.#idleList, connector };
    return new OriginPool(destination, this.#options, parts, this.#codec);
  }

  #armEviction(): void {
    this.#evictionTimer ??= startBackgroundTimer(() => {
      this.#evictionTimer = undefined;
      this.#evict((each) => each.checkUnused());
      // Start no timer while there are no pools, because a timer would keep an unused transport in memory.
      if (this.#pools.size > 0) this.#armEviction();
    }, EVICTION_INTERVAL);
  }

  #evict(isUnused: (pool: Pool) => boolean): void {
    for (const [key, pool] of this.#pools) {
      if (!isUnused(pool)) continue;
      pool.isEvicted = true;
      this.#pools.delete(key);
    }
    this.#counters.version++;
    // If most pools are in use, evict again when their number has doubled, not with each new pool.
    this.#limit = Math.max(MAX_POOLS, 2 * this.#pools.size);
  }

  #refuseNew(): void {
    this.#isClosed = true;
    clearTimeout(this.#evictionTimer);
  }
}

/** Returns whether the attempt for a request begins with `ClientParts.schedule`. */
export function mustWait({ method, body }: UpstreamRequest): boolean {
  return body !== null || (method !== "GET" && method !== "HEAD");
}

/** A number for each function and each class instance in a destination, such as `checkServerIdentity` in `tls`. */
const identities = new WeakMap<object, number>();
let lastIdentity = 0;

/**
 * Returns a text for a function or a class instance, which `JSON.stringify` would leave out, or write as `{}`. Otherwise, a
 * target with its own check of the certificate could reuse the connections of a target without that check.
 */
function nameIdentity(_name: string, value: unknown): unknown {
  const isObject = typeof value === "object" && value !== null;
  if (typeof value !== "function" && !isObject) return value;
  if (isPlain(value) || ArrayBuffer.isView(value)) return value;
  let identity = identities.get(value);
  if (identity === undefined) identities.set(value, (identity = ++lastIdentity));
  return `\0${identity}`;
}

/** Returns the destination of an upstream. The pool's `socketPath` and `tls` apply where the target sets none. */
function toDestination(upstream: Upstream, options: FilledPoolOptions): Destination {
  const { origin, hostname, secure, address } = upstream;
  const tls = secure ? (upstream.tls ?? options.tls) : undefined;
  const socketPath = upstream.socketPath ?? options.socketPath;
  return { origin, hostname, secure, socketPath, address, tls };
}
