/** Measures contestants at fixed rates. */
import type { Command } from "../commands.ts";
import { type Contestant, isOnOtherRuntime, variantOf } from "../contestants.ts";
import { runLoad } from "../load.ts";
import type { Pins, Program } from "../program.ts";
import { checkAlive, startContestant } from "../rounds.ts";
import { usageOf } from "../usage.ts";
import { validate } from "../validate.ts";
import { type Workload, workloadsOf } from "../workloads.ts";
import { runPace } from "./generate.ts";
import { type PacedRound, toRound } from "./latency.ts";

export const CONNECTIONS = 64;
/** Seconds of load before each round. */
const LEAD = 0.2;
/** Seconds to wait for the last responses of a round. */
const PATIENCE = 1;
/** Seconds of load as fast as possible, first to warm up, then to measure a contestant's highest rate. */
const WARM_UP = 2;
const CAPACITY = 1;

export const workload: Workload = workloadsOf("get-1k")[0] as Workload;

/** The name of the row without a proxy: the generator sends directly to the upstream. */
export const DIRECT = "direct";

/** Returns each contestant on Node with each set of flags, and all other contestants unchanged. */
export function withNodeFlags(
  contestants: readonly Contestant[],
  variants: readonly string[],
): Contestant[] {
  return contestants.flatMap((contestant) => {
    const isOnNode = contestant.role !== "reference" && !isOnOtherRuntime(contestant);
    if (variants.length === 0 || !isOnNode) return [contestant];
    return variants.map((text) => {
      const flags = text.split(" ").filter((flag) => flag !== "");
      const { name, title } = contestant;
      const named = { name: `${name} ${text}`.trim(), title };
      const change = ([file, ...args]: Command): Command => [file, ...flags, ...args];
      return variantOf(contestant, named, change);
    });
  });
}

/** The proxy to which the requests of a row are sent, or the upstream itself. */
export interface Runner {
  readonly name: string;
  readonly port: number;
  /** The proxy; undefined if only the upstream is measured. */
  readonly program: Program | undefined;
  /** The cores of the load generator. */
  readonly pins: Pins;
  /** The highest rate that the contestant reaches, in requests per second. */
  readonly capacity: number;
}

/**
 * Starts, validates and warms up a contestant, and measures its highest rate.
 * @throws Error that says why it cannot be measured
 */
export async function startRunner(
  contestant: Contestant,
  target: string,
  directory: string,
): Promise<Runner> {
  const program = await startContestant(contestant, { target, directory });
  const { port } = program;
  try {
    await validate(workload, port);
    await runLoad(workload, port, WARM_UP, CONNECTIONS);
    const { requests, duration } = await runLoad(workload, port, CAPACITY, CONNECTIONS);
    const capacity = requests / duration;
    return { name: contestant.name, port, program, pins: "others", capacity };
  } catch (error) {
    await program.stop();
    throw error;
  }
}

/** Measures one round of a contestant at a rate. */
export async function measureRound(
  { port, program, pins }: Omit<Runner, "name" | "capacity">,
  directory: string,
  rate: number,
  seconds: number,
): Promise<PacedRound> {
  const times = { rate, lead: LEAD, seconds, patience: PATIENCE };
  const readCpu = (): number => (program === undefined ? 0 : usageOf(program.pid).cpu);
  const before = readCpu();
  const settings = { port, path: workload.path, connections: CONNECTIONS, ...times };
  const pace = await runPace(directory, settings, pins);
  if (program !== undefined) checkAlive(program);
  // The measured CPU time includes the lead, so take the share of the measured seconds.
  const cpu = ((readCpu() - before) * seconds) / (LEAD + seconds);
  return toRound(pace, rate, cpu);
}
