/** Measures in interleaved rounds: each round measures every contestant once. */
import type { Place, Tls } from "./commands.ts";
import type { Contestant } from "./contestants.ts";
import { runLoad } from "./load.ts";
import {
  freePort,
  makeDirectory,
  pin,
  type Pins,
  Program,
  reasonOf,
  say,
  startScript,
} from "./program.ts";
import { usageOf } from "./usage.ts";
import { validate } from "./validate.ts";
import { MIB, type Workload } from "./workloads.ts";

/** The figures of one round of a contestant. */
export interface Sample {
  /** CPU time of the proxy per request, in µs. */
  readonly cpu: number;
  /** Requests per second. */
  readonly rps: number;
  /** Received bytes per second, including header sections. */
  readonly bps: number;
  /** The mean latency in ms. `p50` and `p99` are percentiles of the latency, also in ms. */
  readonly mean: number;
  readonly p50: number;
  readonly p99: number;
  /** The resident memory in bytes after the round. */
  readonly rss: number;
}

export interface Measurement {
  readonly contestant: string;
  readonly workload: string;
  readonly connections: number;
  readonly samples: readonly Sample[];
  /** The reason why there are no figures. */
  readonly failed?: string | undefined;
}

interface RoundOptions {
  readonly contestants: readonly Contestant[];
  readonly workloads: readonly Workload[];
  /** The numbers of connections of the load. Each is measured in turn. */
  readonly connections: readonly number[];
  readonly rounds: number;
  readonly seconds: number;
  /** The script of the upstream, if it is not `target.ts`. */
  readonly upstream?: URL;
  /** The TLS settings; undefined if neither the proxies nor the upstream use TLS. */
  readonly tls?: Tls & { readonly isUpstreamSecure: boolean };
  /**
   * Whether a second of load, which is not measured, precedes each round. It replaces the connections to the upstream that were
   * closed after the last round.
   */
  readonly primes?: boolean;
}

/** Further settings for the rounds of one workload. */
interface Cell extends RoundOptions {
  readonly workload: Workload;
  readonly count: number;
  readonly place: Omit<Place, "port">;
}

/** The seconds of load before the first round, during which the engine optimizes the code. */
const WARM_UP = 2;

/** Returns the length of a round of a workload in seconds. */
function secondsOf({ paced }: Workload, seconds: number): number {
  return paced ? Math.ceil(seconds / 2) : seconds;
}

/**
 * Runs each item once in every round. Every second round runs in reverse order, so that no item is always first or last.
 */
export async function interleave<T>(
  rounds: number,
  items: readonly T[],
  run: (item: T) => Promise<void>,
): Promise<void> {
  for (let round = 0; round < rounds; round++) {
    for (const item of round % 2 === 1 ? items.toReversed() : items) await run(item);
  }
}

/**
 * The overhead in seconds for starting, validating and stopping a contestant, and for each run of the load generator.
 */
const OVERHEAD = { contestant: 0.3, load: 0.06 };

function minutes(seconds: number): string {
  return seconds < 90 ? `${Math.round(seconds)} s` : `${(seconds / 60).toFixed(1)} min`;
}

