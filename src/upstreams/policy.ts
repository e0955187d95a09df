import type { TargetAddress } from "../target/target.ts";
import type { PickRequest } from "./upstreams.ts";

/** One upstream of a balanced target, with the members that policies use. */
export interface Member {
  /** The target of the upstream, as the app has passed it. */
  readonly target: TargetAddress;
  /** A text that identifies the upstream, such as `http://10.0.0.1:4000`. */
  readonly name: string;
  /**
   * The upstream's share of the requests, relative to the weights of the other upstreams. During a slow start, it is less
   * than `share`.
   */
  readonly weight: number;
  /** The weight that was set for the upstream. */
  readonly share: number;
  /** The number of requests that were sent to the upstream and are not over. */
  readonly active: number;
}

/** All upstreams of a balanced target, including those that take no requests at present. */
export interface Group {
  /** All upstreams. */
  readonly members: readonly Member[];
  /** The sum of `active` of all upstreams. */
  readonly active: number;
  /** A number that changes when upstreams are added or removed, their weights are set, or active checks change a state. */
  readonly version: number;
  /** Whether all upstreams that get requests have the same weight at present. */
  readonly isUniform: boolean;
  /** The highest weight that is set for one of the upstreams. */
  readonly heaviest: number;
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
   * Returns one of the upstreams that can take the request. The method may be called again for the same attempt, if the
   * upstream that it has returned was already tried or has no free place.
   * @param able at least one upstream; the order stays the same until an upstream is added, removed or ejected, or returns
   */
  pick(able: readonly Member[], request: PickRequest, group: Group): Member;
  /**
   * Whether a request waits for the upstream that `pick` returns while that upstream has `maxRequests`, although another
   * upstream has a free place. False if left out.
   */
  readonly isSticky?: boolean | ((request: PickRequest) => boolean);
  /**
   * Whether the proxy sets a cookie (the option `cookie` of `balance`) that keeps the client at the upstream that answers this
   * request. A later request with that cookie goes to its upstream without calling `pick`, as long as the upstream takes
   * requests.
   */
  keepsClient?(request: PickRequest): boolean;
  /** Called for each response with a status below 500, with the milliseconds until its headers arrived. */
  observe?(member: Member, latency: number): void;
}

/** Whether a request waits for the upstream that a policy has picked. */
export function waits({ isSticky = false }: Policy, request: PickRequest): boolean {
  return typeof isSticky === "function" ? isSticky(request) : isSticky;
}

/** The clock and the random numbers that policies and health records use. Tests replace them. */
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

/** The number of draws after which the drawn upstream is accepted, whatever its weight is. */
const MAX_DRAWS = 64;

/**
 * Draws two different upstreams at random, by their weights, and returns the one with the lower cost. If both draws could
 * return the same upstream, one of three upstreams would get a ninth of the requests, however slow it is.
 */
export function pickCheaper(
  able: readonly Member[],
  { heaviest }: Group,
  { random }: Chance,
  costOf: (member: Member) => number,
): Member {
  const index = drawIndex(able, heaviest, random, Infinity);
  const one = able[index] as Member;
  if (able.length === 1) return one;
  const other = able[drawIndex(able, heaviest, random, index)] as Member;
  return costOf(other) < costOf(one) ? other : one;
}

/**
 * Draws an upstream other than the one with the index `except`. It accepts a drawn upstream with a probability that is
 * proportional to its weight, and otherwise draws again: the time for this does not depend on the number of upstreams.
 */
function drawIndex(
  able: readonly Member[],
  heaviest: number,
  random: Chance["random"],
  except: number,
): number {
  const count = except < able.length ? able.length - 1 : able.length;
  for (let draws = 1; ; draws++) {
    let index = Math.floor(random() * count);
    if (index >= except) index++;
    const { weight } = able[index] as Member;
    if (weight >= heaviest || draws === MAX_DRAWS || random() * heaviest < weight) return index;
  }
}
