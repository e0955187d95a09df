/** The detection of outliers on a clock that the test sets. */
import { expect, test } from "vitest";
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
    for (let i = 0; i < outlierDefaults.consecutiveFailures; i++) {
      this.#detector.record(this.first, "502", this.all);
    }
    const until = this.first.ejectedUntil;
    this.now = until;
    this.sweep();
    this.#detector.record(this.first, undefined, this.all, true);
    return until - at;
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
