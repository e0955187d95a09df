import type { TargetAddress } from "../target/target.ts";
import type { PickRequest } from "./upstreams.ts";

/** One upstream of a balanced target, with the members that policies use. */
export interface Member {
  /** The upstream, as the app has named it. */
  readonly target: TargetAddress;
  /** A text that identifies the upstream, such as `http://10.0.0.1:4000`. */
  readonly name: string;
  /** Its share of the requests relative to the other upstreams; during a slow start, less than `share`. */
  readonly weight: number;
  /** The weight that was set for it. */
  readonly share: number;
  /** The number of requests that were sent to it and are not over. */
  readonly active: number;
}

/** All upstreams of a balanced target, also those that take no requests at present. */
export interface Group {
  /** All upstreams. */
  readonly members: readonly Member[];
  /** The number of requests that were sent to all of them and are not over. */
  readonly active: number;
  /** A number that changes when upstreams are added or removed, or their weights are set. */
  readonly version: number;
  /** Whether all upstreams have the same weight at present. */
  readonly isUniform: boolean;
  /** The highest weight. */
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
   * Returns one of the upstreams that can take the request. It may be called again for the same attempt, if the upstream that
   * it has returned was tried already or has no place.
   * @param able at least one upstream; the order stays the same as long as none is added, removed, ejected or returns
   */
  pick(able: readonly Member[], request: PickRequest, group: Group): Member;
  /**
   * Whether a request waits for the upstream that `pick` returns while that upstream has `maxRequests`, although another
   * upstream has a free place. False if left out.
   */
  readonly isSticky?: boolean | ((request: PickRequest) => boolean);
  /**
   * Whether the client of a request stays with the upstream that answers it, by a cookie of the proxy (`cookie` of `balance`).
   * A request with the cookie of an upstream that takes requests goes there, and `pick` is not called.
   */
  keepsClient?(request: PickRequest): boolean;
  /** Called with the milliseconds that an upstream needed until its response headers arrived. */
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

/** The number of draws after which an upstream is taken whatever its weight is. */
const MAX_DRAWS = 64;

/**
 * Returns two different upstreams at random, by their weights; the same one twice if there is only one. If they could be the
 * same, one of three upstreams would get a ninth of the requests however slow it is.
 */
export function pickTwo(
  able: readonly Member[],
  { heaviest }: Group,
  { random }: Chance,
): [Member, Member] {
  // Draw until the weight of the drawn upstream allows it: the time for that does not depend on the number of upstreams.
  const draw = (except = Infinity): number => {
    const count = except < able.length ? able.length - 1 : able.length;
    for (let draws = 1; ; draws++) {
      let index = Math.floor(random() * count);
      if (index >= except) index++;
      const { weight } = able[index] as Member;
      if (weight >= heaviest || draws === MAX_DRAWS || random() * heaviest < weight) return index;
    }
  };
  const one = draw();
  const other = able.length > 1 ? draw(one) : one;
  return [able[one] as Member, able[other] as Member];
}
