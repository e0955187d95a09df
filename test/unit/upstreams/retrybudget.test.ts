/** The budget of retries on a clock that the test sets. */
import { expect, test } from "vitest";
import { RetryBudget, type RetryBudgetOptions } from "../../../src/upstreams/retrybudget.ts";

/** Creates a budget that by default has no reserve (`perSecond`), and its clock. */
function setUp(options: RetryBudgetOptions = {}): { clock: { now: number }; budget: RetryBudget } {
  const clock = { now: 0 };
  const chance = { now: () => clock.now, random: () => 0 };
  return { clock, budget: new RetryBudget(chance, { perSecond: 0, ...options }) };
}

function depositMany(budget: RetryBudget, count: number): void {
  for (let i = 0; i < count; i++) budget.deposit();
}

/** Uses up the budget, and returns the number of retries that it allowed. */
function drain(budget: RetryBudget): number {
  let allowed = 0;
  while (budget.withdraw()) allowed++;
  return allowed;
}

test.each([
  [0, 100],
  [5_000, 60],
  [10_000, 36],
  [20_000, 13],
  [60_000, 0],
])("after %i ms without requests, the budget still allows %i of 100 retries", (quiet, left) => {
  const { clock, budget } = setUp();
  depositMany(budget, 501);
  clock.now += quiet;
  expect(drain(budget)).toBe(left);
});

test("the credit that requests add decays with a time constant of ten seconds, even while requests keep arriving", () => {
  const { clock, budget } = setUp({ ratio: 0.1 });
  for (let i = 0; i < 10_000; i++) {
    clock.now++;
    budget.deposit();
  }
  // The credit of 1,000 requests a second approaches 1,000. After one time constant, it is 1,000 × (1 − 1/e).
  expect(drain(budget)).toBe(632);
});

test("the retries that `perSecond` allows do not accumulate over seconds without retries", () => {
  const { clock, budget } = setUp({ perSecond: 10 });
  expect(drain(budget)).toBe(10);
  clock.now += 500;
  expect(drain(budget)).toBe(5);
  clock.now += 60_000;
  expect(drain(budget)).toBe(10);
});

test("with `perSecond` below 1, one retry is allowed each time that the fractions add up to 1", () => {
  const { clock, budget } = setUp({ perSecond: 0.5 });
  for (const passed of [2_000, 2_000, 60_000]) {
    clock.now += passed;
    expect(drain(budget)).toBe(1);
  }
});
