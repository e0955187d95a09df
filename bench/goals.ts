/** The project's own goals, as ratios of CPU per request. */
import { type Base, BASE_TITLES, compare, type Comparison, contestantOf } from "./ratios.ts";
import type { Measurement } from "./rounds.ts";
import { workloads } from "./workloads.ts";

interface Goal {
  readonly contestants: readonly string[];
  readonly workloads: readonly string[];
  readonly base: Base;
  readonly most: number;
}

const small = ["get-1k", "post-1k"];
const large = ["get-1m", "post-1m"];
const every = workloads.map(({ name }) => name);
const hosted = ["srvx", "h3", "hono"];

function goals(
  names: string[],
  among: string[],
  limits: Partial<Record<Base, number>>,
): readonly Goal[] {
  return Object.entries(limits).map(([base, most]) => ({
    contestants: names,
    workloads: among,
    base: base as Base,
    most,
  }));
}

export const GOALS: readonly Goal[] = [
  ...goals(["node"], small, { peer: 0.5, go: 0.75, floor: 1.12 }),
  ...goals(["node"], ["get-1k"], { nginx: 2 }),
  ...goals(["node"], ["get-1m"], { nginx: 1 }),
  ...goals(["node-undici"], ["get-1k"], { floor: 1.1 }),
  ...goals(["node-undici"], ["post-1k"], { floor: 1.3 }),
  ...goals(["srvx"], small, { peer: 0.5, go: 0.8, floor: 1.2, rival: 0.28 }),
  ...goals(["h3"], small, { peer: 0.55, go: 0.8, floor: 1.2, rival: 0.28 }),
  ...goals(["hono"], small, { peer: 0.6, go: 0.85, floor: 1.3, rival: 0.28 }),
  ...goals(["node"], ["get-64k", ...large], { peer: 0.45, floor: 1.1 }),
  ...goals(["srvx", "h3"], ["get-64k"], { peer: 0.6, floor: 1.15 }),
  ...goals(["srvx", "h3"], large, { peer: 0.8, floor: 1.1 }),
  ...goals(["hono"], ["get-64k"], { peer: 0.55, floor: 1.15 }),
  ...goals(["hono"], ["get-1m"], { peer: 0.55, floor: 1.1 }),
  ...goals(["hono"], ["post-1m"], { peer: 0.8, floor: 1.1 }),
  ...goals(hosted, ["get-64k"], { rival: 0.5 }),
  ...goals(hosted, large, { rival: 0.65 }),
  ...goals(["bun", "deno"], every, { rival: 1.15 }),
  ...goals(["workerd"], every, { rival: 1.25, floor: 1.1 }),
];

/** What a measured ratio says of a goal. "within the noise" means that another run may give the opposite result. */
export type Verdict = "met" | "met, within the noise" | "missed, within the noise" | "missed";

/** Compares a ratio with a goal. The noise of a single round is `NaN`, so that its ratio is always within the noise. */
export function judge({ ratio, noise }: Comparison, most: number): Verdict {
  const verdict = ratio <= most ? "met" : "missed";
  return Math.abs(ratio - most) > noise ? verdict : `${verdict}, within the noise`;
}

/**
 * Returns a Markdown table of the goals and the measured ratios, or undefined if no goal's contestants were measured.
 */
export function toGoalTable(results: readonly Measurement[]): string | undefined {
  const rows = GOALS.flatMap(({ base, most, ...goal }) =>
    goal.contestants.flatMap((name) =>
      goal.workloads.flatMap((workload) => {
        const one = results.find((each) => each.contestant === name && each.workload === workload);
        const measured = one && compare(results, one, base);
        if (measured === undefined) return [];
        const title = workloads.find((each) => each.name === workload)?.title ?? workload;
        return `| ${contestantOf(name)?.title} | ${title} | ${BASE_TITLES[base]} | ${most.toFixed(2)} | ${show(measured)} | ${emphasize(judge(measured, most))} |`;
      }),
    ),
  );
  if (rows.length === 0) return undefined;
  return [
    "| | | CPU per request, ratio | goal | measured | |",
    "|---|---|---|--:|--:|---|",
    ...rows,
  ].join("\n");
}

/** Returns a ratio with its uncertainty; `?` after a single round. */
export function show({ ratio, noise }: Comparison): string {
  return `${ratio.toFixed(2)} ± ${Number.isNaN(noise) ? "?" : noise.toFixed(2)}`;
}

/** Makes a missed goal stand out. */
export function emphasize(verdict: Verdict): string {
  return verdict.replace("missed", "**missed**");
}
