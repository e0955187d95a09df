/** Interleaved rounds: each contestant once, then each once more. */
import type { Contestant } from "./contestants.ts";
import { runLoad } from "./load.ts";
import { freePort, pin, Program } from "./program.ts";
import { usageOf } from "./usage.ts";
import { validate } from "./validate.ts";
import type { Workload } from "./workloads.ts";

/** What one round of one contestant has shown. */
export interface Sample {
  /** CPU time of the proxy per request, in µs. */
  readonly cpu: number;
  /** Requests per second. */
  readonly rps: number;
  /** Bytes per second that were received, heads included; older reports do not say. */
  readonly bps?: number;
  /** Latency in ms; older reports do not say the mean. */
  readonly mean?: number;
  readonly p50: number;
  readonly p99: number;
  /** Resident memory after it, in bytes. */
  readonly rss: number;
}

export interface Measurement {
  readonly contestant: string;
  readonly workload: string;
  readonly connections: number;
  readonly samples: readonly Sample[];
  /** Why there are no figures. */
  readonly failed?: string;
}

export interface RoundOptions {
  readonly rounds: number;
  readonly seconds: number;
  readonly connections: number;
  /** The upstream's URL. */
  readonly target: string;
  /** A directory for what contestants need. */
  readonly directory: string;
  /** Told after each round of each contestant. */
  readonly progress: (contestant: Contestant, what: Sample | string) => void;
}

/** Seconds of load before the first round, so that everything is compiled. */
export const WARM_UP = 2;

/** How long a round of a workload is. */
export function secondsOf({ paced }: Workload, seconds: number): number {
  return paced ? Math.ceil(seconds / 2) : seconds;
}

interface Entry {
  readonly contestant: Contestant;
  readonly program: Program;
  readonly samples: Sample[];
}

/** Starts, validates, warms up and measures the contestants; one that fails anywhere has no figures. */
export async function measure(
  workload: Workload,
  contestants: readonly Contestant[],
  options: RoundOptions,
): Promise<Measurement[]> {
  const { connections, progress } = options;
  const entries = new Map<string, Entry>();
  const failures = new Map<string, string>();
  const fail = async (contestant: Contestant, error: unknown): Promise<void> => {
    const reason = (error as Error).message.split("\n", 1)[0] ?? "";
    failures.set(contestant.name, reason);
    progress(contestant, `failed: ${reason}`);
    await entries.get(contestant.name)?.program.stop();
    entries.delete(contestant.name);
  };

  try {
    await Promise.all(
      contestants.map(async (contestant) => {
        try {
          const program = await start(contestant, options);
          entries.set(contestant.name, { contestant, program, samples: [] });
        } catch (error) {
          await fail(contestant, error);
        }
      }),
    );
    for (const contestant of contestants) {
      const port = entries.get(contestant.name)?.program.port;
      if (port === undefined) continue;
      try {
        await validate(workload, port);
        await runLoad(workload, port, WARM_UP, connections);
      } catch (error) {
        await fail(contestant, error);
      }
    }
    for (let round = 0; round < options.rounds; round++) {
      const order = contestants.flatMap(({ name }) => entries.get(name) ?? []);
      // Every second round runs in reverse order, so that no contestant is always first or last.
      if (round % 2 === 1) order.reverse();
      for (const { contestant, program, samples } of order) {
        try {
          const sample = await runRound(workload, program, options);
          samples.push(sample);
          progress(contestant, sample);
        } catch (error) {
          await fail(contestant, error);
        }
      }
    }
  } finally {
    await Promise.all(Array.from(entries.values(), ({ program }) => program.stop()));
  }

  return contestants.map(({ name }) => {
    const failed = failures.get(name);
    const samples = entries.get(name)?.samples ?? [];
    const measurement = { contestant: name, workload: workload.name, connections, samples };
    return failed === undefined ? measurement : { ...measurement, failed };
  });
}

async function start(contestant: Contestant, options: RoundOptions): Promise<Program> {
  const { target, directory } = options;
  const reason = contestant.missing?.();
  if (reason !== undefined) throw new Error(reason);
  const port = await freePort();
  const command = await contestant.command({ port, target, directory });
  return Program.start(pin(command, "proxy"), port, { TARGET: target });
}

async function runRound(
  workload: Workload,
  program: Program,
  { seconds, connections }: RoundOptions,
): Promise<Sample> {
  const before = usageOf(program.pid);
  const { requests, duration, bytes, mean, p50, p99 } = await runLoad(
    workload,
    program.port,
    secondsOf(workload, seconds),
    connections,
  );
  const after = usageOf(program.pid);
  if (!program.alive) throw new Error(`it ended: ${program.output.trim().slice(-200)}`);
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
