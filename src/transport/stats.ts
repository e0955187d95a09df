/** Statistics of a transport's connections, counted since the transport was created. */
export interface PoolStats {
  /** The number of connections that were opened. */
  readonly created: number;
  /** The number of connections that were closed, by either side. */
  readonly closed: number;
  /** The number of connections that could not be opened, or were no longer wanted before they were open. */
  readonly failed: number;
  /** The number of connections that were closed because they were idle for too long, or silent in use (`timeout`). */
  readonly timedOut: number;
  /** The number of requests that got a connection; each attempt counts. */
  readonly requests: number;
  /** The average number of requests per connection: `requests` divided by `created`. */
  readonly requestsPerSocket: number;
  /** The number of connections or HTTP/2 streams that have been switched to another protocol, such as a WebSocket. */
  readonly tunnels: number;
  /**
   * The maximum number of connections to one origin: the option `maxSockets`, or the default that the runtime has chosen.
   * Left out where Fetchway does not open the connections itself.
   */
  readonly maxSockets?: number;
  /** A number that increases with every change of the statistics. */
  readonly version: number;
  /** The present state of the connections, by origin. */
  readonly origins: Readonly<Record<string, OriginStats>>;
  /**
   * The state of each upstream, if the proxy's target has several, as with `balance`. Each call of `stats()` then returns a
   * new object, because these states change without a change of `version`.
   */
  readonly upstreams?: readonly UpstreamState[];
  /** The number of requests that wait for a place at one of several upstreams (`maxRequests`). */
  readonly waiting?: number | undefined;
  /** The number of requests that wait for an upstream to come back, with the option `wait`. */
  readonly held?: number;
}

/** The connections to one origin at this moment. */
export interface OriginStats {
  /** The number of connections that carry a request, or are being opened for one. */
  readonly inUse: number;
  /** The number of idle connections that are kept for reuse. */
  readonly free: number;
  /** The number of requests that wait for a connection. */
  readonly waiting: number;
  /** The number of tunnels. A connection that carries only tunnels does not count as `inUse`. */
  readonly tunnels: number;
}

/** The state of one upstream, for metrics and status pages. */
export interface UpstreamState {
  /** A text that identifies the upstream, such as `http://10.0.0.1:4000`. */
  readonly name: string;
  /**
   * The present weight of the upstream. In the state `starting`, it is lower than the weight that was set. An upstream with
   * the weight 2 gets about twice as many requests as one with the weight 1.
   */
  readonly weight: number;
  /** The number of requests that were sent to the upstream and are not over. */
  readonly active: number;
  /** The number of requests that wait for this upstream, and for no other. */
  readonly waiting: number;
  /** The number of attempts at the upstream since it was added, without active checks. */
  readonly requests: number;
  /**
   * The number of attempts at the upstream that got no response, a status of 500 or above, or a response that broke off.
   * An attempt that fails because of the client or the proxy does not count.
   */
  readonly failures: number;
  /**
   * `up`: it gets its share of the requests; `starting`: its share increases gradually; `half-open`: it was ejected,
   * and gets one request as a probe; `ejected`: it gets no requests for a while, because too many attempts at it have
   * failed; `down`: active checks have failed; `draining`: it is being removed.
   */
  readonly state: "up" | "starting" | "half-open" | "ejected" | "down" | "draining";
  /**
   * The reason for the last change between up, ejected and down, such as `5 failures in a row, last: connection_refused`;
   * undefined if there was none. A half-open upstream still has the reason of its ejection.
   */
  readonly reason?: string | undefined;
  /** The time of the last change between up, ejected and down, in milliseconds since 1970; undefined if there was none. */
  readonly since?: number | undefined;
}

/** The counters of a transport, for all origins together. Code that changes a counter must also increment `version`. */
export class Counters {
  created = 0;
  closed = 0;
  failed = 0;
  timedOut = 0;
  requests = 0;
  tunnels = 0;
  version = 0;
  readonly #maxSockets: number | undefined;
  #last: PoolStats | undefined;

  /** @param maxSockets the maximum number of connections to one origin */
  constructor(maxSockets?: number) {
    this.#maxSockets = maxSockets;
  }

  /**
   * Counts a connection that was opened.
   * @param isUsed whether a request is sent on it immediately
   */
  countOpened(isUsed: boolean): void {
    this.created++;
    if (isUsed) this.requests++;
    this.version++;
  }

  /** Returns the statistics. It returns the same object until `version` changes. */
  stats(origins: () => PoolStats["origins"]): PoolStats {
    const { created, closed, failed, timedOut, requests, tunnels, version } = this;
    if (this.#last?.version === version) return this.#last;
    const requestsPerSocket = created === 0 ? 0 : requests / created;
    this.#last = {
      created,
      closed,
      failed,
      timedOut,
      requests,
      requestsPerSocket,
      tunnels,
      ...(this.#maxSockets !== undefined && { maxSockets: this.#maxSockets }),
      version,
      origins: origins(),
    };
    return this.#last;
  }
}

/** Adds the statistics of a pool to those of its origin, because several pools can connect to the same origin. */
export function addOrigin(
  origins: Record<string, OriginStats>,
  name: string,
  { inUse, free, waiting, tunnels }: OriginStats,
): void {
  const before = origins[name] ?? { inUse: 0, free: 0, waiting: 0, tunnels: 0 };
  origins[name] = {
    inUse: before.inUse + inUse,
    free: before.free + free,
    waiting: before.waiting + waiting,
    tunnels: before.tunnels + tunnels,
  };
}
