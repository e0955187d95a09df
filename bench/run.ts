/** `npm run bench`: measures several proxies under the same workloads. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { Contestant } from "./contestants.ts";
import { readCommandLine } from "./commandline.ts";
import { type BenchOptions, help, readFlags } from "./flags.ts";
import { origins as originsContestant } from "./origins.ts";
import { freePort, pin, Program } from "./program.ts";
import { contestantOf } from "./ratios.ts";
import { describeMachine, type Report, toMarkdown, writeReport } from "./report.ts";
import { measure, type Measurement, type Sample, secondsOf, WARM_UP } from "./rounds.ts";
import { MIB } from "./workloads.ts";

/**
 * The overhead in seconds for starting, validating and stopping a contestant, and for each run of the load generator.
 */
const OVERHEAD = { contestant: 0.3, load: 0.06 };

function say(line: string): void {
  process.stderr.write(`${line}\n`);
}

function minutes(seconds: number): string {
  return seconds < 90 ? `${Math.round(seconds)} s` : `${(seconds / 60).toFixed(1)} min`;
}

function show(sample: Sample | string): string {
  if (typeof sample === "string") return sample;
  const { cpu, rps, bps = NaN, mean = NaN, p50, p99 } = sample;
  const parts = [
    `${cpu.toFixed(1)} µs CPU`,
    `${Math.round(rps)} requests/s`,
    `${(bps / MIB).toFixed(1)} MiB/s`,
    `mean ${mean.toFixed(2)} ms`,
    `p50 ${p50.toFixed(2)} ms`,
    `p99 ${p99.toFixed(2)} ms`,
  ];
  return parts.join(", ");
}

async function runAll(
  contestants: readonly Contestant[],
  options: BenchOptions,
  directory: string,
): Promise<Measurement[]> {
  const { workloads, connections, rounds, seconds } = options;
  const cells = contestants.length * workloads.length * connections.length;
  const total = workloads.reduce((sum, workload) => {
    const load = WARM_UP + rounds * secondsOf(workload, seconds) + (rounds + 1) * OVERHEAD.load;
    return sum + contestants.length * connections.length * (load + OVERHEAD.contestant);
  }, 0);
  say(
    `${contestants.length} contestants, ${workloads.length} workloads, ${rounds} rounds of ${seconds} s: about ${minutes(total)}`,
  );
  const port = await freePort();
  const file = fileURLToPath(new URL("target.ts", import.meta.url));
  const upstream = await Program.start(pin([process.execPath, file], "others"), port);
  const results: Measurement[] = [];
  const began = performance.now();
  let done = 0;
  try {
    for (const count of connections) {
      for (const workload of workloads) {
        say(`\n${workload.title}, ${count} connections`);
        const measurements = await measure(workload, contestants, {
          rounds,
          seconds,
          connections: count,
          target: `http://127.0.0.1:${port}`,
          directory,
          progress: (contestant, what) => say(`  ${contestant.title.padEnd(30)} ${show(what)}`),
        });
        results.push(...measurements);
        done += contestants.length;
        const elapsed = (performance.now() - began) / 1000;
        say(`${minutes(elapsed)} gone, ${minutes((elapsed / done) * (cells - done))} to go`);
      }
    }
  } finally {
    await upstream.stop();
  }
  return results;
}

async function main(): Promise<void> {
  const options = readCommandLine("bench", help, readFlags);
  if (options === undefined) return;
  const directory = mkdtempSync(join(tmpdir(), "fetchway-bench-"));
  process.on("exit", () => rmSync(directory, { recursive: true, force: true }));
  const { origins, rounds, seconds } = options;
  const contestants = origins.length > 0 ? origins.map(originsContestant) : options.contestants;
  const results = await runAll(contestants, options, directory);
  const report: Report = { ...describeMachine(contestants), rounds, seconds, results };
  console.log(toMarkdown(report));
  for (const file of writeReport(report, options.complete)) say(`wrote ${file}`);
  const failed = results.filter((each) => each.failed !== undefined);
  if (failed.length > 0)
    say(`no figures: ${failed.map(({ contestant }) => contestant).join(", ")}`);
  // Other proxies may lack a feature and so have no figures, but if Fetchway has none, the run fails.
  if (failed.some(({ contestant }) => contestantOf(contestant)?.role === "fetchway")) {
    process.exitCode = 1;
  }
}

await main();
