/** Compares one process of the command with two workers. */
import { cpus } from "node:os";
import { fileURLToPath } from "node:url";
import type { Command } from "../commands.ts";
import { runLoad } from "../load.ts";
import { freePort, Program } from "../program.ts";
import { median } from "../statistics.ts";
import { usageOf } from "../usage.ts";
import { validate } from "../validate.ts";
import { CONNECTIONS, measureRound, startUpstream, workload } from "./contenders.ts";
import {
  combineRounds,
  type Latency,
  type Middle,
  type PacedRound,
  toMiddle,
  toShort,
} from "./latency.ts";

const COUNTS = [1, 2];
const ROUNDS = 3;
const SECONDS = 2;
/** Requests per second of the rounds that measure latency. */
export const CORES_RATE = 5000;

/** What the command does with a number of processes that serve: medians over rounds. */
export interface WorkersFigures {
  readonly workers: number;
  /** Requests per second as fast as possible. */
  readonly rps: Middle;
  /** CPU time per request in µs meanwhile: of the command, and of all other programs of the machine. */
  readonly cpu: Middle;
  readonly others: Middle;
  /** The part of all cores that was idle meanwhile. */
  readonly idle: number;
  /** Latency at `CORES_RATE`, or why there is none. */
  readonly latency: Latency | string;
}

interface Throughput {
  readonly rps: number;
  readonly cpu: number;
  readonly others: number;
  readonly idle: number;
}

/** Returns the CPU time of all cores since the machine started, in seconds. */
function readCores(): { busy: number; idle: number } {
  const times = cpus().map((core) => core.times);
  const sum = (of: (each: (typeof times)[number]) => number): number =>
    times.reduce((total, each) => total + of(each), 0) / 1000;
  return {
    busy: sum(({ user, nice, sys, irq }) => user + nice + sys + irq),
    idle: sum(({ idle }) => idle),
  };
}

async function measureThroughput({ pid, port }: Program): Promise<Throughput> {
  const before = { own: usageOf(pid).cpu, ...readCores() };
  const { requests, duration } = await runLoad(workload, port, SECONDS, CONNECTIONS, {
    pins: "all",
  });
  const after = { own: usageOf(pid).cpu, ...readCores() };
  const own = after.own - before.own;
  const busy = after.busy - before.busy;
  const idle = after.idle - before.idle;
  return {
    rps: requests / duration,
    cpu: (own / requests) * 1e6,
    others: ((busy - own) / requests) * 1e6,
    idle: idle / (busy + idle),
  };
}

/**
 * Measures the command with each number of workers, in interleaved rounds. No program is pinned to a core.
 * @param progress takes a line for each round
 */
export async function measureCores(
  generator: Command,
  progress: (line: string) => void,
): Promise<WorkersFigures[]> {
  const file = fileURLToPath(new URL("../../command/main.ts", import.meta.url));
  const upstream = await startUpstream("all");
  const runs: { program: Program; fast: Throughput[]; paced: PacedRound[] }[] = [];
  try {
    for (const count of COUNTS) {
      const port = await freePort();
      const flags = ["--port", `${port}`, "--workers", `${count}`, "--log", "off"];
      const command: Command = [process.execPath, file, `http://127.0.0.1:${upstream.port}`];
      const program = await Program.start([...command, ...flags], port);
      runs.push({ program, fast: [], paced: [] });
      await validate(workload, port);
      await runLoad(workload, port, SECONDS, CONNECTIONS, { pins: "all" });
    }
    for (let round = 0; round < ROUNDS; round++) {
      for (const [i, { program, fast, paced }] of runs.entries()) {
        fast.push(await measureThroughput(program));
        const runner = { port: program.port, program, pins: "all" } as const;
        paced.push(await measureRound(runner, generator, CORES_RATE, SECONDS));
        progress(`  --workers ${COUNTS[i]}: ${JSON.stringify([fast.at(-1), paced.at(-1)])}`);
      }
    }
  } finally {
    await Promise.all([...runs.map(({ program }) => program), upstream].map((each) => each.stop()));
  }
  return runs.map(({ fast, paced }, i) => ({
    workers: COUNTS[i] as number,
    rps: toMiddle(fast.map(({ rps }) => rps)),
    cpu: toMiddle(fast.map(({ cpu }) => cpu)),
    others: toMiddle(fast.map(({ others }) => others)),
    idle: toShort(median(fast.map(({ idle }) => idle))),
    latency: combineRounds(paced),
  }));
}
