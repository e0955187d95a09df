/** `npm run bench -- tail`: measures latency at fixed rates. */
import { hasCommand } from "../commands.ts";
import { type Contestant, contestants } from "../contestants.ts";
import {
  type Bench,
  decimal,
  defineBench,
  names,
  optional,
  wholeNumber,
  wholeNumbers,
} from "../flags.ts";
import { makeDirectory, reasonOf, say, startScript } from "../program.ts";
import { describeMachine } from "../report.ts";
import { requireFigures } from "../rounds.ts";
import {
  CONNECTIONS,
  DIRECT,
  measureRound,
  type Runner,
  startRunner,
  withNodeFlags,
} from "./contenders.ts";
import type { PacedRound } from "./latency.ts";
import { halfOf, summarizeTail, type TailRows, toTailDocument, writeTail } from "./tailreport.ts";

const RATES: readonly number[] = [2000, 5000];
const USUAL = "node,srvx,h3,hono,bun,deno,httpxy-server,fastify,go,nginx";
const QUICK = "node,h3,httpxy-server,fastify,go";

interface TailOptions {
  readonly contestants: readonly Contestant[];
  /**
   * The rates in requests per second. If undefined, the rates are the two fixed ones, and half of the slowest contestant's
   * highest rate.
   */
  readonly rates: readonly number[] | undefined;
  readonly rounds: number;
  readonly seconds: number;
}

function describeRound({ p50, p99, p999, longest, late, hiccup, answered }: PacedRound): string {
  const figures = { p50, p99, "p99.9": p999, longest, late, hiccup };
  const shown = Object.entries(figures).map(([name, value]) => `${name} ${value.toFixed(2)}`);
  return `${shown.join(", ")} ms, ${(100 * answered).toFixed(1)} % in time`;
}

/** Starts all contestants, and measures them at each rate. */
async function measureTail(options: TailOptions, directory: string): Promise<TailRows> {
  const { rounds, seconds } = options;
  const upstream = await startScript(new URL("../target.ts", import.meta.url));
  const runners: Runner[] = [];
  const failures: Record<string, string> = {};
  const samples: Record<string, Record<string, PacedRound[]>> = {};
  const attempt = async (name: string, work: () => Promise<string>): Promise<void> => {
    if (failures[name] !== undefined) return;
    const line = await work().catch((error: unknown) => (failures[name] = reasonOf(error)));
    say(`  ${name.padEnd(24)} ${line}`);
  };
  try {
    const { port } = upstream;
    // Without a proxy, the generator runs on the proxy's core, so that its `hiccups` show the delays of the machine on that
    // core.
    runners.push({ name: DIRECT, port, program: undefined, pins: "proxy", capacity: Number.NaN });
    for (const contestant of options.contestants) {
      await attempt(contestant.name, async () => {
        const runner = await startRunner(contestant, `http://127.0.0.1:${port}`, directory);
        runners.push(runner);
        return `${Math.round(runner.capacity)} requests/s at most`;
      });
    }
    const slowest = Math.min(...runners.flatMap(({ capacity }) => capacity || []));
    const half = Number.isFinite(slowest) ? [halfOf(slowest)] : [];
    const rates = options.rates ?? [...new Set([...RATES, ...half])];
    for (let round = 0; round < rounds; round++) {
      // Every second round runs in reverse order, so that no contestant is always first or last.
      const order = round % 2 === 1 ? runners.toReversed() : runners;
      for (const rate of rates) {
        say(`\nround ${round + 1} of ${rounds}, ${rate} requests/s`);
        for (const runner of order) {
          await attempt(runner.name, async () => {
            const sample = await measureRound(runner, directory, rate, seconds);
            ((samples[rate] ??= {})[runner.name] ??= []).push(sample);
            return describeRound(sample);
          });
        }
      }
    }
    return { rates, slowest, samples, failures };
  } finally {
    const programs = runners.flatMap(({ program }) => program ?? []);
    await Promise.all([...programs, upstream].map((each) => each.stop()));
  }
}

export const tail: Bench = defineBench({
  name: "tail",
  text: "latency at fixed rates, about eight minutes; needs Go",
  writes: "bench/tail.json and the figures of bench/tail.md",
  flags: {
    only: names("these contestants", contestants, { usual: USUAL, quick: QUICK }),
    rates: optional(
      wholeNumbers(
        `requests a second; without the flag, ${RATES.join(", ")} and half of what the slowest contestant can`,
        {},
        1_000_000,
      ),
    ),
    rounds: wholeNumber("interleaved rounds", { usual: "6", quick: "3", keepsComplete: true }),
    seconds: decimal("length of a round in seconds", {
      usual: "1.5",
      quick: "1",
      keepsComplete: true,
    }),
    "node-flags": {
      value: "<flags>",
      text: "runs each contestant on Node with these flags of Node; several sets are separated by semicolons",
      read: (value) => value?.split(";").map((flags) => flags.trim()) ?? [],
    },
  },
  async run({ only, rates, rounds, seconds, ...values }, isComplete) {
    if (!hasCommand("go")) throw new Error("the load generator needs go on the path");
    const taking = withNodeFlags(only, values["node-flags"]);
    const options = { contestants: taking, rates, rounds, seconds };
    const rows = await measureTail(options, makeDirectory());
    const settings = { rounds, seconds, connections: CONNECTIONS };
    const summary = summarizeTail({ ...describeMachine(taking), ...settings, ...rows });
    console.log(toTailDocument(summary));
    if (isComplete) writeTail(summary);
    const failed = Object.entries(rows.failures).map(([contestant, why]) => ({
      contestant,
      failed: why,
    }));
    requireFigures(taking, failed);
  },
});
