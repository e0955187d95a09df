import type { RequestEnd } from "#fetchway";
import { Trouble } from "./condition.ts";
import { Recent, roundToThree } from "./recent.ts";

/** The indexes of the counters in `Recent`. */
const REQUESTS = 0;
const FAILED = 1;
/** The sum of the times until the response headers, in tenths of a millisecond. */
const TIME = 2;
/** The number of requests whose times are in `TIME`: all but tunnels. */
const TIMED = 3;

/** The requests of an upstream or a route since the last report of a worker, as JSON. */
export interface TrafficReport {
  readonly name: string;
  readonly requests: number;
  readonly failed: number;
  /** The counts by the indexes `REQUESTS`, `FAILED`, `TIME` and `TIMED`. */
  readonly recent: readonly number[];
  readonly lastFailure: string | undefined;
}

/** Requests and failures of the last minute, and since when too many of them fail. */
export class RecentTraffic {
  readonly #recent = new Recent(4);
  readonly #trouble = new Trouble();
  #second = 0;

  /** Adds counts. Their order is that of the indexes `REQUESTS`, `FAILED`, `TIME` and `TIMED`. */
  add(second: number, counts: readonly number[]): void {
    if (second > this.#second) this.advance(second);
    for (let i = 0; i < counts.length; i++) {
      const count = counts[i] as number;
      if (count > 0) this.#recent.add(second, i, count);
    }
    this.#trouble.update(this);
  }

  /** Drops the counts of the seconds that are a minute or more before `second`. */
  advance(second: number): void {
    this.#second = second;
    this.#recent.advance(second);
    this.#trouble.update(this);
  }

  get counts(): readonly number[] {
    return Array.from(this.#recent.sum);
  }

  get requests(): number {
    return this.#recent.sum[REQUESTS] as number;
  }

  get failed(): number {
    return this.#recent.sum[FAILED] as number;
  }

  /** The average time until the response headers, in milliseconds. */
  get average(): number | undefined {
    const count = this.#recent.sum[TIMED] as number;
    return count === 0 ? undefined : roundToThree((this.#recent.sum[TIME] as number) / 10 / count);
  }

  get troubledSince(): number | undefined {
    return this.#trouble.since;
  }

  /** Returns the requests of each second of the minute up to `second`, oldest first. */
  history(second: number): number[] {
    return this.#recent.history(second, REQUESTS);
  }
}

/** The requests of one upstream, or of one route. */
export class Traffic {
  requests = 0;
  failed = 0;
  readonly recent: RecentTraffic = new RecentTraffic();
  /** Why the last failed request has failed, such as `connection_refused (is it running?)`. */
  lastFailure: string | undefined;

  /** @param failure why the request failed; undefined if it succeeded */
  record({ status, timings }: RequestEnd, second: number, failure: string | undefined): void {
    const isTunnel = status === 101;
    const time = isTunnel ? 0 : Math.round((timings.firstByte ?? timings.total) * 10);
    this.recent.add(second, [1, failure === undefined ? 0 : 1, time, isTunnel ? 0 : 1]);
    this.requests++;
    if (failure === undefined) return;
    this.failed++;
    this.lastFailure = failure;
  }

  report(name: string): TrafficReport {
    const { requests, failed, recent, lastFailure } = this;
    return { name, requests, failed, recent: recent.counts, lastFailure };
  }

  /** Adds the counts of another process. */
  add({ requests, failed, recent, lastFailure }: TrafficReport, second: number): void {
    this.requests += requests;
    this.failed += failed;
    this.recent.add(second, recent);
    this.lastFailure = lastFailure ?? this.lastFailure;
  }
}
