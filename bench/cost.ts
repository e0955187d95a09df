/** Counts what a request costs inside of a proxy on Node. */
import { Agent } from "node:http";
import type { Work } from "./counter.ts";
import { freePort, Program } from "./program.ts";
import { median } from "./statistics.ts";
import { ask, validate } from "./validate.ts";
import type { Workload } from "./workloads.ts";

/** Requests in sequence before the first count, in which V8 optimizes the code. */
const WARM_UP = 8000;
/** Requests of one count, few enough that no garbage is collected meanwhile. */
const BATCH = 200;
const BATCHES = 9;

/** One thread, so that the count of requests and not the clock decides when code is optimized or garbage collected. */
const FLAGS = [
  "--single-threaded",
  "--expose-gc",
  "--no-memory-reducer",
  "--min-semi-space-size=64",
  "--max-semi-space-size=64",
  `--import=${new URL("counter.ts", import.meta.url).href}`,
];

/** What one request costs. */
export interface Cost {
  readonly bytes: number;
  readonly promises: number;
  readonly timers: number;
  readonly reads: number;
  readonly writes: number;
}

/**
 * Counts the work of a proxy on Node, one request after the other.
 * @param script the file of the proxy, and its arguments
 */
export async function measureCost(
  script: readonly string[],
  workload: Workload,
  target: string,
): Promise<Cost> {
  const [port, counter] = [await freePort(), await freePort()];
  const env = { TARGET: target, COUNTER: `${counter}` };
  const program = await Program.start([process.execPath, ...FLAGS, ...script], port, env);
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  const send = async (times: number): Promise<void> => {
    for (let i = 0; i < times; i++) await ask(workload, port, agent);
  };
  const work = async (path: string): Promise<Work> =>
    (await (await fetch(`http://127.0.0.1:${counter}${path}`)).json()) as Work;
  try {
    await validate(workload, port);
    await send(WARM_UP);
    const bytes: number[] = [];
    for (let i = 0; i < BATCHES; i++) {
      const before = await work("/collect");
      await send(BATCH);
      const after = await work("/");
      if (after.collections === before.collections) bytes.push((after.heap - before.heap) / BATCH);
    }
    if (bytes.length === 0)
      throw new Error(`${script.join(" ")}: garbage was collected in each count`);
    await work("/hooks");
    const before = await work("/");
    await send(BATCH);
    const after = await work("/");
    const each = (kind: keyof Work): number => (after[kind] - before[kind]) / BATCH;
    return {
      bytes: median(bytes),
      promises: each("promises"),
      timers: each("timers"),
      reads: each("reads"),
      writes: each("writes"),
    };
  } finally {
    agent.destroy();
    await program.stop();
  }
}
