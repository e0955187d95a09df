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
const every = workloads.map(({ name }) => name);
const onNode = ["node", "srvx", "h3", "hono"];
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
  ...goals(["node"], small, { peer: 0.6, go: 0.75, floor: 1.12 }),
  ...goals(["node-undici"], ["get-1k"], { floor: 1.1 }),
  ...goals(["node-undici"], ["post-1k"], { floor: 1.3 }),
  ...goals(["srvx", "h3"], small, { peer: 0.65, go: 0.8, floor: 1.2, rival: 0.28 }),
  ...goals(["hono"], small, { peer: 0.7, go: 0.85, floor: 1.3, rival: 0.28 }),
  ...goals(onNode, ["get-64k"], { peer: 0.75, floor: 1.15 }),
  ...goals(hosted, ["get-64k"], { rival: 0.5 }),
  ...goals(onNode, ["get-1m", "post-1m"], { peer: 0.85, floor: 1.1 }),
  ...goals(hosted, ["get-1m", "post-1m"], { rival: 0.65 }),
  ...goals(["bun", "deno"], every, { rival: 1.15 }),
  ...goals(["workerd"], every, { rival: 1.25 }),
];

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
        return `| ${contestantOf(name)?.title} | ${title} | ${BASE_TITLES[base]} | ${most.toFixed(2)} | ${show(measured)} | ${judge(measured, most)} |`;
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

/** Says whether a goal is met, and adds "within the noise" if another run could give the other result. */
export function judge({ ratio, noise }: Comparison, most: number): string {
  const verdict = ratio <= most ? "met" : "**missed**";
  return Math.abs(ratio - most) > noise ? verdict : `${verdict}, within the noise`;
}
