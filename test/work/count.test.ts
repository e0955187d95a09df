/**
 * The cost of a request, as counts of promises, timers, system calls and allocated bytes. Unlike times, they hardly
 * depend on the machine. A change that adds work to each request fails here. Raise the budget if the change is worth it.
 * Function calls are not counted, so that a helper function can be extracted without a cost.
 */
import { describe, expect, test } from "vitest";
import {
  type Ask,
  get,
  getForwarded,
  getInPieces,
  getLarge,
  post,
  startWork,
  type WorkHost,
  workHosts,
} from "./_work.ts";

/** How many asynchronous resources of each type of `async_hooks` a request may create, including the server's own. */
interface Budget {
  PROMISE: number;
  /** Node itself creates one of these timers. */
  Timeout: number;
  Immediate: number;
  TickObject: number;
}

const budgets: Record<WorkHost, Record<"get" | "post", Budget>> = {
  node: {
    get: { PROMISE: 6, Timeout: 2.5, Immediate: 0, TickObject: 8 },
    post: { PROMISE: 6, Timeout: 2.5, Immediate: 2.5, TickObject: 8 },
  },
  srvx: {
    get: { PROMISE: 10, Timeout: 2.5, Immediate: 0, TickObject: 8 },
    post: { PROMISE: 10, Timeout: 2.5, Immediate: 2.5, TickObject: 8 },
  },
  h3: {
    get: { PROMISE: 11, Timeout: 2.5, Immediate: 0, TickObject: 8 },
    post: { PROMISE: 11, Timeout: 2.5, Immediate: 2.5, TickObject: 8 },
  },
  hono: {
    get: { PROMISE: 16, Timeout: 2.5, Immediate: 0, TickObject: 8 },
    post: { PROMISE: 16, Timeout: 2.5, Immediate: 2.5, TickObject: 8 },
  },
};

/**
 * The system calls of a request, including the server's. A GET takes two reads and two writes, one of each for the
 * client's connection and for the upstream's. `loopTurns` is the number of calls that wait for events.
 */
interface SystemBudget {
  reads: number;
  writes: number;
  loopTurns: number;
}

const systemAsks: Record<string, Ask> = { get, post, getLarge, getInPieces };

const systemBudgets: Record<string, SystemBudget> = {
  get: { reads: 2, writes: 2, loopTurns: 2 },
  post: { reads: 2, writes: 2, loopTurns: 3 },
  // One read returns the head and the body.
  getLarge: { reads: 2, writes: 2, loopTurns: 2 },
  // The response arrives in two chunks.
  getInPieces: { reads: 3, writes: 3, loopTurns: 3 },
};

/** The tolerance per request. The report itself reads a file, and each timer that expires takes a turn of the event loop. */
const SYSTEM_TOLERANCE = 0.2;

/** The kilobytes that a request allocates in code that V8 has not optimized, including the server's own. */
const heapBudgets: Record<WorkHost, Record<"get" | "post", number>> = {
  node: { get: 19.4, post: 20.5 },
  srvx: { get: 21.3, post: 22 },
  h3: { get: 22.8, post: 23.5 },
  hono: { get: 25, post: 26.6 },
};

/**
 * The maximum number of bytes of a request that reach the old generation. Objects of a request die young, unless an old object
 * refers to them, such as a function that V8 allocated in the old generation because its literal is
 * assigned to a property.
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
        const budget: Record<string, number> = { ...systemBudgets[name] };
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

  test("the number of bytes allocated per request is within the budget", async () => {
    const worker = await startWork(host, "heap");
    try {
      for (const [name, ask] of Object.entries({ get, post })) {
        const budget = heapBudgets[host][name as "get" | "post"];
        // V8 may compile code during a count, and on a busy machine a body may arrive later than its head; both add to the
        // count. So one count of five within the budget is enough.
        let least = Infinity;
        for (let i = 0; i < 5 && least > budget; i++) {
          const { bytes = Number.NaN } = await worker.count(ask);
          expect(bytes, name).toBeGreaterThan(0);
          least = Math.min(least, bytes / 1000);
        }
        expect(least, name).toBeLessThanOrEqual(budget);
      }
    } finally {
      await worker.stop();
    }
  });

  test("the number of bytes per request that reach V8's old generation is within the budget", async () => {
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

/** The additional kilobytes that a GET on `node:http` allocates with one option, in code that V8 has not optimized. */
const partBudgets: Readonly<Record<string, number>> = {
  trustProxy: 1.9,
  startTrace: 0.8,
  serverTiming: 1.7,
  balance: 2.3,
  onRequest: 3.4,
  onResponse: 2.4,
};

test("the number of bytes that an option allocates per request is within the budget", async () => {
  const measure = async (part: string): Promise<number> => {
    const worker = await startWork("node", "heap", "", { part });
    try {
      const counts: number[] = [];
      // Code that V8 compiles adds to a count: take the least.
      for (let i = 0; i < 5; i++)
        counts.push((await worker.count(getForwarded)).bytes ?? Number.NaN);
      return Math.min(...counts);
    } finally {
      await worker.stop();
    }
  };
  // A garbage collection can make the count without options too low, and so every option look more expensive: take the higher
  // of two.
  const without = Math.max(await measure(""), await measure(""));
  for (const [part, most] of Object.entries(partBudgets)) {
    const bytes = (await measure(part)) - without;
    expect(bytes / 1000, part).toBeLessThanOrEqual(most);
  }
});
