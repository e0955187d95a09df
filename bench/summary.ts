/** What a complete run has shown, in short: what `results.json` keeps, and what bench/README.md and its chart show. */
import { GOALS } from "./goals.ts";
import {
  BASE_TITLES,
  BASES,
  type Base,
  compare,
  contestantOf,
  toTitle,
  valuesOf,
} from "./ratios.ts";
import type { Machine, Report } from "./report.ts";
import type { Measurement } from "./rounds.ts";
import { median, spread } from "./statistics.ts";
import { MIB, workloads } from "./workloads.ts";

/** A median of the rounds and half the distance between their quartiles; null after one round. */
export type Figure = readonly [median: number, spread: number | null];

/** Figures by contestant. */
type ByContestant<T> = Readonly<Record<string, T>>;

export interface Summary extends Machine {
  readonly rounds: number;
  readonly seconds: number;
  readonly connections: number;
  /** CPU time per request in µs by workload, or the reason why there is no figure. */
  readonly cpuTimes: Readonly<Record<string, ByContestant<Figure | string>>>;
  /** CPU time of Fetchway's contestants as a ratio to others', by workload: those of which some goal speaks. */
  readonly ratios: Readonly<Record<string, ByContestant<Partial<Record<Base, Figure>>>>>;
  /** Requests per second, p99 in ms and resident memory in MiB, with the workload `LOAD`. */
  readonly load: ByContestant<readonly [rps: number, p99: number, rss: number]>;
}

/** The workload that shows latency and memory. */
const LOAD = "get-1k";

function round(value: number, digits: number): number {
  return Number(value.toFixed(digits));
}

function toFigure(values: readonly [number, number], digits: number): Figure {
  const [middle, noise] = values;
  return [round(middle, digits), Number.isNaN(noise) ? null : round(noise, digits)];
}

/** Reduces the rounds of a run to what is worth keeping. */
export function summarize({ results, ...run }: Report): Summary {
  const cpuTimes: Record<string, Record<string, Figure | string>> = {};
  const ratios: Record<string, Record<string, Partial<Record<Base, Figure>>>> = {};
  const load: Record<string, [number, number, number]> = {};
  for (const one of results) {
    const { contestant, workload, failed } = one;
    const values = valuesOf(one, "cpu");
    (cpuTimes[workload] ??= {})[contestant] =
      failed ?? toFigure([median(values), spread(values)], 1);
    if (failed !== undefined) continue;
    if (workload === LOAD) load[contestant] = loadOf(one);
    if (contestantOf(contestant)?.role === "fetchway") {
      (ratios[workload] ??= {})[contestant] = ratiosOf(results, one);
    }
  }
  return { ...run, connections: results[0]?.connections ?? 0, cpuTimes, ratios, load };
}

function loadOf(one: Measurement): [number, number, number] {
  const [rps, p99, rss] = (["rps", "p99", "rss"] as const).map((what) =>
    median(valuesOf(one, what)),
  ) as [number, number, number];
  return [round(rps, 0), round(p99, 2), round(rss / MIB, 0)];
}

function ratiosOf(results: Report["results"], one: Measurement): Partial<Record<Base, Figure>> {
  const found: Partial<Record<Base, Figure>> = {};
  for (const base of BASES) {
    const hasGoal = GOALS.some(
      (goal) => goal.base === base && goal.contestants.includes(one.contestant),
    );
    const comparison = hasGoal ? compare(results, one, base) : undefined;
    if (comparison !== undefined) {
      found[base] = toFigure([comparison.ratio, comparison.noise], 2);
    }
  }
  return found;
}

/** The tables of bench/README.md. */
export function toOverview(summary: Summary): string {
  const { versions, rounds, seconds, connections, generator, pinned, cpuTimes, date } = summary;
  const others = Object.entries(versions).filter(([name]) => name !== "node");
  return [
    `Node ${versions["node"]}, ${date}. ${summary.cpu}, load by ${generator} over ${connections} connections; ${
      pinned ? "the proxy alone on its core" : "nothing pinned to a core"
    }; ${rounds === 1 ? "one round" : `${rounds} interleaved rounds`} of ${seconds} s.`,
    `With ${others.map(([name, version]) => `${name} ${version}`).join(", ")}.`,
    "### CPU per request, µs",
    toCpuTable(cpuTimes),
    "### CPU per request as a ratio, with its goal",
    toRatioTable(summary),
    `### ${titleOfWorkload(LOAD)}: throughput, latency and memory`,
    toLoadTable(summary),
  ].join("\n\n");
}

