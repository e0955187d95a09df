/**
 * What a request costs, counted and not timed: the same on every machine. Who adds something to
 * each request sees it here, and raises the budget if it is worth it.
 */
import { describe, expect, test } from "vitest";
import { get, post, startWork, type WorkHost } from "./_work.ts";

/** At most this for one request, the server's own part included, but for `calls`. */
interface Budget {
  /** Calls of functions of src/ and runtimes/. */
  calls: number;
  PROMISE: number;
  /** Of these, one is Node's own. */
  Timeout: number;
  Immediate: number;
  TickObject: number;
}

const budgets: Record<WorkHost, Record<"get" | "post", Budget>> = {
  node: {
    get: { calls: 165, PROMISE: 8, Timeout: 2.5, Immediate: 0, TickObject: 9 },
    post: { calls: 190, PROMISE: 8, Timeout: 2.5, Immediate: 2.5, TickObject: 9 },
  },
  srvx: {
    get: { calls: 165, PROMISE: 11, Timeout: 2.5, Immediate: 0, TickObject: 9 },
    post: { calls: 190, PROMISE: 11, Timeout: 2.5, Immediate: 2.5, TickObject: 9 },
  },
  h3: {
    get: { calls: 165, PROMISE: 12, Timeout: 2.5, Immediate: 0, TickObject: 9 },
    post: { calls: 190, PROMISE: 12, Timeout: 2.5, Immediate: 2.5, TickObject: 9 },
  },
  hono: {
    get: { calls: 165, PROMISE: 17, Timeout: 2.5, Immediate: 0, TickObject: 9 },
    post: { calls: 190, PROMISE: 17, Timeout: 2.5, Immediate: 2.5, TickObject: 9 },
  },
};

/** KB allocated for one request by code that is not optimized, the server's included. */
const heapBudgets: Record<WorkHost, Record<"get" | "post", number>> = {
  node: { get: 23, post: 26 },
  srvx: { get: 25, post: 27 },
  h3: { get: 26, post: 28 },
  hono: { get: 31, post: 33 },
};

/**
 * Bytes of one request that reach the old generation. All of it dies young, unless something old
 * refers to it, such as a function that V8 made there because its literal was assigned to a property.
 */
const OLD_BUDGET = 1500;

describe.each(Object.keys(budgets) as WorkHost[])("%s", (host) => {
  test("calls, promises and timers are within the budget", async () => {
    const worker = await startWork(host, "counts");
    try {
      for (const [name, ask] of Object.entries({ get, post })) {
        const work = await worker.count(ask);
        const budget: Record<string, number> = { ...budgets[host][name as "get" | "post"] };
        for (const [kind, most] of Object.entries(budget)) {
          const count = work[kind] ?? 0;
          if (most > 0) expect(count, `${name}: ${kind}`).toBeGreaterThan(0);
          expect(count, `${name}: ${kind}`).toBeLessThanOrEqual(most);
        }
      }
    } finally {
      await worker.stop();
    }
  });

  test("so are allocations", async () => {
    const worker = await startWork(host, "heap");
    try {
      for (const [name, ask] of Object.entries({ get, post })) {
        // V8 may compile something in the middle of it, which it does once.
        const counts = [await worker.count(ask), await worker.count(ask)];
        const bytes = Math.min(...counts.map((count) => count.bytes ?? Number.NaN));
        expect(bytes, name).toBeGreaterThan(0);
        expect(bytes / 1000, name).toBeLessThanOrEqual(heapBudgets[host][name as "get" | "post"]);
      }
    } finally {
      await worker.stop();
    }
  });

  test("what a request leaves behind does not grow old", async () => {
    const worker = await startWork(host, "old");
    try {
      for (const [name, ask] of Object.entries({ get, post })) {
        const { bytes = Number.NaN } = await worker.count(ask, 600);
        expect(bytes, name).toBeLessThanOrEqual(OLD_BUDGET);
      }
    } finally {
      await worker.stop();
    }
  });
});
