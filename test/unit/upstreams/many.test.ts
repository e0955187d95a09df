/**
 * The cost of a pick does not grow with the number of upstreams. It is counted, because times differ from machine to
 * machine.
 */
import { expect, test } from "vitest";
import { byUri, consistentHash } from "../../../src/upstreams/consistenthash.ts";
import { POLICIES } from "../../../src/upstreams/balanceoptions.ts";
import { balance } from "../../../src/upstreams/balance.ts";
import { type Group, type Member, type Policy, realChance } from "../../../src/upstreams/policy.ts";

const COUNT = 2_000;
const PICKS = 500;

/** Creates a group of upstreams with three different weights. `looks` counts the reads of `weight` and `active`. */
function makeGroup(): { group: Group; looks: () => number } {
  let looks = 0;
  const members = Array.from({ length: COUNT }, (_, i): Member => ({
    target: `http://10.0.0.1:${i + 1}`,
    name: `http://10.0.0.1:${i + 1}`,
    share: 1 + (i % 3),
    get weight() {
      looks++;
      return 1 + (i % 3);
    },
    get active() {
      looks++;
      return 0;
    },
  }));
  const group = { members, active: 0, version: 1, isUniform: false, heaviest: 3 };
  return { group, looks: () => looks };
}

const policies: readonly (readonly [string, () => Policy])[] = [
  ...Object.entries(POLICIES).map(([name, make]) => [name, () => make(realChance)] as const),
  ["consistentHash, sticky", () => consistentHash(byUri, { sticky: true })],
];

test.each(policies)("a pick by %s reads only a few of many upstreams", (_, make) => {
  const { group, looks } = makeGroup();
  const policy = make();
  const pick = (i: number): Member => {
    const request = { method: "GET", path: `/${i}`, headers: [], clientAddress: `192.0.2.${i}` };
    return policy.pick(group.members, request, group);
  };
  // The first pick may compute values that all picks share.
  pick(0);
  const before = looks();
  for (let i = 1; i <= PICKS; i++) pick(i);
  expect((looks() - before) / PICKS).toBeLessThan(40);
});

test("an attempt at another upstream calls the policy again with the same list, not with a list without the tried upstream", () => {
  const lists = new Set<readonly Member[]>();
  let turn = 0;
  const policy: Policy = {
    pick(able) {
      lists.add(able);
      return able[turn++ % able.length] as Member;
    },
  };
  const targets = Array.from({ length: COUNT }, (_, i) => `http://10.0.0.1:${i + 1}`);
  const group = balance(targets, { policy });
  const request = { method: "GET", path: "/", headers: [], clientAddress: undefined };
  const first = group.pick(request, []) as string;
  turn--;
  const second = group.pick(request, [first]) as string;
  expect(second).not.toBe(first);
  expect(lists.size).toBe(1);
});

test("the upstreams passed to `balance` count as one change of `version`", () => {
  const targets = Array.from({ length: COUNT }, (_, i) => `http://10.0.0.1:${i + 1}`);
  const group = balance(targets);
  expect(group.members).toHaveLength(COUNT);
  expect(group.version).toBe(1);
});

test("round_robin follows the weights exactly, although some picks get another list of the same upstreams", () => {
  const policy = POLICIES.round_robin(realChance);
  const members = [4, 2, 2, 1, 1].map((weight, i): Member => {
    const name = `http://10.0.0.${i}`;
    return { target: name, name, share: weight, weight, active: 0 };
  });
  const group = { members, active: 0, version: 1, isUniform: false, heaviest: 4 };
  const request = { method: "GET", path: "/", headers: [], clientAddress: undefined };
  const counts = new Map<Member, number>();
  for (let i = 0; i < 1_000; i++) {
    // Some picks get a copy of the list, which must not disturb the turns of the other picks.
    const able = i % 7 === 0 ? [...members] : members;
    const member = policy.pick(able, request, group);
    counts.set(member, (counts.get(member) ?? 0) + 1);
  }
  expect(members.map((each) => counts.get(each))).toEqual([400, 200, 200, 100, 100]);
});
