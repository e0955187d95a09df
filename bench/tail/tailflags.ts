/** Reads the command line of `npm run bench:tail`. */
import { parseArgs } from "node:util";
import { contestants, type Contestant } from "../contestants.ts";
import { number, numbers, select } from "../commandline.ts";
import { bestGenerator, type Generator } from "./generate.ts";

export interface TailOptions {
  readonly contestants: readonly Contestant[];
  /** Requests per second. Undefined: the two fixed rates, and half of what the slowest contestant can. */
  readonly rates: readonly number[] | undefined;
  readonly rounds: number;
  /** The length of a round in seconds. */
  readonly seconds: number;
  readonly generator: Generator;
  /** Flags of Node with which each contestant on Node runs, one set after the other; empty for no flags only. */
  readonly variants: readonly string[];
  /** Whether workers are measured. */
  readonly cores: boolean;
  /** Whether the figures go into tail.md and tail.json. */
  readonly complete: boolean;
}

export const RATES: readonly number[] = [2000, 5000];

const TAKING = [
  "node",
  "srvx",
  "h3",
  "hono",
  "bun",
  "deno",
  "httpxy-server",
  "fastify",
  "go",
  "nginx",
];
const DEFAULTS = { rounds: 6, seconds: 1.5, only: TAKING.join(",") };
const QUICK = { rounds: 3, seconds: 1, only: "node,h3,httpxy-server,fastify,go" };

export const tailHelp: string = `Usage: npm run bench:tail -- [flags]

Measures latency at fixed rates: each from when the request should have been sent.

  --quick              ${QUICK.rounds} rounds of ${QUICK.seconds} s at ${RATES.join(" and ")} requests a second; only ${QUICK.only}
  --only <names>       these contestants, separated by commas; a name may end in *
  --rates <n,…>        requests a second
  --rounds <n>         interleaved rounds, ${DEFAULTS.rounds} by default
  --seconds <n>        length of a round
  --generator <name>   go or node; without it, Go's if Go is installed
  --node-flags <flags> runs each contestant on Node with these flags of Node; several sets are separated by semicolons
  --cores              measures only the command with --workers
  --help               this text

Figures of a run without flags go into bench/tail.md and bench/tail.json.`;

/**
 * Reads the command line.
 * @returns undefined if the user asks for help
 * @throws TypeError that names the flag and the fix
 */
export function readTailFlags(args: string[]): TailOptions | undefined {
  const string = { type: "string" } as const;
  const boolean = { type: "boolean" } as const;
  const { values } = parseArgs({
    args,
    options: {
      quick: boolean,
      cores: boolean,
      help: { ...boolean, short: "h" },
      only: string,
      rates: string,
      rounds: string,
      seconds: string,
      generator: string,
      "node-flags": string,
    },
  });
  if (values.help) return undefined;
  const preset = values.quick ? QUICK : DEFAULTS;
  const { generator = bestGenerator } = values;
  if (generator !== "go" && generator !== "node") {
    throw new TypeError(`--generator: there is no ${JSON.stringify(generator)}; use go, node`);
  }
  const complete = Object.keys(values).every((name) => name === "rounds");
  return {
    contestants: values.cores ? [] : select("only", contestants, values.only ?? preset.only),
    rates:
      values.rates === undefined
        ? values.quick
          ? RATES
          : undefined
        : numbers("rates", values.rates, 1_000_000),
    rounds: number("rounds", values.rounds, preset.rounds),
    seconds: values.seconds === undefined ? preset.seconds : number("seconds", values.seconds, 1),
    generator,
    variants: values["node-flags"]?.split(";").map((flags) => flags.trim()) ?? [],
    cores: complete || values.cores === true,
    complete,
  };
}
