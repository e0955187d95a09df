import { type Chance, type Member, pickCheaper, type Policy } from "./policy.ts";

/**
 * Picks the one of two random upstreams that has fewer requests for its weight. Two random choices spread the load almost
 * as well as a comparison of all upstreams, and keep several proxies from all picking the same upstream.
 * @see https://www.eecs.harvard.edu/~michaelm/postscripts/tpds2001.pdf
 */
export function leastConnections(chance: Chance): Policy {
  return { pick: (able, _request, group) => pickCheaper(able, group, chance, costOf) };
}

function costOf({ active, weight }: Member): number {
  return active / weight;
}
