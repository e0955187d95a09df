import type { TargetAddress } from "../request/target.ts";
import type { PickRequest } from "./upstreams.ts";

/** One upstream of a balanced target, as policies see it. */
export interface Member {
  readonly target: TargetAddress;
  /** A text that identifies the upstream, such as `http://10.0.0.1:4000`. */
  readonly name: string;
  /** Its share of the requests relative to the other upstreams; during a slow start, less than what was set. */
  readonly weight: number;
  /** The number of requests that were sent to it and are not over. */
  readonly active: number;
}

/** All upstreams of a balanced target, also those that take no requests at present. */
export interface Group {
  readonly members: readonly Member[];
  /** The number of requests that were sent to all of them and are not over. */
  readonly active: number;
  /** A number that changes when upstreams are added or removed, or their weights are set. */
  readonly version: number;
  /** Whether all upstreams have the same weight at present. */
  readonly isUniform: boolean;
}

/**
 * Chooses the upstream for an attempt.
 * @example
 * ```ts
 * const fewest: Policy = { pick: (able) => able.reduce((a, b) => (b.active < a.active ? b : a)) };
 * ```
 */
export interface Policy {
  /**
   * Returns one of the upstreams that can take the request.
   * @param able at least one upstream; the order stays the same as long as none is added, removed, ejected or returns
   */
  pick(able: readonly Member[], request: PickRequest, group: Group): Member;
  /** Takes the milliseconds that an upstream needed for its response headers. */
  observe?(member: Member, latency: number): void;
}

/** Where policies and health take time and chance from, so that tests can set both. */
export interface Chance {
  /** Returns the milliseconds on a clock that never goes back. */
  readonly now: () => number;
  /** Returns a number from 0 to below 1. */
  readonly random: () => number;
}

/** The clock and the random numbers of the runtime. */
export const realChance: Chance = {
  now: () => performance.now(),
  random: () => Math.random(),
};

/** Returns two different upstreams at random, by their weights; the same one twice if there is no other. */
export function pickTwo(
  able: readonly Member[],
  { isUniform }: Group,
  { random }: Chance,
): [Member, Member] {
  const { length } = able;
  if (isUniform) {
    const first = Math.floor(random() * length);
    if (length === 1) return [able[0] as Member, able[0] as Member];
    const second = (first + 1 + Math.floor(random() * (length - 1))) % length;
    return [able[first] as Member, able[second] as Member];
  }
  return [pickByWeight(able, random()), pickByWeight(able, random())];
}

function pickByWeight(able: readonly Member[], chance: number): Member {
  let left = chance * able.reduce((sum, { weight }) => sum + weight, 0);
  return able.find(({ weight }) => (left -= weight) < 0) ?? (able.at(-1) as Member);
}