function show({ cpu, rps, bps, mean, p50, p99 }: Sample): string {
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

/** Measures each workload with each number of connections, and prints the progress. */
export async function measure(options: RoundOptions): Promise<Measurement[]> {
  const { contestants, workloads, connections, rounds, seconds, tls } = options;
  const cells = connections.flatMap((count) => workloads.map((workload) => ({ count, workload })));
  const total = cells.reduce((sum, { workload }) => {
    const load = WARM_UP + rounds * secondsOf(workload, seconds) + (rounds + 1) * OVERHEAD.load;
    return sum + contestants.length * (load + OVERHEAD.contestant);
  }, 0);
  say(
    `${contestants.length} contestants, ${cells.length} workloads, ${rounds} rounds of ${seconds} s: about ${minutes(total)}`,
  );
  const script = options.upstream ?? new URL("target.ts", import.meta.url);
  const certificate = tls?.isUpstreamSecure ? tls.certificate : undefined;
  const upstream = await startScript(script, { certificate });
  const target = `${certificate === undefined ? "http" : "https"}://127.0.0.1:${upstream.port}`;
  const place = { target, directory: makeDirectory(), tls };
  const results: Measurement[] = [];
  const began = performance.now();
  try {
    for (const [done, cell] of cells.entries()) {
      say(`\n${cell.workload.title}, ${cell.count} connections`);
      results.push(...(await measureCell({ ...options, ...cell, place })));
      const elapsed = (performance.now() - began) / 1000;
      const left = (elapsed / (done + 1)) * (cells.length - done - 1);
      say(`${minutes(elapsed)} gone, ${minutes(left)} to go`);
    }
  } finally {
    await upstream.stop();
  }
  return results;
}

interface Entry {
  readonly program: Program;
  readonly samples: Sample[];
}

function report({ title }: Contestant, what: string): void {
  say(`  ${title.padEnd(38)} ${what}`);
}

/**
 * Starts, validates, warms up and measures the contestants under one workload. A contestant that fails in one of these
 * steps has no figures.
 */
async function measureCell(cell: Cell): Promise<Measurement[]> {
  const { contestants, workload, count, place } = cell;
  const entries = new Map<string, Entry>();
  const failures = new Map<string, string>();
  const attempt = async (contestant: Contestant, work: () => Promise<void>): Promise<void> => {
    const { name } = contestant;
    if (failures.has(name)) return;
    try {
      await work();
    } catch (error) {
      const reason = reasonOf(error);
      failures.set(name, reason);
      report(contestant, `failed: ${reason}`);
      await entries.get(name)?.program.stop();
      entries.delete(name);
    }
  };
  const entryOf = ({ name }: Contestant): Entry => entries.get(name) as Entry;

  try {
    await Promise.all(
      contestants.map((contestant) =>
        attempt(contestant, async () => {
          const program = await startContestant(contestant, place);
          entries.set(contestant.name, { program, samples: [] });
        }),
      ),
    );
    for (const contestant of contestants) {
      await attempt(contestant, async () => {
        const { port } = entryOf(contestant).program;
        await validate(workload, port, place.tls?.serves);
        await runLoad(workload, port, WARM_UP, count, { secure: place.tls?.serves });
      });
    }
    await interleave(cell.rounds, contestants, (contestant) =>
      attempt(contestant, async () => {
        const { program, samples } = entryOf(contestant);
        const sample = await runRound(cell, program);
        samples.push(sample);
        report(contestant, show(sample));
      }),
    );
  } finally {
    await Promise.all(Array.from(entries.values(), ({ program }) => program.stop()));
  }

  return contestants.map(({ name }) => ({
    contestant: name,
    workload: workload.name,
    connections: count,
    samples: entries.get(name)?.samples ?? [],
    failed: failures.get(name),
  }));
}

/**
 * Starts a contestant on the cores of `pins`, and waits until it is ready.
 * @throws Error that says why it cannot run
 */
export async function startContestant(
  contestant: Contestant,
  place: Omit<Place, "port">,
  pins: Pins = "proxy",
): Promise<Program> {
  const reason = contestant.missing?.();
  if (reason !== undefined) throw new Error(reason);
  const port = await freePort();
  const { target, tls } = place;
  const command = await contestant.command({ ...place, port });
  const env = {
    TARGET: target,
    ...(tls && { NODE_EXTRA_CA_CERTS: tls.certificate }),
    ...(tls?.serves && { CERTIFICATE: tls.certificate }),
  };
  return Program.start(pin(command, pins), port, env, tls?.serves ? "https" : "http");
}

/** @throws Error if the program has ended */
export function checkAlive({ alive, output }: Program): void {
  if (!alive) throw new Error(`it ended: ${output.trim().slice(-200)}`);
}

async function runRound(
  { workload, count, seconds, place: { tls }, primes = false }: Cell,
  program: Program,
): Promise<Sample> {
  const secure = tls?.serves;
  const { pid, port } = program;
  if (primes) await runLoad(workload, port, 1, count, { secure });
  const before = usageOf(pid);
  const length = secondsOf(workload, seconds);
  const load = await runLoad(workload, port, length, count, { secure });
  const after = usageOf(pid);
  checkAlive(program);
  const { requests, duration, bytes, mean, p50, p99 } = load;
  return {
    cpu: ((after.cpu - before.cpu) / requests) * 1e6,
    rps: requests / duration,
    bps: bytes / duration,
    mean,
    p50,
    p99,
    rss: after.rss,
  };
}

/** Makes the process fail if one of Fetchway's contestants has failed. Other proxies may lack a feature. */
export function requireFigures(
  contestants: readonly Contestant[],
  results: readonly { readonly contestant: string; readonly failed?: string | undefined }[],
): void {
  const reasons = new Map(results.map((each) => [each.contestant, each.failed]));
  const ours = contestants.filter(({ role }) => role === "fetchway");
  if (ours.some(({ name }) => reasons.get(name) !== undefined)) process.exitCode = 1;
}
