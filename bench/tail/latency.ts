/** The arithmetic of latency at a fixed rate. */
import { median, ratios, spread } from "../statistics.ts";

export interface PaceSettings {
  readonly port: number;
  readonly path: string;
  readonly connections: number;
  /** Requests per second. */
  readonly rate: number;
  /** Seconds of load before the measurement. */
  readonly lead: number;
  /** Seconds of measured load. */
  readonly seconds: number;
  /** Seconds to wait for the last responses. */
  readonly patience: number;
}

/** The report of a load generator. All times are in µs. */
export interface Pace {
  /** The time from when each request was due until its response was complete, or until the end of the run. */
  readonly latencies: readonly number[];
  /** The time from when each request could be sent (it was due, and a connection was idle) until the generator sent it. */
  readonly lateness: readonly number[];
  /** The delay with which each timer of 1 ms fired, in a thread of the generator that does nothing else. */
  readonly hiccups: readonly number[];
  /** The number of requests without a response at the end of the run. */
  readonly unanswered: number;
  /** Why a response was not 200 and complete; empty if all were. */
  readonly failure: string;
}

/** The figures of one round. All times are in ms. */
export interface PacedRound {
  /** The share of the requests that were answered by the end of the schedule. */
  readonly answered: number;
  readonly p50: number;
  readonly p90: number;
  readonly p99: number;
  readonly p999: number;
  readonly longest: number;
  /** The 99th percentile of the generator's own lateness. */
  readonly late: number;
  /** The maximum of `Pace.hiccups`: how late the timer of 1 ms was at most. */
  readonly hiccup: number;
  /** CPU time of the proxy in seconds, for all `requests` together. */
  readonly cpu: number;
  readonly requests: number;
}

/** A contestant that has answered a smaller share of the requests in time does not keep the rate. */
const KEPT = 0.98;

/** Returns when a request is due, in ms after the start: the rate alone decides, not the responses. */
export function dueAt(index: number, rate: number): number {
  return (index / rate) * 1000;
}

/** Returns the smallest value that this share of all values does not exceed (the nearest rank). */
export function percentile(sorted: ArrayLike<number>, part: number): number {
  const rank = Math.ceil(part * sorted.length);
  return sorted[Math.max(0, rank - 1)] ?? Number.NaN;
}

/** Returns the share of the requests that were answered by the end of the schedule, when one more request would be due. */
export function answeredInTime(latencies: readonly number[], rate: number): number {
  const end = dueAt(latencies.length, rate) * 1000;
  const inTime = latencies.filter((latency, i) => dueAt(i, rate) * 1000 + latency <= end);
  return inTime.length / latencies.length;
}

/** Returns a percentile of times in µs, in ms. */
function toPercentile(times: readonly number[], part: number): number {
  return percentile(Float64Array.from(times).toSorted(), part) / 1000;
}

/** Reduces the report of the load generator to the figures of a round. */
export function toRound(pace: Pace, rate: number, cpu: number): PacedRound {
  const { latencies, lateness, hiccups } = pace;
  return {
    answered: answeredInTime(latencies, rate),
    p50: toPercentile(latencies, 0.5),
    p90: toPercentile(latencies, 0.9),
    p99: toPercentile(latencies, 0.99),
    p999: toPercentile(latencies, 0.999),
    longest: toPercentile(latencies, 1),
    late: toPercentile(lateness, 0.99),
    hiccup: toPercentile(hiccups, 1),
    cpu,
    requests: latencies.length,
  };
}

function sumOf(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0);
}

/** The median of the rounds, and their spread: half the distance between the quartiles, or null after a single round. */
export type Middle = readonly [median: number, spread: number | null];

/** The figures of a contestant at a rate: medians over its rounds, in ms. */
export interface Latency {
  readonly p50: Middle;
  readonly p90: number;
  readonly p99: Middle;
  readonly p999: number;
  /** The longest latency of all rounds. */
  readonly longest: number;
  readonly late: number;
  readonly hiccup: number;
  /** CPU time of the proxy per request in µs. */
  readonly cpu: number;
}

function toMiddle(values: readonly number[]): Middle {
  const noise = spread(values);
  return [toShort(median(values)), Number.isNaN(noise) ? null : toShort(noise)];
}

/** Rounds to three significant digits, which is more than a repetition would confirm. */
function toShort(value: number): number {
  return Number(value.toPrecision(3));
}

/** Combines rounds. Returns a reason instead if the contestant did not keep the rate in most of them. */
export function combineRounds(rounds: readonly PacedRound[]): Latency | string {
  const of = (what: keyof PacedRound): number[] => rounds.map((round) => round[what]);
  const kept = median(of("answered"));
  if (kept < KEPT) return `does not keep the rate: ${(100 * kept).toFixed(0)} % answered in time`;
  return {
    p50: toMiddle(of("p50")),
    p90: toShort(median(of("p90"))),
    p99: toMiddle(of("p99")),
    p999: toShort(median(of("p999"))),
    longest: toShort(Math.max(...of("longest"))),
    late: toShort(median(of("late"))),
    hiccup: toShort(median(of("hiccup"))),
    cpu: toShort((sumOf(of("cpu")) / sumOf(of("requests"))) * 1e6),
  };
}

/**
 * Returns the ratio of a percentile to that of another contestant, and the spread of the ratio. The compared rounds ran one
 * after the other.
 */
export function compareRounds(
  rounds: readonly PacedRound[],
  base: readonly PacedRound[],
  what: "p50" | "p99",
): Middle {
  const of = (all: readonly PacedRound[]): number[] => all.map((round) => round[what]);
  return toMiddle(ratios(of(rounds), of(base)));
}
