/** Measures contestants at fixed rates, in interleaved rounds. */
import { fileURLToPath } from "node:url";
import { type Contestant, isOnOtherRuntime } from "../contestants.ts";
import { runLoad } from "../load.ts";
import { freePort, pin, type Pins, Program } from "../program.ts";
import { usageOf } from "../usage.ts";
import { validate } from "../validate.ts";
import { type Workload, workloads } from "../workloads.ts";
import type { Command } from "../commands.ts";
import { runPace } from "./generate.ts";
import { type PacedRound, toRound } from "./latency.ts";

export const CONNECTIONS = 64;
/** Seconds of load before each round. */
const LEAD = 0.2;
/** Seconds to wait for the last responses of a round. */
const PATIENCE = 1;
/** Seconds of load as fast as possible: first to warm up, then to measure what a contestant can. */
const WARM_UP = 2;
const CAPACITY = 1;

export const workload: Workload = workloads.find(({ name }) => name === "get-1k") as Workload;

/** The name of the row that has no proxy: the generator sends to the upstream itself. */
export const DIRECT = "direct";

/** A contestant, or one with flags of Node. */
export interface Contender {
  readonly name: string;
  readonly contestant: Contestant;
  readonly flags: readonly string[];
}

/** Returns each contestant with each set of flags. A contestant on another runtime has no flags of Node. */
export function toContenders(
  contestants: readonly Contestant[],
  variants: readonly string[],
): Contender[] {
  return contestants.flatMap((contestant) => {
    const plain = { name: contestant.name, contestant, flags: [] };
    const isOnNode = contestant.role !== "reference" && !isOnOtherRuntime(contestant);
    if (variants.length === 0 || !isOnNode) return [plain];
    return variants.map((flags) => ({
      name: `${contestant.name} ${flags}`.trim(),
      contestant,
      flags: flags.split(" ").filter((flag) => flag !== ""),
    }));
  });
}

export async function startUpstream(pins: Pins): Promise<Program> {
  const file = fileURLToPath(new URL("../target.ts", import.meta.url));
  return Program.start(pin([process.execPath, file], pins), await freePort());
}

/** Where a row of the report sends its requests. */
export interface Runner {
  readonly name: string;
  readonly port: number;
  /** Undefined if no proxy is measured. */
  readonly program: Program | undefined;
  /** The cores of the load generator. */
  readonly pins: Pins;
  /** Requests per second as fast as possible. */
  readonly capacity: number;
}

/**
 * Starts, validates and warms up a contestant, and measures what it can.
 * @throws Error that says why it cannot be measured
 */
export async function startRunner(
  { name, contestant, flags }: Contender,
  target: string,
  directory: string,
): Promise<Runner> {
  const reason = contestant.missing?.();
  if (reason !== undefined) throw new Error(reason);
  const port = await freePort();
  const [file, ...args] = await contestant.command({ port, target, directory });
  const command = pin([file, ...flags, ...args], "proxy");
  const program = await Program.start(command, port, { TARGET: target });
  try {
    await validate(workload, port);
    await runLoad(workload, port, WARM_UP, CONNECTIONS);
    const { requests, duration } = await runLoad(workload, port, CAPACITY, CONNECTIONS);
    return { name, port, program, pins: "others", capacity: requests / duration };
  } catch (error) {
    await program.stop();
    throw error;
  }
}

/** Measures one round of a contestant at a rate. */
export async function measureRound(
  { port, program, pins }: Omit<Runner, "name" | "capacity">,
  generator: Command,
  rate: number,
  seconds: number,
): Promise<PacedRound> {
  const times = { rate, lead: LEAD, seconds, patience: PATIENCE };
  const readCpu = (): number => (program === undefined ? 0 : usageOf(program.pid).cpu);
  const before = readCpu();
  const pace = await runPace(
    generator,
    { port, path: workload.path, connections: CONNECTIONS, ...times },
    pins,
  );
  if (program?.alive === false) {
    throw new Error(`it ended: ${program.output.trim().slice(-200)}`);
  }
  // The proxy has also worked during the lead.
  const cpu = ((readCpu() - before) * seconds) / (LEAD + seconds);
  return toRound(pace, rate, cpu);
}
