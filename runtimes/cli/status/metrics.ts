import type { PoolStats } from "#proxy";
import { explainFailure, isClientGone } from "../log/causes.ts";
import type { RequestEnd } from "../requestend.ts";

/** The number of seconds that the page shows. */
export const WINDOW = 60;
/** The bounds on memory: what is beyond them is counted together, under `OTHER`. */
const MOST_UPSTREAMS = 50;
const MOST_SERIES = 400;
const MOST_FAILURES = 20;
const MOST_RECENT = 50;
const MOST_PROTOCOLS = 10;
export const OTHER = "other";

/** The bounds of the histogram for Prometheus in seconds: those that OpenTelemetry recommends for HTTP. */
export const BOUNDS: readonly number[] = [
  0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10,
];

/** The methods that have a label of their own, as in OpenTelemetry; the others are `_OTHER`. */
const METHODS = new Set(
  "GET HEAD POST PUT DELETE OPTIONS TRACE PATCH QUERY CONNECT".split(" "),
);

/** The requests with the same labels, since the start. */
export interface Series {
  readonly method: string;
  readonly status: number;
  readonly errorType: string | undefined;
  /** Whether this series has the requests for which there is no room. */
  readonly isOverflow: boolean;
  /** The number of requests in each bucket of `BOUNDS`, and in the one above all. */
  readonly buckets: Uint32Array;
  /** Seconds. */
  sum: number;
  count: number;
}

// ── latencies of the last minute ──

/** Eight buckets to an octave from 1/16 ms: their width is 9 % of the value. */
const STEPS = 8;
const LOWEST = -4;
const OCTAVES = 24;
const FINE = STEPS * OCTAVES;

function toBucket(milliseconds: number): number {
  const bucket = Math.floor((Math.log2(milliseconds) - LOWEST) * STEPS);
  return bucket > 0 ? Math.min(bucket, FINE - 1) : 0;
}

/** Returns the upper bound of a bucket in milliseconds. */
function boundOf(bucket: number): number {
  return 2 ** ((bucket + 1) / STEPS + LOWEST);
}

/** Counters of the last minute, one set for each second. */
class Recent {
  readonly #slots: readonly Uint32Array[];
  #second = 0;
  readonly sum: Uint32Array;

  constructor(size: number) {
    this.#slots = Array.from({ length: WINDOW }, () => new Uint32Array(size));
    this.sum = new Uint32Array(size);
  }

  add(second: number, index: number, amount = 1): void {
    this.advance(second);
    const slot = this.#slots[second % WINDOW] as Uint32Array;
    slot[index] = (slot[index] as number) + amount;
    this.sum[index] = (this.sum[index] as number) + amount;
  }

