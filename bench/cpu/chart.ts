/** The charts of the CPU time of a request. */
import { type Bar, drawChart, type Kind } from "../chart.ts";
import { contestantOf, isOnOtherRuntime, type Role } from "../contestants.ts";
import { titleOfWorkload } from "../workloads.ts";
import type { Summary } from "./summary.ts";

export const KIND_OF: Readonly<Record<Role, Kind>> = {
  fetchway: "fetchway",
  floor: "floor",
  peer: "other",
  own: "other",
  naive: "naive",
  reference: "reference",
};

/**
 * Which proxies a chart shows: `node` for those on Node and those that are not written in JavaScript, `runtimes` for those on
 * other runtimes.
 */
export type Field = "node" | "runtimes";

const TITLES: Readonly<Record<Field, string>> = {
  node: "on Node",
  runtimes: "on Bun, Deno and Workers",
};

const SHOWN = ["get-1k", "post-1k"];

/** Draws a panel for each small workload. */
export function toChart({ cpuTimes }: Pick<Summary, "cpuTimes">, field: Field): string {
  return drawChart(
    `CPU time of a request ${TITLES[field]}, in µs (and spread): lower is better`,
    SHOWN.map((name) => ({
      title: titleOfWorkload(name),
      bars: barsOf(cpuTimes[name] ?? {}, field),
    })),
  );
}

function barsOf(figures: Summary["cpuTimes"][string], field: Field): Bar[] {
  return Object.entries(figures).flatMap(([name, figure]): Bar[] => {
    const contestant = contestantOf(name);
    if (typeof figure === "string" || contestant === undefined) return [];
    if (isOnOtherRuntime(contestant) !== (field === "runtimes")) return [];
    const [value, spread] = figure;
    const kind = KIND_OF[contestant.role];
    return [{ title: contestant.title, kind, value, spread, label: value.toFixed(1) }];
  });
}
