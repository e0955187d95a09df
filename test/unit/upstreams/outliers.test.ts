/** The detection of outliers on a clock that the test sets. */
import { expect, test } from "vitest";
import { BalancedMember } from "../../../src/upstreams/member.ts";
import { Health, OutlierDetector, outlierDefaults } from "../../../src/upstreams/outliers.ts";

/** Two upstreams, of which the first can be ejected and can return. */
class Pair {
  now = 0;
  readonly first: Health = new Health();
  readonly all: readonly Health[] = [this.first, new Health()];
  readonly #detector: OutlierDetector = new OutlierDetector(
    { ...outlierDefaults, interval: 10_000, ejectionTime: 30_000 },
    { now: () => this.now, random: () => 0 },
    () => {},
  );

  /** Lets the first upstream fail, and then succeed after its ejection. Returns the length of the ejection in milliseconds. */
  eject(): number {
    const at = this.now;
    this.fail(outlierDefaults.consecutiveFailures);
    const until = this.first.ejectedUntil;
    this.now = until;
    this.sweep();
    this.#detector.record(this.first, undefined, this.all, true);
    return until - at;
  }

  fail(times: number): void {
    for (let i = 0; i < times; i++) this.#detector.record(this.first, "502", this.all);
  }

  sweep(): void {
    this.#detector.sweep(this.all);
  }
}

test.each([
  ["without requests", 1],
  ["with requests all the time", 100],
])(
  "each interval after an upstream's return reduces its number of ejections by one, %s",
  (_, sweeps) => {
    const pair = new Pair();
    for (const time of [30_000, 60_000, 90_000, 120_000]) expect(pair.eject()).toBe(time);
    const { now } = pair;
    for (let i = 1; i <= sweeps; i++) {
      pair.now = now + (i * 35_000) / sweeps;
      pair.sweep();
    }
    expect(pair.first.ejections).toBe(1);
    expect(pair.eject()).toBe(60_000);
  },
);

test("after an ejection without further requests, an upstream becomes half-open whatever its success rate was before", () => {
  const pair = new Pair();
  pair.fail(60);
  pair.now = pair.first.ejectedUntil;
  pair.sweep();
  expect(pair.first).toMatchObject({ isHalfOpen: true, ejections: 1 });
});

test.each<[string, number, (member: BalancedMember) => void]>([
  ["found up again by checks", 100, (member) => (member.isUp = true)],
  ["whose ejection was ended by checks", 5, (member) => member.endEjection()],
])(
  "failures before the return of an upstream %s do not eject it again",
  (_, consecutiveFailures, comeBack) => {
    let now = 0;
    const chance = { now: () => now, random: () => 0 };
    const options = { ...outlierDefaults, consecutiveFailures };
    const detector = new OutlierDetector(options, chance, () => {});
    const limits = { maxRequests: Infinity, slowStart: 0, now: chance.now };
    const member = new BalancedMember("http://a.test", 1, limits);
    const all = [member.health, new Health()];
    for (let i = 0; i < 60; i++) detector.record(member.health, "502", all);
    // The upstream is down at the next sweep.
    member.isUp = false;
    now = 60_000;
    detector.sweep(all.slice(1));
    comeBack(member);
    now = 70_000;
    detector.sweep(all);
    expect(member.health.isOut).toBe(false);
  },
);

test("the reason for an ejection names the last failure", () => {
  let now = 0;
  const reasons: string[] = [];
  const detector = new OutlierDetector(
    { ...outlierDefaults, consecutiveFailures: 100 },
    { now: () => now, random: () => 0 },
    (_, reason) => void reasons.push(reason),
  );
  const first = new Health();
  const all = [first, new Health()];
  detector.record(first, undefined, all);
  for (let i = 0; i < 98; i++) detector.record(first, "502", all);
  detector.record(first, "connection_refused", all);
  now = outlierDefaults.interval;
  detector.sweep(all);
  now = first.ejectedUntil;
  detector.sweep(all);
  detector.record(first, "504", all, true);
  expect(reasons).toEqual([
    "99 % of its requests failed, last: connection_refused",
    "the ejection is over",
    "it failed again: 504",
  ]);
});
