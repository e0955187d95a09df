/** Measures what the choice of an upstream costs by the number of upstreams, without a network. */
import {
  consistentHash,
  byUri,
  type BalanceOptions,
  balance,
} from "../../src/upstreams/balance.ts";
import type { TargetAddress } from "../../src/target/target.ts";
import type { PickRequest, Result } from "../../src/upstreams/upstreams.ts";
import { median } from "../statistics.ts";

export const COUNTS: readonly number[] = [3, 100, 10_000];

interface Choosing {
  readonly title: string;
  readonly options: BalanceOptions;
  /** Whether each third upstream has three times the weight. */
  readonly isWeighted?: boolean;
}

const CHOOSINGS: readonly Choosing[] = [
  { title: "`least_conn`, the default", options: {} },
  { title: "`least_conn`, with weights", options: {}, isWeighted: true },
  { title: "`peak_ewma`", options: { policy: "peak_ewma" } },
  { title: "`round_robin`", options: { policy: "round_robin" } },
  {
    title: "`round_robin`, with weights",
    options: { policy: "round_robin" },
    isWeighted: true,
  },
  { title: "`ip_hash`", options: { policy: "ip_hash" } },
  { title: "`uri`", options: { policy: "uri" } },
  {
    title: "`consistentHash(byUri, { sticky: true })`",
    options: { policy: consistentHash(byUri, { sticky: true }) },
  },
  { title: "`first`", options: { policy: "first" } },
];

/** The number of requests that are not over at any time, as with a load over as many connections. */
const ACTIVE = 64;
/** The number of choices between two looks at the clock. */
const BATCH = 1000;

/** What one choice costs. */
export interface ChoiceCost {
  readonly title: string;
  /** Nanoseconds of a choice and of the report of its result, for each of `COUNTS`. */
  readonly choice: readonly number[];
  /** The same with a second choice for each request, elsewhere than the first. */
  readonly retry: readonly number[];
}

/** @param time milliseconds for each figure */
export function measureChoices(time: number): ChoiceCost[] {
  return CHOOSINGS.map((choosing) => ({
    title: choosing.title,
    choice: COUNTS.map((count) => measureOne(choosing, count, time, false)),
    retry: COUNTS.map((count) => measureOne(choosing, count, time, true)),
  }));
}

/** Returns the milliseconds that it takes to make one target of `count` upstreams. */
export function measureStart(count: number): number {
  const began = performance.now();
  balance(targetsOf(count, false));
  return performance.now() - began;
}

function targetsOf(count: number, isWeighted: boolean): { target: string; weight: number }[] {
  return Array.from({ length: count }, (_, i) => ({
    target: `http://10.${i >> 16}.${(i >> 8) & 255}.${i & 255}:4000`,
    weight: isWeighted && i % 3 === 0 ? 3 : 1,
  }));
}

function measureOne(
  { options, isWeighted = false }: Choosing,
  count: number,
  time: number,
  isRetry: boolean,
): number {
  const group = balance(targetsOf(count, isWeighted), options);
  const running: Result[] = [];
  let n = 0;
  const pick = (request: PickRequest, tried: readonly TargetAddress[]): Result => {
    const target = group.pick(request, tried);
    if (target === undefined || target instanceof Promise) throw new Error("no upstream was free");
    return { target, request, status: 200, error: undefined, latency: 1, isOver: true };
  };
  const choose = (): void => {
    // Different clients and paths, so that hashes differ.
    const request: PickRequest = {
      method: "GET",
      path: `/items/${n % 5000}`,
      headers: [],
      clientAddress: `192.0.2.${n % 250}`,
    };
    const at = n++ % ACTIVE;
    const ended = running[at];
    if (ended !== undefined) group.report(ended);
    const first = pick(request, []);
    if (isRetry) group.report(first);
    running[at] = isRetry ? pick(request, [first.target]) : first;
  };
  for (let i = 0; i < 20 * BATCH; i++) choose();
  const batches: number[] = [];
  const until = performance.now() + time;
  for (let now = performance.now(); now < until;) {
    for (let i = 0; i < BATCH; i++) choose();
    const then = performance.now();
    batches.push(((then - now) * 1e6) / BATCH);
    now = then;
  }
  group.close();
  return median(batches);
}
