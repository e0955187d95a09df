import { type Chance, type Policy, pickTwo } from "./policy.ts";

/**
 * Picks the one of two random upstreams that has fewer requests for its weight. Two random choices spread the load almost
 * as well as a comparison of all upstreams, and keep several proxies from all picking the same upstream.
 * @see https://www.eecs.harvard.edu/~michaelm/postscripts/tpds2001.pdf
 */
export function leastConnections(chance: Chance): Policy {
  return {
    pick(able, _request, group) {
      const [one, other] = pickTwo(able, group, chance);
      return other.active * one.weight < one.active * other.weight ? other : one;
    },
  };
}
