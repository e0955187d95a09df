/**
 * What one request costs, as counts instead of times, which are the same on every machine: promises, timers,
 * system calls, bytes allocated. A change that adds to each request fails here; raise the budget if the change
 * is worth it. Function calls are not counted: extracting a helper costs nothing.
 */
import { describe, expect, test } from "vitest";
import { type Ask, get, getInPieces, post, startWork, type WorkHost, workHosts } from "./_work.ts";

/** Asynchronous resources that one request creates, the server's own included, by the names of `async_hooks`. */
interface Budget {
  PROMISE: number;
  /** One of these is Node's own. */
  Timeout: number;
  Immediate: number;
  TickObject: number;
}

const budgets: Record<WorkHost, Record<"get" | "post", Budget>> = {
  node: {
    get: { PROMISE: 8, Timeout: 2.5, Immediate: 0, TickObject: 9 },
    post: { PROMISE: 8, Timeout: 2.5, Immediate: 2.5, TickObject: 9 },
  },
  srvx: {
    get: { PROMISE: 11, Timeout: 2.5, Immediate: 0, TickObject: 9 },
    post: { PROMISE: 11, Timeout: 2.5, Immediate: 2.5, TickObject: 9 },
  },
  h3: {
    get: { PROMISE: 12, Timeout: 2.5, Immediate: 0, TickObject: 9 },
    post: { PROMISE: 12, Timeout: 2.5, Immediate: 2.5, TickObject: 9 },
  },
  hono: {
    get: { PROMISE: 17, Timeout: 2.5, Immediate: 0, TickObject: 9 },
    post: { PROMISE: 17, Timeout: 2.5, Immediate: 2.5, TickObject: 9 },
  },
};

/**
 * System calls of one request, the server's included. A GET takes two reads and two writes, one of each for the
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
  // The response comes in two chunks.
  getInPieces: { reads: 3, writes: 3, loopTurns: 3 },
};

/** @hono/node-server writes the head of a streamed response by itself. */
const honoBudgets: Record<string, SystemBudget> = {
  ...systemBudgets,
  getInPieces: { reads: 3, writes: 4, loopTurns: 3 },
};

/** Per request: the report itself reads a file, and timers that expire take a turn of the event loop. */
const SYSTEM_TOLERANCE = 0.2;

/** Kilobytes that one request allocates in code that V8 has not optimized, the server's own included. */
const heapBudgets: Record<WorkHost, Record<"get" | "post", number>> = {
  node: { get: 23, post: 26 },
  srvx: { get: 25, post: 27 },
  h3: { get: 26, post: 28 },
  hono: { get: 31, post: 33 },
};

/**
 * Bytes of one request that reach the old generation. Objects of a request die young, unless an old object
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
        // Node's start may still be at work during the first count.
        const counts = [await worker.count(ask), await worker.count(ask), await worker.count(ask)];
        const budgetsOfHost = host === "hono" ? honoBudgets : systemBudgets;
        const budget: Record<string, number> = { ...budgetsOfHost[name] };
        for (const [kind, most] of Object.entries(budget)) {
          const least = Math.min(...counts.map((work) => work[kind] ?? Number.NaN));
          // Only Linux tells reads and writes.
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
        // V8 may compile something during one of the counts, which it does once.
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
