import process from "node:process";
import type { PoolStats, RequestEnd } from "#fetchway";
import type { Diagnosis } from "#fetchway/errors";
import type { ClientStats } from "../limits/clientconnections.ts";
import { diagnoseFailure, isClientGone, isClientSlow } from "../log/causes.ts";
import { type Condition, type ConditionFacts, describeCondition } from "./condition.ts";
import { Latencies, type Percentiles, Recent, sumOf, RECENT_SECONDS } from "./recent.ts";
import { RecentTraffic, Traffic, type TrafficReport } from "./traffic.ts";

/**
 * The limits on memory, and on the series of Prometheus. Upstreams, routes, series and protocols beyond them are counted
 * together as `OTHER`; the oldest failures and requests are dropped. A typical route has about ten series: one for each
 * combination of a method, a status and an error type.
 */
const MAX_UPSTREAMS = 50;
const MAX_ROUTES = 50;
const MAX_SERIES = 1000;
const MAX_FAILURES = 20;
const MAX_RECENT = 30;
const MAX_PROTOCOLS = 10;
export const OTHER = "other";
/** The name under which requests without a route are counted: those that match none, and those that Node's server refuses. */
export const NO_ROUTE = "no route";

/** The bounds of the histogram for Prometheus, in seconds, as OpenTelemetry recommends them for HTTP. */
export const BOUNDS: readonly number[] = [
  0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10,
];

/** The methods that have their own label, as in OpenTelemetry; the others are `_OTHER`. */
const METHODS = new Set("GET HEAD POST PUT DELETE OPTIONS TRACE PATCH QUERY CONNECT".split(" "));

interface SeriesLabels {
  readonly method: string;
  readonly status: number;
  readonly errorType: string | undefined;
  readonly route: string | undefined;
}

/** The counts of the requests with the same labels, since the start. */
export interface Series extends SeriesLabels {
  /** Whether this series counts all requests that have no separate series, because there are already `MAX_SERIES`. */
  readonly isOverflow: boolean;
  /** The number of requests in each bucket of `BOUNDS`, and in the bucket above the last bound. */
  readonly buckets: Float64Array;
  /** The total duration in seconds. */
  sum: number;
  count: number;
}

// ── the counters ──

/** The indexes of the counters in `Recent`, for all requests. */
const REQUESTS = 0;
const FAILED = 1;

/** The error type of a client that disconnected before its response was complete. */
const CLIENT_LEFT = "client_left";

/** The counters of one of several upstreams, as they were when the statistics were last read. */
interface AttemptCounters {
  requests: number;
  failures: number;
  readonly recent: RecentTraffic;
}

/** A kind of failure, as the page shows it. */
export interface SeenFailure {
  readonly code: string;
  readonly cause: string;
  readonly fix: string | undefined;
  readonly status: number;
  count: number;
  /** When a failure of this kind last occurred, by `readClock`. */
  at: number;
}

/** One of the last requests. The query is left out, because it may hold a secret. */
export interface SeenRequest {
  readonly id: number;
  /** When it ended, in milliseconds since 1970. */
  readonly time: number;
  /** When the request ended, by `readClock`. The requests of several workers are sorted by it. */
  readonly at: number;
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
  /** When the counting began, in milliseconds since 1970. */
  readonly startedAt: number;
  /** Milliseconds since the counting began. */
  readonly uptime: number;
  readonly memory: number;
  readonly workers: WorkersState | undefined;
  /** The connections of clients; undefined on Bun and Deno, whose servers do not show them. */
  readonly clients: ClientStats | undefined;
  readonly total: {
    requests: number;
    failed: number;
    bytesIn: number;
    bytesOut: number;
    tunnels: number;
    retries: number;
    /**
     * The number of ended requests that had waited for an upstream to come back (`wait`), and their waiting time in seconds.
     */
    held: number;
    heldSeconds: number;
  };
  readonly recent: {
    readonly seconds: number;
    readonly requests: readonly number[];
    readonly failed: readonly number[];
    /** Milliseconds until the response headers; undefined if there was no request. */
    readonly percentiles: Percentiles | undefined;
    /** Buckets of half an octave each: `[upper bound in milliseconds, requests]`. */
    readonly latencies: readonly (readonly [below: number, requests: number])[];
    readonly statuses: Readonly<Record<string, number>>;
  };
  readonly errors: Readonly<Record<string, number>>;
  /** The kinds of failures. `ago` is the time since the last failure of the kind, in milliseconds. */
  readonly failures: readonly (Omit<SeenFailure, "at"> & { readonly ago: number })[];
  readonly upstreams: readonly UpstreamRow[];
  readonly routes: readonly TrafficRow[];
  /**
   * The counters of the connections to upstreams, and the number of connections in each state now. `open` is the number of
   * open tunnels.
   */
  readonly connections:
    | (Omit<PoolStats, "origins" | "version" | "upstreams" | "waiting"> &
        Record<"inUse" | "free" | "waiting" | "open", number> & {
          /** The number of waiting requests that are not assigned to one of several upstreams yet. */
          readonly waitingForAny: number | undefined;
        })
    | undefined;
  readonly requests: readonly Omit<SeenRequest, "at">[];
}

