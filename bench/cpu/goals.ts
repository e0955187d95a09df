/** The project's goals, as ratios of CPU time per request. */
import type { Base } from "../ratios.ts";
import { workloads } from "../workloads.ts";

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
  ...goals(["bun", "deno"], every, { rival: 1.15, floor: 1.25 }),
  ...goals(["workerd"], every, { rival: 1.25, floor: 1.1 }),
];
