import type { Group, Member, Policy } from "./policy.ts";

/** The upstreams that have the same weight. They take turns within their class. */
interface WeightClass {
  readonly weight: number;
  readonly members: Member[];
  /** The number of turns that the class has had. */
  turns: number;
  /** How far the class is behind its share of the turns. */
  owed: number;
}

/**
 * Picks the upstreams in turn. With different weights, the turns of heavy upstreams are spread among those of the others,
 * as nginx's smooth weighted round robin does. Here, the algorithm chooses among classes of upstreams that have the same
 * weight, so that a choice takes time in proportion to the number of different weights, not to the number of upstreams.
 */
export function roundRobin(): Policy {
  // Several balanced targets may share this policy, so each has its own turns.
  const turnsOf = new WeakMap<Group, Turns>();
  return {
    pick(able, _request, group) {
      let turns = turnsOf.get(group);
      if (turns === undefined) turnsOf.set(group, (turns = new Turns()));
      return turns.next(able, group.isUniform);
    },
  };
}

/** The turns of the upstreams of one target. */
class Turns {
  #turn = 0;
  #classes: readonly WeightClass[] = [];
  /** The list of upstreams from which `#classes` was made. */
  #list: readonly Member[] | undefined;

  next(able: readonly Member[], isUniform: boolean): Member {
    if (isUniform) return able[this.#turn++ % able.length] as Member;
    // Every change of the upstreams or of their weights makes a new list.
    if (this.#list !== able) this.#classes = classify((this.#list = able), this.#classes);
    let total = 0;
    let chosen = this.#classes[0] as WeightClass;
    for (const each of this.#classes) {
      const due = each.weight * each.members.length;
      each.owed += due;
      total += due;
      if (each.owed > chosen.owed) chosen = each;
    }
    chosen.owed -= total;
    return chosen.members[chosen.turns++ % chosen.members.length] as Member;
  }
}

/** Groups upstreams by their weights. An upstream's part of `owed` moves from its earlier class to its new class. */
function classify(able: readonly Member[], earlier: readonly WeightClass[]): WeightClass[] {
  const before = new Map<Member, WeightClass>();
  for (const each of earlier) for (const member of each.members) before.set(member, each);
  const classes = new Map<number, WeightClass>();
  for (const member of able) {
    const { weight } = member;
    let own = classes.get(weight);
    if (own === undefined) classes.set(weight, (own = { weight, members: [], turns: 0, owed: 0 }));
    own.members.push(member);
    const last = before.get(member);
    if (last === undefined) continue;
    own.owed += last.owed / last.members.length;
    own.turns = Math.max(own.turns, last.turns);
  }
  return Array.from(classes.values());
}