/** The state of one route, or one upstream. */
export interface TrafficRow {
  readonly name: string;
  /**
   * The number of requests since the start. A single upstream counts each request that had its last attempt there; one of
   * several upstreams counts every attempt.
   */
  readonly requests: number;
  readonly failed: number;
  /** The requests of each second of the last minute, oldest first. */
  readonly recent: readonly number[];
  readonly recentFailed: number;
  /** The average time until the response headers in the last minute, in milliseconds. */
  readonly average: number | undefined;
  readonly condition: Condition;
}

/** The state of one upstream. */
export interface UpstreamRow extends TrafficRow {
  readonly inUse: number;
  readonly free: number;
  readonly waiting: number;
  readonly tunnels: number;
  /** The state of one of several upstreams: `up`, `ejected`, `down` and so on; undefined for a single upstream. */
  readonly health: string | undefined;
}

/** The workers of the command. */
export interface WorkersState {
  /** The number of workers that have started and are not retired. A hung worker counts until it is replaced. */
  readonly running: number;
  /** The number of replaced workers that still finish their requests and tunnels. */
  readonly retired: number;
  /** The number of processes that were started in place of one that had died or was hung. */
  readonly restarts: number;
  readonly pids: readonly number[];
}

/** The counts of a worker since its last report, as JSON. */
export interface MetricsReport {
  readonly total: Record<(typeof TOTALS)[number], number>;
  readonly statuses: readonly number[];
  readonly latencies: readonly (readonly [bucket: number, count: number])[];
  /** The longest latency in milliseconds. */
  readonly longest: number;
  readonly errors: readonly (readonly [name: string, count: number])[];
  readonly tunnels: readonly (readonly [name: string, count: number])[];
  readonly series: readonly (Omit<Series, "buckets"> & { readonly buckets: readonly number[] })[];
  readonly failures: readonly SeenFailure[];
  readonly upstreams: readonly TrafficReport[];
  readonly routes: readonly TrafficReport[];
  readonly requests: readonly SeenRequest[];
}

const TOTALS = [
  "requests",
  "failed",
  "bytesIn",
  "bytesOut",
  "retries",
  "held",
  "heldSeconds",
] as const;

/** The facts about the process, which do not change. */
export interface About {
  readonly version: string;
  readonly runtime: string;
}

/**
 * Counts requests, in bounded memory: at most 1000 series, 50 upstreams, 50 routes, 10 protocols and 20 kinds of failures. It
 * also keeps the last 30 requests, and the counts of each second of the last minute.
 */
