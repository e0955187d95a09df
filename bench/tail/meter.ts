/** A thread of pacer.ts that measures how late a timer of 1 ms is. */
import { parentPort } from "node:worker_threads";

const cell = new Int32Array(new SharedArrayBuffer(4));

/** Measures until the next message, and then reports the times in µs. */
async function measureHiccups(): Promise<void> {
  const late: number[] = [];
  let stopped = false;
  parentPort?.once("message", () => (stopped = true));
  while (!stopped) {
    const before = performance.now();
    Atomics.wait(cell, 0, 0, 1);
    late.push(Math.round((performance.now() - before - 1) * 1000));
    // Messages arrive only between tasks.
    if (late.length % 10 === 0) await new Promise(setImmediate);
  }
  parentPort?.postMessage(late, []);
}

parentPort?.postMessage("ready", []);
parentPort?.once("message", () => void measureHiccups());
