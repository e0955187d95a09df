/** Compares contestants within a run. */
import { contestantOf } from "./contestants.ts";
import type { Measurement, Sample } from "./rounds.ts";
import { median, ratios, spread } from "./statistics.ts";

/** What Fetchway's contestants are compared with; see `baseOf`. */
export const BASES = ["floor", "nginx", "go", "peer", "rival"] as const;
export type Base = (typeof BASES)[number];

export const BASE_TITLES: Readonly<Record<Base, string>> = {
  floor: "to the floor",
  nginx: "to nginx",
  go: "to Go",
  peer: "to the best Node peer",
  rival: "to the host's own, or the naive one",
};

/** Whether a contestant is Fetchway. */
export function isOurs(name: string): boolean {
  return contestantOf(name)?.role === "fetchway";
}

/** Whether a contestant may be "the best Node peer", which is the one with the best figure. */
export function isPeer(name: string): boolean {
  const role = contestantOf(name)?.role;
  return role === "peer" || role === "own";
}

/** Returns the title of a contestant for Markdown. The titles of Fetchway's contestants are bold. */
export function toTitle(name: string): string {
  const { title = name } = contestantOf(name) ?? {};
  return isOurs(name) ? `**${title}**` : title;
}

/** The subject of a comparison: the rounds of a contestant under one load. */
interface Compared {
  readonly contestant: string;
  readonly workload: string;
  readonly connections: number;
  readonly samples: readonly { readonly cpu: number }[];
  /** The reason why there are no figures. */
  readonly failed?: string | undefined;
}

/** Returns the CPU time of each round. */
export function cpuOf({ samples }: Compared): number[] {
  return samples.map(({ cpu }) => cpu);
}

export function valuesOf({ samples }: Measurement, what: keyof Sample): number[] {
  return samples.map((sample) => sample[what]);
}

/** Returns the successful measurements with the same workload and number of connections as `one`. */
export function besides<T extends Compared>(all: readonly T[], one: Compared): T[] {
  return all.filter(
    ({ workload, connections, failed }) =>
      workload === one.workload && connections === one.connections && failed === undefined,
  );
}

/** Finds the measurement with which `one` is compared for a base; undefined if there is none. */
export function baseOf<T extends Compared>(
  all: readonly T[],
  one: Compared,
  base: Base,
): T | undefined {
  const others = besides(all, one);
  const named = (name: string | undefined): T | undefined =>
    others.find(({ contestant }) => contestant === name);
  if (base === "rival" || base === "floor") return named(contestantOf(one.contestant)?.[base]);
  if (base !== "peer") return named(base);
  return others
    .filter(({ contestant }) => isPeer(contestant))
    .toSorted((a, b) => median(cpuOf(a)) - median(cpuOf(b)))[0];
}

/** The CPU time per request as a ratio to that of another contestant, and the uncertainty of the ratio. */
export interface Comparison {
  readonly ratio: number;
  /** The spread of the rounds' ratios; `NaN` after one round. */
  readonly noise: number;
}

/**
 * Compares a measurement with a base.
 * @returns undefined if there is no measurement of that base
 */
export function compare(
  all: readonly Compared[],
  one: Compared,
  base: Base,
): Comparison | undefined {
  const other = baseOf(all, one, base);
  if (other === undefined || other === one || one.failed !== undefined) return undefined;
  const each = ratios(cpuOf(one), cpuOf(other));
  return { ratio: median(each), noise: spread(each) };
}

/** Whether a measured ratio meets a goal. "within the noise" means that another run may give the opposite result. */
export const VERDICTS = [
  "met",
  "met, within the noise",
  "missed, within the noise",
  "missed",
] as const;
type Verdict = (typeof VERDICTS)[number];

/** Compares a ratio with a goal. The noise of a single round is `NaN`, so that its ratio is always within the noise. */
export function judge({ ratio, noise }: Comparison, most: number): Verdict {
  const verdict = ratio <= most ? "met" : "missed";
  return Math.abs(ratio - most) > noise ? verdict : `${verdict}, within the noise`;
}

/** Returns a ratio with its uncertainty; `?` after a single round. */
export function show({ ratio, noise }: Comparison): string {
  return `${ratio.toFixed(2)} ± ${Number.isNaN(noise) ? "?" : noise.toFixed(2)}`;
}

export function emphasize(verdict: Verdict): string {
  return verdict.replace("missed", "**missed**");
}