export class Metrics {
  readonly #about: About;
  readonly #poolStats: () => PoolStats | undefined;
  /** Returns the counters of the clients' connections; undefined where the runtime does not show them. */
  clientStats: () => ClientStats | undefined = () => undefined;
  /** Returns bytes of memory and seconds of CPU time. */
  usage: () => { memory: number; cpu: number } = measureProcess;
  /** Returns the workers; undefined if the command has none. */
  describeWorkers: () => WorkersState | undefined = () => undefined;
  readonly startedAt: number = Date.now();
  readonly #began: number = readClock();
  readonly #startSecond: number;
  readonly series: Map<string, Series> = new Map();
  readonly errors: Map<string, number> = new Map();
  readonly tunnels: Map<string, number> = new Map();
  readonly upstreams: Map<string, Traffic> = new Map();
  readonly routes: Map<string, Traffic> = new Map();
  #attempts: ReadonlyMap<string, AttemptCounters> = new Map();
  /** The second in which the counters of the upstreams were last read. */
  #attemptsSecond: number;
  readonly #failures: Map<string, SeenFailure> = new Map();
  readonly #recent = new Recent(2);
  readonly #latencies = new Latencies();
  readonly #statuses = new Recent(6);
  readonly #requests: SeenRequest[] = [];
  requests = 0;
  failed = 0;
  bytesIn = 0;
  bytesOut = 0;
  retries = 0;
  held = 0;
  heldSeconds = 0;

  /** @param poolStats returns the statistics of the connections at this moment */
  constructor(
    about: About,
    poolStats: () => PoolStats | undefined,
    second: number = monotonicSecond(),
  ) {
    this.#about = about;
    this.#startSecond = second;
    this.#attemptsSecond = second;
    this.#poolStats = poolStats;
  }

  /** Returns the statistics of the connections at this moment. */
  get pool(): PoolStats | undefined {
    return this.#poolStats();
  }

  /**
   * Counts a request that has ended.
   * @param second the time by a clock that never goes back, unlike the system clock
   */
  record(end: RequestEnd, second: number = monotonicSecond()): void {
    const { status, protocol, error, timings } = end;
    if (second > this.#attemptsSecond) this.#countAttempts(second, this.#poolStats());
    const isClients = isClientGone(error) || isClientSlow(error);
    const isFailed = (error !== undefined && !isClients) || status >= 500;
    this.requests++;
    this.bytesIn += end.bytesIn ?? 0;
    this.bytesOut += end.bytesOut ?? 0;
    if (timings.held !== undefined) {
      this.held++;
      this.heldSeconds += timings.held / 1000;
    }
    if (end.attempts > 1) this.retries += end.attempts - 1;
    this.#recent.add(second, REQUESTS);
    this.#statuses.add(second, Math.min(Math.floor(status / 100), 5));
    if (isFailed) {
      this.failed++;
      this.#recent.add(second, FAILED);
    }
    const failure = error === undefined ? undefined : this.#countError(end);
    const code = failure?.code;
    const why = isFailed ? renderFailed(status, failure) : undefined;
    const route = nameOf(this.routes, end.route ?? NO_ROUTE, MAX_ROUTES);
    findTraffic(this.routes, route).record(end, second, why);
    if (protocol !== undefined && status === 101) {
      // The duration of a tunnel says nothing about how fast responses are.
      increase(this.tunnels, protocol, MAX_PROTOCOLS);
    } else {
      // Only the time until the response headers counts. The time of a body depends on the client, and an event stream may
      // last for hours.
      this.#latencies.add(second, timings.firstByte ?? timings.total);
      this.#countSeries(end, code, route === NO_ROUTE ? undefined : route);
    }
    if (end.upstream !== undefined) {
      const upstream = nameOf(this.upstreams, end.upstream, MAX_UPSTREAMS);
      findTraffic(this.upstreams, upstream).record(end, second, why);
    }
    this.#keepRequest(end, code);
  }

  /** Returns the state that `/stats` and the page show. */
  snapshot(second: number = monotonicSecond()): Snapshot {
    const now = readClock();
    const pool = this.#poolStats();
    this.#countAttempts(second, pool);
    return {
      ...this.#about,
      startedAt: this.startedAt,
      uptime: now - this.#began,
      memory: this.usage().memory,
      workers: this.describeWorkers(),
      clients: this.clientStats(),
      total: {
        requests: this.requests,
        failed: this.failed,
        bytesIn: this.bytesIn,
        bytesOut: this.bytesOut,
        tunnels: sumOf(this.tunnels.values()),
        retries: this.retries,
        held: this.held,
        heldSeconds: this.heldSeconds,
      },
      recent: {
        seconds: Math.min(RECENT_SECONDS, second - this.#startSecond + 1),
        requests: this.#recent.history(second, REQUESTS),
        failed: this.#recent.history(second, FAILED),
        percentiles: this.#latencies.percentiles(second),
        latencies: this.#latencies.bars(second),
        statuses: this.#recentStatuses(second),
      },
      errors: Object.fromEntries(this.errors),
      failures: Array.from(this.#failures.values(), ({ at, ...kind }) => ({
        ...kind,
        ago: now - at,
      })).toSorted((one, other) => other.count - one.count),
      upstreams: this.#describeUpstreams(second, pool),
      routes: Array.from(this.routes, ([name, traffic]) => describeTraffic(name, traffic, second)),
      connections: pool && toTotals(pool),
      requests: this.#requests.map(omitClock).toReversed(),
    };
  }

