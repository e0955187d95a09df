import type { Member, Policy } from "./policy.ts";

/** Picks the first upstream that can take the request; the others are standbys. */
export function first(): Policy {
  return { pick: (able) => able[0] as Member };
}
