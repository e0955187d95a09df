/**
 * Counts what a request costs in each proxy on Node: allocated bytes, promises, timers, system calls. Unlike times, counts
 * are the same on a busy machine.
 *
 *     npm run bench:counts    # writes counts.json and the table in README.md, about eight minutes
 */
import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import type { Command } from "./commands.ts";
import { contestants, isOnOtherRuntime } from "./contestants.ts";
import type { Work } from "./counter.ts";
import { runLoad } from "./load.ts";
import { freePort, pin, Program } from "./program.ts";
import { toTitle } from "./ratios.ts";
import { writeBetween } from "./report.ts";
import { workloads } from "./workloads.ts";

const WORKLOADS = workloads.filter(({ name }) => ["get-1k", "post-1k", "get-64k"].includes(name));
/** Requests in sequence before the first count, in which V8 optimizes the code. */
const WARM_UP = 8000;
/** Requests of one count, few enough that no garbage is collected meanwhile. */
const BATCH = 200;
const BATCHES = 9;

/**
 * The load under which the workload of the goals is counted once more. V8 has then optimized the code for good, and the
 * optimized code keeps short-lived objects in registers.
 */
const LOAD = { workload: "get-1k", connections: 64, seconds: 4, warmUp: 20_000 };

/** The goals for kilobytes that a GET of 1 KB allocates under load. */
const GOALS: Readonly<Record<string, number>> = { node: 12, srvx: 13, h3: 14, hono: 16 };

/** One thread, so that the count of requests and not the clock decides when code is optimized or garbage collected. */
const FLAGS = [
  "--single-threaded",
  "--expose-gc",
  "--no-memory-reducer",
  "--min-semi-space-size=64",
  "--max-semi-space-size=64",
];
const COUNTER_FLAG = `--import=${new URL("counter.ts", import.meta.url).href}`;

/** What one request costs. */
interface Cost {
  readonly bytes: number;
  /** Bytes under load; undefined for workloads that are not counted under load. */
  readonly bytesUnderLoad?: number;
  readonly promises: number;
  readonly timers: number;
  readonly reads: number;
  readonly writes: number;
}

async function measureCost(name: string, workload: Workload, target: string): Promise<Cost> {
  const [port, counter] = [await freePort(), await freePort()];
  const file = fileURLToPath(new URL(`contestants/${name}.ts`, import.meta.url));
  const env = { TARGET: target, COUNTER: `${counter}` };
  const command: Command = [process.execPath, ...FLAGS, COUNTER_FLAG, file];
  const program = await Program.start(command, port, env);
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
    if (bytes.length === 0) throw new Error(`${name}: garbage was collected in each count`);
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

/** Returns the bytes that one request allocates under load, with V8's own choice of when to optimize and to collect. */
async function measureUnderLoad(name: string, workload: Workload, target: string): Promise<number> {
  const [port, counter] = [await freePort(), await freePort()];
  const file = fileURLToPath(new URL(`contestants/${name}.ts`, import.meta.url));
  const command = pin([process.execPath, COUNTER_FLAG, file], "proxy");
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
    return ((await call("/allocated")) as number) / requests;
  } finally {
    await program.stop();
  }
}

type Costs = Record<string, Record<string, Cost>>;

async function countAll(): Promise<Costs> {
  const port = await freePort();
  const upstream = await Program.start(
    pin([process.execPath, fileURLToPath(new URL("target.ts", import.meta.url))], "others"),
    port,
  );
  const onNode = contestants.filter((each) => !isOnOtherRuntime(each) && each.role !== "reference");
  const costs: Costs = {};
  try {
    for (const { name } of onNode) {
      const own: Record<string, Cost> = (costs[name] = {});
      for (const workload of WORKLOADS) {
        const target = `http://127.0.0.1:${port}`;
        let cost = await measureCost(name, workload, target);
        if (workload.name === LOAD.workload) {
          cost = { ...cost, bytesUnderLoad: await measureUnderLoad(name, workload, target) };
        }
        own[workload.name] = cost;
        console.error(`${name.padEnd(24)} ${workload.name.padEnd(8)} ${JSON.stringify(cost)}`);
      }
    }
  } finally {
    await upstream.stop();
  }
  return costs;
}

const OTHERS = ["promises", "timers", "reads", "writes"] as const;

function toTable(costs: Costs): string {
  const rows = Object.entries(costs)
    .toSorted(([, a], [, b]) => loadedBytes(a) - loadedBytes(b))
    .map(([name, own]) =>
      [
        toTitle(name),
        showKilobytes(loadedBytes(own), GOALS[name]),
        ...WORKLOADS.map((workload) => showKilobytes(own[workload.name]?.bytes)),
      ].concat(OTHERS.map((kind) => showCount(own["get-1k"]?.[kind]))),
    );
  const head = ["", "GET 1 KB under load", ...WORKLOADS.map(({ title }) => title), ...OTHERS];
  const table = [head, ["---", ...head.slice(1).fill("--:")], ...rows];
  return [
    `Node ${process.versions.node}, ${toStamp(hashOfCode())}. Kilobytes that a request allocates in V8's heap; the other columns are of GET 1 KB.`,
    table.map((cells) => `| ${cells.join(" | ")} |`).join("\n"),
  ].join("\n\n");
}

function loadedBytes(own: Record<string, Cost>): number {
  return own[LOAD.workload]?.bytesUnderLoad ?? Number.NaN;
}

function showKilobytes(bytes = Number.NaN, goal?: number): string {
  const text = (bytes / 1000).toFixed(1);
  if (goal === undefined) return text;
  return Number(text) <= goal ? `${text} (≤ ${goal})` : `**${text}** (≤ ${goal})`;
}

function showCount(count = Number.NaN): string {
  return count < 0.05 ? "0" : count.toFixed(1).replace(/\.0$/, "");
}

const costs = await countAll();
const json = fileURLToPath(new URL("counts.json", import.meta.url));
writeFileSync(json, JSON.stringify({ node: process.versions.node, costs }, undefined, 2));
const readme = writeBetween("counts", toTable(costs));
execFileSync(fileURLToPath(new URL("../node_modules/.bin/oxfmt", import.meta.url)), [json, readme]);
