/**
 * Counts the work of a contestant from inside its process, into which `cost.ts` loads this module.
 *
 * It answers GET on the port COUNTER: `/collect` collects garbage first, `/hooks` begins to count asynchronous resources.
 * `/watch` begins to watch garbage collections, and `/watched` returns what has happened since then.
 */
import { createHook } from "node:async_hooks";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { PerformanceObserver } from "node:perf_hooks";
import { GCProfiler } from "node:v8";

/** The counts of the process. Promises and timers are counted only after `/hooks`. */
export interface Work {
  /** Bytes in V8's heap. */
  readonly heap: number;
  /** The number of garbage collections. If it has not changed, the growth of the heap equals the allocated bytes. */
  readonly collections: number;
  /**
   * The number of system calls that read. `writes` is the number of those that write. Both are `NaN` on systems other than
   * Linux.
   */
  readonly reads: number;
  readonly writes: number;
  readonly promises: number;
  readonly timers: number;
}

let collections = 0;
new PerformanceObserver((list) => (collections += list.getEntries().length)).observe({
  entryTypes: ["gc"],
});

const created: Record<string, number> = {};
const hook = createHook({ init: (_, type) => void (created[type] = (created[type] ?? 0) + 1) });

const profiler = new GCProfiler();
let heapBefore = 0;

function watch(): void {
  profiler.start();
  heapBefore = process.memoryUsage().heapUsed;
}

/** What has happened in V8's heap since `watch`. */
export interface Watched {
  /** The allocated bytes: the growth of the heap, plus the bytes that collections have freed. */
  readonly allocated: number;
  /** The length of each collection of young objects, in ms. */
  readonly pauses: readonly number[];
  /** The growth of the heap from one collection of young objects to the next: the bytes that have survived the later one. */
  readonly survived: readonly number[];
}

function stopWatching(): Watched {
  const grown = process.memoryUsage().heapUsed - heapBefore;
  const { statistics } = profiler.stop();
  const collected = statistics.map(({ gcType, cost, beforeGC, afterGC }) => ({
    isYoung: gcType === "Scavenge",
    cost,
    before: beforeGC.heapStatistics.usedHeapSize,
    after: afterGC.heapStatistics.usedHeapSize,
  }));
  const young = collected.filter(({ isYoung }) => isYoung);
  return {
    allocated: collected.reduce((sum, { before, after }) => sum + before - after, grown),
    pauses: young.map(({ cost }) => cost / 1000),
    survived: young.slice(1).map(({ after }, i) => after - (young[i]?.after ?? 0)),
  };
}

function describeWork(): Work {
  const io = process.platform === "linux" ? readFileSync("/proc/self/io", "latin1") : "";
  const { PROMISE = 0, Timeout = 0, Immediate = 0 } = created;
  return {
    heap: process.memoryUsage().heapUsed,
    collections,
    reads: Number(/^syscr: (\d+)$/m.exec(io)?.[1]),
    writes: Number(/^syscw: (\d+)$/m.exec(io)?.[1]),
    promises: PROMISE,
    timers: Timeout + Immediate,
  };
}

createServer((req, res) => {
  if (req.url === "/collect") globalThis.gc?.();
  if (req.url === "/hooks") hook.enable();
  if (req.url === "/watch") watch();
  if (req.url === "/watched") return void res.end(JSON.stringify(stopWatching()));
  // Answer later, because the observer is notified of collections in a later turn of the event loop.
  setTimeout(() => res.end(JSON.stringify(describeWork())), 5);
}).listen(Number(process.env["COUNTER"]), "127.0.0.1");
