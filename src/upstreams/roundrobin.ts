import type { Member, Policy } from "./policy.ts";

/**
 * Takes the upstreams in turn. With different weights, the turns of a heavy upstream are spread among those of the others
 * (the smooth weighted round robin of nginx).
 */
export function roundRobin(): Policy {
  let turn = 0;
  /** How much each upstream is behind its share. */
  const owed = new Map<Member, number>();
  return {
    pick(able, _request, { isUniform }) {
      if (isUniform) return able[turn++ % able.length] as Member;
      let total = 0;
      let chosen = able[0] as Member;
      let most = -Infinity;
      for (const member of able) {
        const { weight } = member;
        const due = (owed.get(member) ?? 0) + weight;
        owed.set(member, due);
        total += weight;
        if (due > most) [chosen, most] = [member, due];
      }
      owed.set(chosen, most - total);
      // Forget the upstreams that were removed.
      if (owed.size > 2 * able.length)
        for (const member of owed.keys()) if (!able.includes(member)) owed.delete(member);
      return chosen;
    },
  };
}
