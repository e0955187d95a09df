/** Measures in interleaved rounds: each round measures every contestant once. */
import type { Contestant } from "./contestants.ts";
import { runLoad } from "./load.ts";
import { freePort, pin, Program } from "./program.ts";
import { usageOf } from "./usage.ts";
import { validate } from "./validate.ts";
import type { Workload } from "./workloads.ts";

/** The figures of one round of a contestant. */
export interface Sample {
  /** CPU time of the proxy per request, in µs. */
  readonly cpu: number;
  /** Requests per second. */
  readonly rps: number;
  /** Received bytes per second, including heads. Older reports lack it. */
  readonly bps?: number;
  /** The mean latency in ms, as `p50` and `p99` are its percentiles in ms. Older reports lack the mean. */
  readonly mean?: number;
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
  readonly failed?: string;
}

/** The use of TLS. */
export interface Tls {
  /** The file of the certificate of proxies and upstreams, with its key in front. It signs itself. */
  readonly certificate: string;
  /** Whether clients connect to the proxy with TLS. */
  readonly serves: boolean;
}

export interface RoundOptions {
  readonly rounds: number;
  readonly seconds: number;
  readonly connections: number;
  /** The upstream's URL. */
  readonly target: string;
  /** A directory for files that contestants need. */
  readonly directory: string;
  /** TLS on either side; undefined for none. */
  readonly tls?: Tls;
  /**
   * Whether a second of load precedes each round, so that connections to the upstream that were closed since the last round
   * are established again before it.
   */
  readonly primes?: boolean;
  /** Called after each round of each contestant. */
  readonly progress: (contestant: Contestant, what: Sample | string) => void;
}

/** The seconds of load before the first round, in which the engine compiles the code. */
export const WARM_UP = 2;

/** Returns the length of a round of a workload in seconds. */
export function secondsOf({ paced }: Workload, seconds: number): number {
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

interface Entry {
  readonly program: Program;
  readonly samples: Sample[];
}

/**
 * Starts, validates, warms up and measures the contestants. A contestant that fails in one of these steps has no
 * figures.
 */
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
          const program = await startContestant(contestant, options);
          entries.set(contestant.name, { program, samples: [] });
        } catch (error) {
          await fail(contestant, error);
        }
      }),
    );
    for (const contestant of contestants) {
      const port = entries.get(contestant.name)?.program.port;
      if (port === undefined) continue;
      try {
        await validate(workload, port, options.tls?.serves);
        await runLoad(workload, port, WARM_UP, connections, {
          secure: options.tls?.serves,
        });
      } catch (error) {
        await fail(contestant, error);
      }
    }
    await interleave(options.rounds, contestants, async (contestant) => {
      const entry = entries.get(contestant.name);
      if (entry === undefined) return;
      try {
        const sample = await runRound(workload, entry.program, options);
        entry.samples.push(sample);
        progress(contestant, sample);
      } catch (error) {
        await fail(contestant, error);
      }
    });
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

/**
 * Starts a contestant on its core.
 * @throws Error that says why it cannot run
 */
export async function startContestant(
  contestant: Contestant,
  { target, directory, tls }: Pick<RoundOptions, "target" | "directory" | "tls">,
): Promise<Program> {
  const reason = contestant.missing?.();
  if (reason !== undefined) throw new Error(reason);
  const port = await freePort();
  const command = await contestant.command({ port, target, directory, tls });
  const env = {
    TARGET: target,
    ...(tls && { NODE_EXTRA_CA_CERTS: tls.certificate }),
    ...(tls?.serves && { CERTIFICATE: tls.certificate }),
  };
  return Program.start(pin(command, "proxy"), port, env, tls?.serves);
}

async function runRound(
  workload: Workload,
  program: Program,
  { seconds, connections, tls, primes = false }: RoundOptions,
): Promise<Sample> {
  const secure = tls?.serves;
  if (primes) await runLoad(workload, program.port, 1, connections, { secure });
  const before = usageOf(program.pid);
  const { requests, duration, bytes, mean, p50, p99 } = await runLoad(
    workload,
    program.port,
    secondsOf(workload, seconds),
    connections,
    { secure },
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
