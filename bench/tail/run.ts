/** `npm run bench:tail`: measures latency at fixed rates, for bench/tail.md. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describeMachine } from "../report.ts";
import {
  type Contender,
  CONNECTIONS,
  DIRECT,
  measureRound,
  type Runner,
  startRunner,
  startUpstream,
  toContenders,
} from "./contenders.ts";
import { measureCores, type WorkersFigures } from "./cores.ts";
import { commandOf } from "./generate.ts";
import type { PacedRound } from "./latency.ts";
import { readCommandLine } from "../commandline.ts";
import { RATES, readTailFlags, tailHelp, type TailOptions } from "./tailflags.ts";
import { halfOf, summarizeTail, type TailRows, toTailDocument, writeTail } from "./tailreport.ts";

function say(line: string): void {
  process.stderr.write(`${line}\n`);
}

function describe({ p50, p99, p999, longest, late, hiccup, answered }: PacedRound): string {
  const figures = { p50, p99, "p99.9": p999, longest, late, hiccup };
  const shown = Object.entries(figures).map(([name, value]) => `${name} ${value.toFixed(2)}`);
  return `${shown.join(", ")} ms, ${(100 * answered).toFixed(1)} % in time`;
}

/** Starts all contestants, and measures them at each rate. */
async function measureTail(options: TailOptions, directory: string): Promise<TailRows> {
  const { rounds, seconds } = options;
  const generator = commandOf(options.generator, directory);
  const upstream = await startUpstream("others");
  const runners: Runner[] = [];
  const failures: Record<string, string> = {};
  const samples: Record<string, Record<string, PacedRound[]>> = {};
  try {
    const { port } = upstream;
    // Without a proxy, the generator has the proxy's core: so its meter shows what the machine does there.
    runners.push({ name: DIRECT, port, program: undefined, pins: "proxy", capacity: Number.NaN });
    const contenders: Contender[] = toContenders(options.contestants, options.variants);
    for (const contender of contenders) {
      try {
        const runner = await startRunner(contender, `http://127.0.0.1:${port}`, directory);
        runners.push(runner);
        say(`  ${runner.name.padEnd(24)} ${Math.round(runner.capacity)} requests/s at most`);
      } catch (error) {
        failures[contender.name] = (error as Error).message.split("\n", 1)[0] ?? "";
        say(`  ${contender.name.padEnd(24)} ${failures[contender.name]}`);
      }
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
          if (failures[runner.name] !== undefined) continue;
          try {
            const sample = await measureRound(runner, generator, rate, seconds);
            ((samples[rate] ??= {})[runner.name] ??= []).push(sample);
            say(`  ${runner.name.padEnd(24)} ${describe(sample)}`);
          } catch (error) {
            failures[runner.name] = (error as Error).message.split("\n", 1)[0] ?? "";
            say(`  ${runner.name.padEnd(24)} ${failures[runner.name]}`);
          }
        }
      }
    }
    return { rates, slowest, samples, failures };
  } finally {
    const programs = runners.flatMap(({ program }) => program ?? []);
    await Promise.all([...programs, upstream].map((each) => each.stop()));
  }
}

async function main(): Promise<void> {
  const options = readCommandLine("bench:tail", tailHelp, readTailFlags);
  if (options === undefined) return;
  const directory = mkdtempSync(join(tmpdir(), "fetchway-bench-"));
  process.on("exit", () => rmSync(directory, { recursive: true, force: true }));
  const began = performance.now();
  const { contestants, rounds, seconds, generator } = options;
  const rows =
    contestants.length > 0
      ? await measureTail(options, directory)
      : { rates: [], slowest: Number.NaN, samples: {}, failures: {} };
  let cores: WorkersFigures[] = [];
  if (options.cores) {
    say("\none process and two");
    cores = await measureCores(commandOf(generator, directory), say);
  }
  const machine = describeMachine(contestants);
  const settings = { rounds, seconds, connections: CONNECTIONS, pacer: generator };
  const summary = summarizeTail({ ...machine, ...settings, ...rows, cores });
  console.log(toTailDocument(summary));
  if (options.complete) for (const file of writeTail(summary)) say(`wrote ${file}`);
  say(`${Math.round((performance.now() - began) / 1000)} s`);
  if (contestants.some(({ name, role }) => role === "fetchway" && rows.failures[name])) {
    process.exitCode = 1;
  }
}

await main();
