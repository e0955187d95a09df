/** Reads the command line of `npm run bench`. */
import { parseArgs } from "node:util";
import { number, numbers, select } from "./commandline.ts";
import { contestants, type Contestant } from "./contestants.ts";
import { type Workload, workloads } from "./workloads.ts";

export interface BenchOptions {
  readonly contestants: readonly Contestant[];
  readonly workloads: readonly Workload[];
  readonly rounds: number;
  /** The length of a round in seconds. */
  readonly seconds: number;
  /** The numbers of connections. Each is measured in a run of its own. */
  readonly connections: readonly number[];
  /**
   * The numbers of upstream origins. Each is measured in a run of its own. Only Fetchway runs with more than one
   * origin.
   */
  readonly origins: readonly number[];
  /** Whether all contestants and workloads run. Only then are the figures written to README. */
  readonly complete: boolean;
}

const DEFAULTS = { rounds: 5, seconds: 2, connections: 64 };
/** A quick run, which only shows whether something has become much slower. */
const QUICK = { rounds: 3, seconds: 1, workloads: ["get-1k", "post-1k"] };

/** A long round with many connections, in the way that benchmarks of proxies are often published. */
const PAPER = { rounds: 1, seconds: 60, connections: 128, workloads: ["get-1k", "post-1k"] };

export const help: string = `Usage: npm run bench -- [flags]

Runs several proxies under the same workloads and reports the CPU time of a request in each of them.

  --quick               ${QUICK.rounds} rounds of ${QUICK.seconds} s, ${QUICK.workloads.join(" and ")} only
  --paper               ${PAPER.rounds} round of ${PAPER.seconds} s with ${PAPER.connections} connections, the same workloads
  --only <names>        these contestants, separated by commas; a name may end in *
  --workloads <names>   these workloads
  --rounds <n>          interleaved rounds, ${DEFAULTS.rounds} by default
  --seconds <n>         length of a round, ${DEFAULTS.seconds} by default
  --connections <n,…>   connections of the load, ${DEFAULTS.connections} by default; several numbers are measured in sequence
  --origins <n,…>       Fetchway with this number of upstream origins (Linux), instead of the contestants
  --help                this text

Contestants: ${contestants.map(({ name }) => name).join(", ")}
Workloads: ${workloads.map(({ name }) => name).join(", ")}

Figures of a complete run go into bench/README.md, bench/chart*.svg and bench/results.json;
the single rounds of any run into bench/_rounds.json.`;

/**
 * Reads the command line.
 * @returns undefined if the user asks for help
 * @throws TypeError that names the flag and the fix
 */
export function readFlags(args: string[]): BenchOptions | undefined {
  const values = parse(args);
  if (values.help) return undefined;
  if (values.quick && values.paper) throw new TypeError("use --quick or --paper, not both");
  const { rounds, seconds, connections, workloads: chosen } = presetOf(values);
  const origins = values.origins === undefined ? [] : numbers("origins", values.origins, 1000);
  return {
    contestants: select("only", contestants, values.only),
    workloads: select("workloads", workloads, values.workloads ?? chosen?.join(",")),
    rounds: number("rounds", values.rounds, rounds),
    seconds: number("seconds", values.seconds, seconds),
    connections: numbers("connections", values.connections ?? `${connections}`, 10_000),
    origins,
    // Flags that only change the number and length of rounds do not make a run incomplete.
    complete: Object.keys(values).every((name) => name === "rounds" || name === "seconds"),
  };
}

interface Preset {
  readonly rounds: number;
  readonly seconds: number;
  readonly connections: number;
  /** The names of the workloads; all workloads if undefined. */
  readonly workloads?: readonly string[];
}

function presetOf({ quick, paper }: Values): Preset {
  if (paper) return PAPER;
  return quick ? { ...DEFAULTS, ...QUICK } : DEFAULTS;
}

type Values = Partial<
  Record<"only" | "workloads" | "rounds" | "seconds" | "connections" | "origins", string>
> &
  Partial<Record<"quick" | "paper" | "help", boolean>>;

function parse(args: string[]): Values {
  const string = { type: "string" } as const;
  try {
    return parseArgs({
      args,
      options: {
        quick: { type: "boolean" },
        paper: { type: "boolean" },
        help: { type: "boolean", short: "h" },
        only: string,
        workloads: string,
        rounds: string,
        seconds: string,
        connections: string,
        origins: string,
      },
    }).values;
  } catch (error) {
    throw new TypeError((error as Error).message.split(". ")[0], { cause: error });
  }
}
