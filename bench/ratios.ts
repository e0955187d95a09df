/** How contestants compare, within one run. */
import { type Contestant, contestants, type Role } from "./contestants.ts";
import type { Measurement, Sample } from "./rounds.ts";
import { median, ratios, spread } from "./statistics.ts";

/** What the others are compared with. */
export const BASES = ["floor", "go", "peer", "rival"] as const;
export type Base = (typeof BASES)[number];

export const BASE_TITLES: Readonly<Record<Base, string>> = {
  floor: "to the floor",
  go: "to Go",
  peer: "to the best Node peer",
  rival: "to the host's own, or the naive one",
};

/** Whose best is "the best Node peer". */
const PEERS: ReadonlySet<Role | undefined> = new Set(["peer", "own"]);

export function contestantOf(name: string): Contestant | undefined {
  return contestants.find((each) => each.name === name);
}

/** The title of a contestant for Markdown; Fetchway's are bold. */
export function toTitle(name: string): string {
  const { title = name, role } = contestantOf(name) ?? {};
  return role === "fetchway" ? `**${title}**` : title;
}

export function valuesOf({ samples }: Measurement, what: keyof Sample): number[] {
  return samples.flatMap((sample) => sample[what] ?? []);
}

/** The measurements of the same workload and load. */
export function besides(all: readonly Measurement[], one: Measurement): Measurement[] {
  return all.filter(
    ({ workload, connections, failed }) =>
      workload === one.workload && connections === one.connections && failed === undefined,
  );
}

/** Finds the measurement to compare with; undefined if no contestant of that kind has figures. */
export function baseOf(
  all: readonly Measurement[],
  one: Measurement,
  base: Base,
): Measurement | undefined {
  const others = besides(all, one);
  const named = (name: string | undefined): Measurement | undefined =>
    others.find(({ contestant }) => contestant === name);
  if (base === "rival") return named(contestantOf(one.contestant)?.rival);
  if (base !== "peer") return named(base);
  return others
    .filter(({ contestant }) => PEERS.has(contestantOf(contestant)?.role))
    .toSorted((a, b) => median(valuesOf(a, "cpu")) - median(valuesOf(b, "cpu")))[0];
}

/** CPU per request beside another's, and how far that may be off. */
export interface Comparison {
  readonly ratio: number;
  /** Spread of the rounds' ratios; `NaN` after one round. */
  readonly noise: number;
}

/** Undefined where there is nothing to compare with. */
export function compare(
  all: readonly Measurement[],
  one: Measurement,
  base: Base,
): Comparison | undefined {
  const other = baseOf(all, one, base);
  if (other === undefined || other === one || one.failed !== undefined) return undefined;
  const each = ratios(valuesOf(one, "cpu"), valuesOf(other, "cpu"));
  return { ratio: median(each), noise: spread(each) };
}