  /** Returns all counts, for a process that adds up the counts of several processes. */
  report(): MetricsReport {
    return {
      total: Object.fromEntries(TOTALS.map((name) => [name, this[name]])) as MetricsReport["total"],
      statuses: Array.from(this.#statuses.sum),
      latencies: this.#latencies.counts(),
      longest: this.#latencies.longest(monotonicSecond()),
      errors: [...this.errors],
      tunnels: [...this.tunnels],
      series: Array.from(this.series.values(), (each) => ({
        ...each,
        buckets: Array.from(each.buckets),
      })),
      failures: [...this.#failures.values()],
      upstreams: Array.from(this.upstreams, ([name, traffic]) => traffic.report(name)),
      routes: Array.from(this.routes, ([name, traffic]) => traffic.report(name)),
      requests: this.#requests,
    };
  }

  /** Adds the counts of another process, as counts of `second`. */
  add(report: MetricsReport, second: number = monotonicSecond()): void {
    const { total, statuses, latencies } = report;
    if (second > this.#attemptsSecond) this.#countAttempts(second, this.#poolStats());
    for (const name of TOTALS) this[name] += total[name];
    this.#recent.add(second, REQUESTS, total.requests);
    this.#recent.add(second, FAILED, total.failed);
    statuses.forEach((count, i) => this.#statuses.add(second, i, count));
    for (const [bucket, count] of latencies) this.#latencies.addTo(second, bucket, count);
    this.#latencies.addLongest(second, report.longest);
    for (const [name, count] of report.errors) increase(this.errors, name, Infinity, count);
    for (const [name, count] of report.tunnels) increase(this.tunnels, name, MAX_PROTOCOLS, count);
    for (const each of report.routes) {
      findTraffic(this.routes, nameOf(this.routes, each.name, MAX_ROUTES)).add(each, second);
    }
    for (const each of report.series) {
      const route = each.route && nameOf(this.routes, each.route, MAX_ROUTES);
      const series = this.#findSeries({ ...each, route }, each.isOverflow);
      each.buckets.forEach((count, i) => increaseAt(series.buckets, i, count));
      series.sum += each.sum;
      series.count += each.count;
    }
    for (const failure of report.failures) this.#addFailure(failure);
    for (const each of report.upstreams) {
      const upstream = nameOf(this.upstreams, each.name, MAX_UPSTREAMS);
      findTraffic(this.upstreams, upstream).add(each, second);
    }
    this.#requests.push(...report.requests);
    // The ids of different workers would repeat, so they are assigned again.
    this.#requests.sort((one, other) => one.at - other.at);
    this.#requests.splice(0, this.#requests.length - MAX_RECENT);
    this.#requests.forEach((each, i) => {
      this.#requests[i] = { ...each, id: this.requests - this.#requests.length + i + 1 };
    });
  }

  /** Counts the error of a request, and returns its code and fix. */
  #countError({ error, status }: RequestEnd): Seen {
    if (isClientGone(error)) {
      increase(this.errors, CLIENT_LEFT, Infinity);
      return { code: CLIENT_LEFT };
    }
    const failure = diagnoseFailure(error);
    increase(this.errors, failure.code, Infinity);
    this.#addFailure({ ...failure, status, count: 1, at: readClock() });
    return failure;
  }

  #addFailure(failure: SeenFailure): void {
    const key = `${failure.status} ${failure.code} ${failure.cause}`;
    const { count: before, at } = this.#failures.get(key) ?? { count: 0, at: failure.at };
    const count = before + failure.count;
    // The map is ordered by the last occurrence, so that the kind that has not occurred for longest is dropped.
    this.#failures.delete(key);
    // The reports of workers arrive in any order, so `at` may be older than the last occurrence.
    this.#failures.set(key, { ...failure, count, at: Math.max(at, failure.at) });
    if (this.#failures.size > MAX_FAILURES) {
      this.#failures.delete(this.#failures.keys().next().value as string);
    }
  }

