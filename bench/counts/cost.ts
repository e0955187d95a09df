/** Counts what a request costs inside of a proxy on Node. */
import { Agent } from "node:http";
import type { Watched, Work } from "./counter.ts";
import { runLoad } from "../load.ts";
import { freePort, pin, Program } from "../program.ts";
import { median } from "../statistics.ts";
import { ask, validate } from "../validate.ts";
import type { Workload } from "../workloads.ts";

/** The number of sequential requests before the first count, during which V8 optimizes the code. */
const WARM_UP = 8000;
/** The number of requests in one count. It is so small that V8 usually collects no garbage during the count. */
const BATCH = 200;
/** The number of requests in a count if garbage was collected in all larger counts. */
const SMALLEST_BATCH = 20;
const BATCHES = 9;

/**
 * Flags of V8. With a single thread, the number of requests decides when V8 optimizes code and collects garbage, not the
 * clock. A large space for young objects makes collections rare.
 */
const FLAGS = [
  "--single-threaded",
  "--expose-gc",
  "--no-memory-reducer",
  "--min-semi-space-size=64",
  "--max-semi-space-size=64",
];
export const COUNTER_FLAG: string = `--import=${new URL("counter.ts", import.meta.url).href}`;

/**
 * The load under which bytes are counted again. Under this load, V8 fully optimizes the code. Optimized code allocates less,
 * because it keeps short-lived objects in registers.
 */
const LOAD = { connections: 64, seconds: 4, warmUp: 20_000 };

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
  const program = await Program.start(
    [process.execPath, ...FLAGS, COUNTER_FLAG, ...script],
    port,
    env,
  );
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
    // Large bodies make V8 collect garbage early, because their memory outside of the heap counts as well. Count again with
    // fewer requests.
    let size = BATCH;
    for (let i = 0; bytes.length < BATCHES && i < 4 * BATCHES; i++) {
      const before = await work("/collect");
      await send(size);
      const after = await work("/");
      if (after.collections === before.collections) bytes.push((after.heap - before.heap) / size);
      else size = Math.max(SMALLEST_BATCH, Math.ceil(size * 0.8));
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

/** Returns the bytes that one request allocates under load. V8 itself decides when to optimize code and to collect garbage. */
export async function measureUnderLoad(
  script: readonly string[],
  workload: Workload,
  target: string,
): Promise<number> {
  const [port, counter] = [await freePort(), await freePort()];
  const command = pin([process.execPath, COUNTER_FLAG, ...script], "proxy");
  const env = { TARGET: target, COUNTER: `${counter}` };
  const program = await Program.start(command, port, env);
  const load = async (): Promise<number> =>
    (await runLoad(workload, port, LOAD.seconds, LOAD.connections)).requests;
  const call = async (path: string): Promise<unknown> =>
    (await fetch(`http://127.0.0.1:${counter}${path}`)).json();
  try {
    await validate(workload, port);
    for (let sent = 0; sent < LOAD.warmUp;) sent += await load();
    await call("/watch");
    const requests = await load();
    return ((await call("/watched")) as Watched).allocated / requests;
  } finally {
    await program.stop();
  }
}
