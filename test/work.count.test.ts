/**
 * The cost of a request in counts, which, unlike times, are the same on every machine: promises, timers,
 * system calls, allocated bytes. A change that adds work to each request fails here: raise the budget if the change
 * is worth it. Function calls are not counted: extracting a helper costs nothing.
 */
import { describe, expect, test } from "vitest";
import { type Ask, get, getInPieces, post, startWork, type WorkHost, workHosts } from "./_work.ts";

/** The asynchronous resources that a request creates, including the server's own, by their names in `async_hooks`. */
interface Budget {
  PROMISE: number;
  /** Node itself creates one of these timers. */
  Timeout: number;
  Immediate: number;
  TickObject: number;
}

const budgets: Record<WorkHost, Record<"get" | "post", Budget>> = {
  node: {
    get: { PROMISE: 6, Timeout: 2.5, Immediate: 0, TickObject: 9 },
    post: { PROMISE: 6, Timeout: 2.5, Immediate: 2.5, TickObject: 9 },
  },
  srvx: {
    get: { PROMISE: 10, Timeout: 2.5, Immediate: 0, TickObject: 9 },
    post: { PROMISE: 10, Timeout: 2.5, Immediate: 2.5, TickObject: 9 },
  },
  h3: {
    get: { PROMISE: 11, Timeout: 2.5, Immediate: 0, TickObject: 9 },
    post: { PROMISE: 11, Timeout: 2.5, Immediate: 2.5, TickObject: 9 },
  },
  hono: {
    get: { PROMISE: 16, Timeout: 2.5, Immediate: 0, TickObject: 9 },
    post: { PROMISE: 16, Timeout: 2.5, Immediate: 2.5, TickObject: 9 },
  },
};

/**
 * The system calls of a request, including the server's. A GET takes two reads and two writes, one of each for the
 * client's connection and for the upstream's. `loopTurns` stands for the calls that wait for events.
 */
interface SystemBudget {
  reads: number;
  writes: number;
  loopTurns: number;
}

const systemAsks: Record<string, Ask> = { get, post, getInPieces };

const systemBudgets: Record<string, SystemBudget> = {
  get: { reads: 2, writes: 2, loopTurns: 2 },
  post: { reads: 2, writes: 2, loopTurns: 3 },
  // The response arrives in two chunks.
  getInPieces: { reads: 3, writes: 3, loopTurns: 3 },
};

/** @hono/node-server writes the head of a streamed response separately, which takes one more write. */
const honoBudgets: Record<string, SystemBudget> = {
  ...systemBudgets,
  getInPieces: { reads: 3, writes: 4, loopTurns: 3 },
};

/** The tolerance per request: the report itself reads a file, and timers that expire take a turn of the event loop. */
const SYSTEM_TOLERANCE = 0.2;

/** The kilobytes that a request allocates in code that V8 has not optimized, including the server's own. */
const heapBudgets: Record<WorkHost, Record<"get" | "post", number>> = {
  node: { get: 19.4, post: 20.5 },
  srvx: { get: 21.3, post: 22 },
  h3: { get: 22.8, post: 23.5 },
  hono: { get: 25, post: 26.6 },
};

/**
 * The bytes of a request that reach the old generation. Objects of a request die young, unless an old object
 * refers to them, such as a function that V8 allocated there because its literal is assigned to a property.
 */
const OLD_BUDGET = 1500;

describe.each(workHosts)("%s", (host) => {
  test("the numbers of promises and timers per request are within the budget", async () => {
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

  test("the number of system calls per request is within the budget", async () => {
    const worker = await startWork(host, "system");
    try {
      for (const [name, ask] of Object.entries(systemAsks)) {
        // Node may still be busy with its start during the first count, so take the lowest of three.
        const counts = [await worker.count(ask), await worker.count(ask), await worker.count(ask)];
        const budgetsOfHost = host === "hono" ? honoBudgets : systemBudgets;
        const budget: Record<string, number> = { ...budgetsOfHost[name] };
        for (const [kind, most] of Object.entries(budget)) {
          const least = Math.min(...counts.map((work) => work[kind] ?? Number.NaN));
          // Only Linux counts reads and writes.
          if (process.platform !== "linux" && kind !== "loopTurns") continue;
          expect(least, `${name}: ${kind}`).toBeGreaterThan(0);
          expect(least, `${name}: ${kind}`).toBeLessThanOrEqual(most + SYSTEM_TOLERANCE);
        }
      }
    } finally {
      await worker.stop();
    }
  });

  test("the bytes allocated per request are within the budget", async () => {
    const worker = await startWork(host, "heap");
    try {
      for (const [name, ask] of Object.entries({ get, post })) {
        // V8 may compile code during one of the counts, so take the lower of two.
        const counts = [await worker.count(ask), await worker.count(ask)];
        const bytes = Math.min(...counts.map((count) => count.bytes ?? Number.NaN));
        expect(bytes, name).toBeGreaterThan(0);
        expect(bytes / 1000, name).toBeLessThanOrEqual(heapBudgets[host][name as "get" | "post"]);
      }
    } finally {
      await worker.stop();
    }
  });

  test("no object of a request reaches V8's old generation", async () => {
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