  #countSeries(
    { method: given, status, timings }: RequestEnd,
    errorType: string | undefined,
    route: string | undefined,
  ): void {
    const method = METHODS.has(given) ? given : "_OTHER";
    const series = this.#findSeries({ method, status, errorType, route });
    const seconds = timings.total / 1000;
    const bucket = BOUNDS.findIndex((bound) => seconds <= bound);
    increaseAt(series.buckets, bucket === -1 ? BOUNDS.length : bucket, 1);
    series.sum += seconds;
    series.count++;
  }

  /** @param isOther whether another process has already counted the requests as `OTHER` */
  #findSeries({ method, status, errorType, route }: SeriesLabels, isOther = false): Series {
    const key = `${method} ${status} ${errorType ?? ""} ${route ?? ""}`;
    const isOverflow = isOther || (!this.series.has(key) && this.series.size >= MAX_SERIES);
    const found = isOverflow ? OTHER : key;
    let series = this.series.get(found);
    if (series === undefined) {
      const buckets = new Float64Array(BOUNDS.length + 1);
      series = { method, status, errorType, route, isOverflow, buckets, sum: 0, count: 0 };
      this.series.set(found, series);
    }
    return series;
  }

  /**
   * Reads the counters of targets with several upstreams. Their growth since the previous call is counted in the second of the
   * previous call. The counters are read because the end of a request reports only its last attempt.
   */
  #countAttempts(second: number, pool: PoolStats | undefined): void {
    const since = this.#attemptsSecond;
    this.#attemptsSecond = second;
    const attempts = new Map<string, AttemptCounters>();
    // Count also the upstreams of removed routes (weight 0): if one is added again, its earlier attempts are not recent.
    for (const each of pool?.upstreams?.slice(0, MAX_UPSTREAMS) ?? []) {
      const { name, requests, failures } = each;
      const before = this.#attempts.get(name);
      const recent = before?.recent ?? new RecentTraffic();
      // The counters start again from 0 if the configuration has changed.
      const isContinued = before !== undefined && before.requests <= requests;
      if (second - since < RECENT_SECONDS) {
        recent.add(since, [
          requests - (isContinued ? before.requests : 0),
          failures - (isContinued ? before.failures : 0),
        ]);
      }
      attempts.set(name, { requests, failures, recent });
    }
    this.#attempts = attempts;
  }

  #keepRequest(end: RequestEnd, code: string | undefined): void {
    const { method, path, upstream, status, timings, bytesOut, protocol, clientAddress } = end;
    if (this.#requests.length >= MAX_RECENT) this.#requests.shift();
    this.#requests.push({
      id: this.requests,
      time: end.startedAt + timings.total,
      at: readClock(),
      client: clientAddress,
      method: method.slice(0, 20),
      path: (path.split("?", 1)[0] as string).slice(0, 200),
      upstream,
      status,
      ms: Math.round(timings.total * 10) / 10,
      bytes: bytesOut,
      protocol,
      code,
    });
  }

  #recentStatuses(second: number): Record<string, number> {
    this.#statuses.advance(second);
    const names = ["1xx", "2xx", "3xx", "4xx", "5xx"];
    return Object.fromEntries(names.map((name, i) => [name, this.#statuses.sum[i + 1] as number]));
  }

  #describeUpstreams(second: number, pool: PoolStats | undefined): UpstreamRow[] {
    const origins = pool?.origins ?? {};
    const live = new Map(
      pool?.upstreams?.flatMap((each) => (each.weight > 0 ? [[each.name, each]] : [])),
    );
    const names = new Set([...this.upstreams.keys(), ...Object.keys(origins), ...live.keys()]);
    return [...names].slice(0, MAX_UPSTREAMS + 1).map((name) => {
      const health = live.get(name);
      const { inUse = 0, free = 0, waiting = 0, tunnels = 0 } = origins[name] ?? {};
      const [traffic, attempts] = [this.upstreams.get(name), this.#attempts.get(name)];
      return Object.assign(describeTraffic(name, traffic, second, attempts, health), {
        inUse,
        free,
        waiting: waiting + (health?.waiting ?? 0),
        tunnels,
        health: health?.state,
      });
    });
  }
}

/** The code of a failed request's error, and what the operator can do. */
type Seen =
  | Pick<Diagnosis, "code" | "fix">
  | { readonly code: typeof CLIENT_LEFT; readonly fix?: undefined };

function renderFailed(status: number, failure: Seen | undefined): string {
  if (failure === undefined) return `status ${status}`;
  const { code, fix } = failure;
  return fix === undefined ? code : `${code} (${fix})`;
}

/**
 * Describes a route or an upstream.
 * @param attempts given for one of several upstreams: in this case, all counts of the row are numbers of attempts, because the
 * end of a request reports only its last attempt. The average and the last failure still come from the ends of requests
 */
function describeTraffic(
  name: string,
  traffic: Traffic | undefined,
  second: number,
  attempts?: AttemptCounters,
  health?: ConditionFacts["health"],
): TrafficRow {
  traffic?.recent.advance(second);
  const counted = attempts?.recent ?? traffic?.recent ?? new RecentTraffic();
  counted.advance(second);
  const { requests, failed, troubledSince } = counted;
  const { lastFailure } = traffic ?? {};
  return {
    name,
    requests: attempts?.requests ?? traffic?.requests ?? 0,
    failed: attempts?.failures ?? traffic?.failed ?? 0,
    recent: counted.history(second),
    recentFailed: failed,
    average: traffic?.recent.average,
    condition: describeCondition({ requests, failed, troubledSince, lastFailure, health }),
  };
}

/** Returns the name under which requests are counted: `OTHER` for a new name if there are `max` names already. */
function nameOf(counted: ReadonlyMap<string, unknown>, name: string, max: number): string {
  return counted.has(name) || counted.size < max ? name : OTHER;
}

function findTraffic(all: Map<string, Traffic>, name: string): Traffic {
  const found = all.get(name) ?? new Traffic();
  all.set(name, found);
  return found;
}

/**
 * Returns milliseconds of a clock that never goes back, unlike the system time. All processes of a machine share this clock:
 * `process.hrtime` reads the monotonic clock of the system, while `performance.now()` counts from the start of each process.
 */
function readClock(): number {
  const [seconds, nanoseconds] = process.hrtime();
  return seconds * 1000 + nanoseconds / 1e6;
}

function omitClock(request: SeenRequest): Omit<SeenRequest, "at"> {
  const { at: _, ...shown } = request;
  return shown;
}

function monotonicSecond(): number {
  return Math.floor(performance.now() / 1000);
}

/** Increases a counter. If there are `max` names already, a new name is counted as `OTHER`. */
function increase(counters: Map<string, number>, name: string, max: number, by = 1): void {
  const key = nameOf(counters, name, max);
  counters.set(key, (counters.get(key) ?? 0) + by);
}

function increaseAt(counters: Float64Array, index: number, by: number): void {
  counters[index] = (counters[index] as number) + by;
}

function measureProcess(): { memory: number; cpu: number } {
  const { user, system } = process.cpuUsage();
  return { memory: process.memoryUsage().rss, cpu: (user + system) / 1e6 };
}

function toTotals(pool: PoolStats): Snapshot["connections"] {
  const { origins, version: _, upstreams, waiting: queued, ...counters } = pool;
  const totals = { inUse: 0, free: 0, waiting: 0, open: 0 };
  for (const { inUse, free, waiting, tunnels } of Object.values(origins)) {
    totals.inUse += inUse;
    totals.free += free;
    totals.waiting += waiting;
    totals.open += tunnels;
  }
  totals.waiting += queued ?? 0;
  const bound = upstreams?.reduce((sum, { waiting }) => sum + waiting, 0) ?? 0;
  return { ...counters, ...totals, waitingForAny: queued && queued - bound };
}
