import type { OriginStats, PoolStats } from "./transport.ts";

/** The counters of a transport, for all origins together. Code that changes a counter must also increment `version`. */
export class Counters {
  created = 0;
  closed = 0;
  failed = 0;
  timedOut = 0;
  requests = 0;
  tunnels = 0;
  version = 0;
  #last: PoolStats | undefined;

  /**
   * Counts a connection that was opened.
   * @param isUsed whether a request is sent on it immediately
   */
  countOpened(isUsed: boolean): void {
    this.created++;
    if (isUsed) this.requests++;
    this.version++;
  }

  /** Returns the statistics: the same object until something changes. */
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
      version,
      origins: origins(),
    };
    return this.#last;
  }
}

/** Adds the statistics of a pool to those of its origin: several pools can have the same origin, with different options. */
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