/** One row for each contestant, the cheapest at the first workload on top. */
function toCpuTable(cpu: Summary["cpuTimes"]): string {
  const columns = Object.keys(cpu);
  const first = cpu[columns[0] ?? ""] ?? {};
  const rank = (name: string): number => {
    const figure = first[name];
    return figure === undefined || typeof figure === "string" ? Infinity : figure[0];
  };
  const names = [...new Set(Object.values(cpu).flatMap((each) => Object.keys(each)))];
  const rows = names
    .toSorted((a, b) => rank(a) - rank(b))
    .map((name) => [toTitle(name)].concat(columns.map((each) => showCpu(cpu[each]?.[name]))));
  const failures = columns.flatMap((column) =>
    Object.entries(cpu[column] ?? {})
      .filter(([, figure]) => typeof figure === "string")
      .map(
        ([name, why]) =>
          `\n- ${toTitle(name)}, ${titleOfWorkload(column)}: **no figures**, ${why as string}`,
      ),
  );
  const list = failures.length > 0 ? `\n${failures.join("")}` : "";
  return joinTable(["", ...columns.map(titleOfWorkload)], rows) + list;
}

function showCpu(figure: Figure | string | undefined): string {
  if (figure === undefined || typeof figure === "string") return "–";
  const [middle, noise] = figure;
  return `${middle.toFixed(middle < 100 ? 1 : 0)} ± ${
    noise === null ? "?" : `${((noise / middle) * 100).toFixed(0)} %`
  }`;
}

/** One row for each contestant of Fetchway and what it is compared with. */
function toRatioTable({ ratios }: Summary): string {
  const columns = Object.keys(ratios);
  const names = [...new Set(Object.values(ratios).flatMap((each) => Object.keys(each)))];
  const rows = BASES.flatMap((base) =>
    names
      .filter((name) => Object.values(ratios).some((each) => each[name]?.[base] !== undefined))
      .map((name) =>
        [toTitle(name), BASE_TITLES[base]].concat(
          columns.map((workload) => {
            const figure = ratios[workload]?.[name]?.[base];
            return figure === undefined ? "" : showRatio(figure, goalOf(name, workload, base));
          }),
        ),
      ),
  );
  return joinTable(["", "compared", ...columns.map(titleOfWorkload)], rows);
}

function goalOf(contestant: string, workload: string, base: Base): number | undefined {
  return GOALS.find(
    (goal) =>
      goal.base === base &&
      goal.contestants.includes(contestant) &&
      goal.workloads.includes(workload),
  )?.most;
}

/** A missed goal is bold. */
function showRatio([ratio, noise]: Figure, goal: number | undefined): string {
  const text = `${ratio.toFixed(2)} ± ${noise === null ? "?" : noise.toFixed(2)}`;
  if (goal === undefined) return text;
  return `${ratio <= goal ? text : `**${text}**`} (≤ ${goal.toFixed(2)})`;
}

function toLoadTable({ load }: Summary): string {
  const rows = Object.entries(load)
    .toSorted(([, a], [, b]) => b[0] - a[0])
    .map(([name, [rps, p99, rss]]) => [toTitle(name), `${rps}`, p99.toFixed(1), `${rss}`]);
  return joinTable(["", "requests/s", "p99 ms", "RSS MiB"], rows);
}

function joinTable(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = head.map((title) => (title === "" || title === "compared" ? "---" : "--:"));
  return [head, line, ...rows].map((cells) => `| ${cells.join(" | ")} |`).join("\n");
}

function titleOfWorkload(name: string): string {
  return workloads.find((each) => each.name === name)?.title ?? name;
}
