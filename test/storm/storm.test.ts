/** A short storm on every host; `npm run test:storm` runs long ones. */
import { afterAll, describe, expect, test } from "vitest";
import { type HostName, OWN } from "../hosts/_hosts.ts";
import { createSeed, describeStorm } from "./report.ts";
import { Storm } from "./storm.ts";
import type { Variant } from "./variants.ts";

const seed = createSeed();
const exchanges = 500;

/**
 * For each storm, a function that waits until the proxy has closed its idle connections, after the exchanges are over.
 */
const resting: (() => Promise<void>)[] = [];

const cases = [...OWN, "node:wrapped", "srvx:wrapped-late", "hono:wrapped"];

describe.each(cases)("on the host %s", (name) => {
  const [host, variant] = name.split(":") as [HostName, Variant?];

  test(`${exchanges} random exchanges violate no invariant, seed ${seed}`, async () => {
    const storm = new Storm({ host, ...(variant && { variant }), seed, exchanges });
    const settling = Promise.withResolvers<void>();
    resting.push(() => settling.promise);
    try {
      await storm.run();
    } finally {
      // It takes seconds until the proxy closes its idle connections, so the next host runs meanwhile.
      settling.resolve(storm.settle().then(() => expectNothingWrong(name, storm)));
      settling.promise.catch(() => {});
    }
    expectNothingWrong(name, storm);
    const { whole, cut, gateway, left } = storm.tally;
    expect(whole).toBeGreaterThan(exchanges / 2);
    for (const count of [cut, gateway, left]) expect(count).toBeGreaterThan(0);
  }, 120_000);
});

function expectNothingWrong(name: string, storm: Storm): void {
  expect(storm.violations.length, describeStorm(name, storm)).toBe(0);
}

test("after the storms, no proxy has a connection in use, and no process has printed anything", async () => {
  expect(resting).toHaveLength(cases.length);
  await Promise.all(resting.map((settled) => settled()));
});

afterAll(() => Promise.allSettled(resting.map((settled) => settled())));