  /** Drops the seconds that are older than a minute. */
  advance(second: number): void {
    const from = Math.max(this.#second + 1, second - WINDOW + 1);
    for (let each = from; each <= second; each++) {
      const slot = this.#slots[each % WINDOW] as Uint32Array;
      for (let i = 0; i < slot.length; i++) this.sum[i] = (this.sum[i] as number) - (slot[i] as number);
      slot.fill(0);
    }
    if (second > this.#second) this.#second = second;
  }

  /** Returns one counter, for each second of the last minute up to this one, oldest first. */
  history(second: number, index: number): number[] {
    this.advance(second);
    return Array.from(
      { length: WINDOW },
      (_, i) => (this.#slots[(second + 1 + i) % WINDOW] as Uint32Array)[index] as number,
    );
  }
}

// ── the counters ──

/** The indexes of the counters in `Recent`, for all requests and for each upstream. */
const REQUESTS = 0;
const FAILED = 1;
/** Tenths of a millisecond. */
const TIME = 2;

interface UpstreamCounters {
  requests: number;
  failed: number;
  readonly recent: Recent;
}

/** A kind of failure, as the page shows it. */
export interface SeenFailure {
  readonly code: string;
  readonly cause: string;
  readonly fix: string | undefined;
  readonly status: number;
  count: number;
  last: number;
}

/** One of the last requests. The query is left out, because it may hold a secret. */
export interface SeenRequest {
  readonly id: number;
  readonly time: number;
  readonly client: string | undefined;
  readonly method: string;
  readonly path: string;
  readonly upstream: string | undefined;
  readonly status: number;
  readonly ms: number;
  readonly bytes: number | undefined;
  readonly protocol: string | undefined;
  readonly code: string | undefined;
}

/** The state that `/stats` and the page show. */
export interface Snapshot {
  readonly version: string;
  readonly runtime: string;
  /** Milliseconds since 1970, when the counting began and now. */
  readonly startedAt: number;
  readonly now: number;
  readonly memory: number;
  readonly total: { requests: number; failed: number; bytesIn: number; bytesOut: number; tunnels: number; retries: number };
  readonly recent: {
    readonly seconds: number;
    readonly requests: readonly number[];
    readonly failed: readonly number[];
    /** Milliseconds; undefined if there was no request. */
    readonly percentiles: Readonly<Record<"p50" | "p90" | "p99" | "max", number>> | undefined;
    /** Buckets of doubling bounds: `[milliseconds, requests]`. */
    readonly latencies: readonly (readonly [below: number, requests: number])[];
    readonly statuses: Readonly<Record<string, number>>;
  };
  readonly errors: Readonly<Record<string, number>>;
  readonly failures: readonly SeenFailure[];
  readonly upstreams: readonly UpstreamState[];
  readonly connections: Omit<PoolStats, "origins" | "version"> | undefined;
  readonly requests: readonly SeenRequest[];
}

/** The state of one upstream. */
export interface UpstreamState {
  readonly name: string;
  readonly requests: number;
  readonly failed: number;
  readonly recent: readonly number[];
  readonly recentFailed: number;
  /** The average of the last minute in milliseconds. */
  readonly average: number | undefined;
  readonly inUse: number;
  readonly free: number;
  readonly waiting: number;
  readonly tunnels: number;
}

/** The facts about the process, which do not change. */
export interface About {
  readonly version: string;
  readonly runtime: string;
}

/** Counts requests, in bounded memory: 400 series, 50 upstreams, 20 kinds of failures, 50 requests, one minute. */
export class Metrics {
  readonly #about: About;
  readonly #poolStats: () => PoolStats | undefined;
  readonly startedAt: number = Date.now();
  readonly series: Map<string, Series> = new Map();
  readonly errors: Map<string, number> = new Map();
  readonly tunnels: Map<string, number> = new Map();
  readonly upstreams: Map<string, UpstreamCounters> = new Map();
  readonly #failures: Map<string, SeenFailure> = new Map();
  readonly #recent = new Recent(2);
  readonly #latencies = new Recent(FINE);
  readonly #statuses = new Recent(6);
  readonly #requests: SeenRequest[] = [];
  requests = 0;
  failed = 0;
  bytesIn = 0;
  bytesOut = 0;
  retries = 0;

  /** @param poolStats returns the statistics of the connections at this moment */
  constructor(about: About, poolStats: () => PoolStats | undefined) {
    this.#about = about;
    this.#poolStats = poolStats;
  }

  /** Returns the statistics of the connections at this moment. */
  get pool(): PoolStats | undefined {
    return this.#poolStats();
  }

  /** Counts a request that has ended. */
  record(end: RequestEnd): void {
    const { status, protocol, error, timings, startedAt } = end;
    const second = Math.floor((startedAt + timings.total) / 1000);
    const isFailed = (error !== undefined && !isClientGone(error)) || status >= 500;
    this.requests++;
    this.bytesIn += end.bytesIn;
    this.bytesOut += end.bytesOut ?? 0;
    if (end.attempts > 1) this.retries += end.attempts - 1;
    this.#recent.add(second, REQUESTS);
    this.#statuses.add(second, Math.min(Math.floor(status / 100), 5));
    if (isFailed) {
      this.failed++;
      this.#recent.add(second, FAILED);
    }
    const code = error === undefined ? undefined : this.#countError(end);
    if (protocol !== undefined && status === 101) {
      // A tunnel lasts for hours, which says nothing about how fast responses are.
      increase(this.tunnels, protocol, MOST_PROTOCOLS);
    } else {
      this.#latencies.add(second, toBucket(timings.total));
      this.#findSeries(end, code).count++;
    }
    this.#countUpstream(end, second, isFailed);
    this.#keep(end, code);
  }
}
