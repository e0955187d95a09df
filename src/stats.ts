import type { OriginStats, PoolStats } from "./transport.ts";

/** What a transport counts over all origins; whoever changes something adds to `version`. */
export class Counters {
  created = 0;
  closed = 0;
  failed = 0;
  timedOut = 0;
  requests = 0;
  version = 0;
  #last: PoolStats | undefined;

  /** A connection was opened, and a request may have waited for it. */
  countOpened(isUsed: boolean): void {
    this.created++;
    if (isUsed) this.requests++;
    this.version++;
  }

  /** What is counted, and what there is by origin: the same object as long as nothing changes. */
  stats(origins: () => PoolStats["origins"]): PoolStats {
    const { created, closed, failed, timedOut, requests, version } = this;
    if (this.#last?.version === version) return this.#last;
    const requestsPerSocket = created === 0 ? 0 : requests / created;
    this.#last = {
      created,
      closed,
      failed,
      timedOut,
      requests,
      requestsPerSocket,
      version,
      origins: origins(),
    };
    return this.#last;
  }
}

/** Adds up what several pools say of one origin: they differ in more than their name. */
export function addOrigin(
  origins: Record<string, OriginStats>,
  name: string,
  { inUse, free, waiting }: OriginStats,
): void {
  const before = origins[name] ?? { inUse: 0, free: 0, waiting: 0 };
  origins[name] = {
    inUse: before.inUse + inUse,
    free: before.free + free,
    waiting: before.waiting + waiting,
  };
}
