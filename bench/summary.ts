/** The summary of a complete run, which results.json stores and which bench/README.md and its chart show. */
import { toStamp } from "./code.ts";
import { GOALS, judge, type Verdict } from "./goals.ts";
import {
  BASE_TITLES,
  BASES,
  type Base,
  compare,
  type Comparison,
  contestantOf,
  toTitle,
  valuesOf,
} from "./ratios.ts";
import type { Machine, Report } from "./report.ts";
import type { Measurement } from "./rounds.ts";
import { median, spread } from "./statistics.ts";
import { MIB, workloads } from "./workloads.ts";

/** The median of the rounds, and half the distance between their quartiles, which is null after one round. */
export type Figure = readonly [median: number, spread: number | null];

/** Figures by contestant. */
type ByContestant<T> = Readonly<Record<string, T>>;

export interface Summary extends Machine {
  readonly rounds: number;
  readonly seconds: number;
  readonly connections: number;
  /** CPU time per request in µs by workload, or the reason why there is no figure. */
  readonly cpuTimes: Readonly<Record<string, ByContestant<Figure | string>>>;
  /**
   * The CPU time of Fetchway's contestants as ratios to that of other contestants, by workload. It has only the ratios
   * for which there is a goal.
   */
  readonly ratios: Readonly<Record<string, ByContestant<Partial<Record<Base, Figure>>>>>;
  /** Requests per second and p99 in ms, with the workload `LOAD`. */
  readonly load: ByContestant<readonly [rps: number, p99: number]>;
  /** Resident memory in MiB by workload. */
  readonly memory: Readonly<Record<string, ByContestant<number>>>;
}

/** The workload for which throughput and latency are shown. */
const LOAD = "get-1k";

/** The workloads for which memory is shown. */
const MEMORY: ReadonlySet<string> = new Set(["get-1k", "get-64k", "get-1m", "post-1m"]);

function round(value: number, digits: number): number {
  return Number(value.toFixed(digits));
}

function toFigure(values: readonly [number, number], digits: number): Figure {
  const [middle, noise] = values;
  return [round(middle, digits), Number.isNaN(noise) ? null : round(noise, digits)];
}

/** Reduces the rounds of a run to its summary. */
export function summarize({ results, ...run }: Report): Summary {
  const cpuTimes: Record<string, Record<string, Figure | string>> = {};
  const ratios: Record<string, Record<string, Partial<Record<Base, Figure>>>> = {};
  const load: Record<string, [number, number]> = {};
  const memory: Record<string, Record<string, number>> = {};
  for (const one of results) {
    const { contestant, workload, failed } = one;
    const values = valuesOf(one, "cpu");
    (cpuTimes[workload] ??= {})[contestant] =
      failed ?? toFigure([median(values), spread(values)], 1);
    if (failed !== undefined) continue;
    if (workload === LOAD) load[contestant] = loadOf(one);
    if (MEMORY.has(workload)) {
      (memory[workload] ??= {})[contestant] = round(median(valuesOf(one, "rss")) / MIB, 0);
    }
    if (contestantOf(contestant)?.role === "fetchway") {
      (ratios[workload] ??= {})[contestant] = ratiosOf(results, one);
    }
  }
  return { ...run, connections: results[0]?.connections ?? 0, cpuTimes, ratios, load, memory };
}

function loadOf(one: Measurement): [number, number] {
  return [round(median(valuesOf(one, "rps")), 0), round(median(valuesOf(one, "p99")), 2)];
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

/**
 * Returns the tables of bench/README.md.
 * @param code the hash of the code beside the document
 */
export function toOverview(summary: Summary, code: string): string {
  const { versions, rounds, seconds, connections, generator, pinned, cpuTimes, date } = summary;
  const others = Object.entries(versions).filter(([name]) => name !== "node");
  return [
    `Node ${versions["node"]}, ${date}. ${summary.cpu}, load by ${generator} over ${connections} connections; ${
      pinned ? "the proxy alone on its core" : "nothing pinned to a core"
    }; ${rounds === 1 ? "one round" : `${rounds} interleaved rounds`} of ${seconds} s.`,
    summary.code === code
      ? `Measured with the ${toStamp(code)}, which is the code beside this document.`
      : `Measured with the ${toStamp(summary.code)}: the code beside this document has changed since.`,
    `With ${others.map(([name, version]) => `${name} ${version}`).join(", ")}.`,
    "### CPU per request, µs",
    toCpuTable(cpuTimes),
    "### CPU per request as a ratio, with its goal",
    toVerdicts(summary),
    toRatioTable(summary),
    `### ${titleOfWorkload(LOAD)}: throughput and latency`,
    toLoadTable(summary),
    "### Resident memory, MiB",
    toMemoryTable(summary),
  ].join("\n\n");
}

/** Returns a table with a row for each contestant. The cheapest one under the first workload comes first. */
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

/** Returns a table with a row for each of Fetchway's contestants and each of its bases. */
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

/** Says how many goals are met, and lists the others by contestant. */
function toVerdicts({ ratios }: Summary): string {
  const lists: Record<Verdict, Map<string, string[]>> = {
    met: new Map(),
    "met, within the noise": new Map(),
    "missed, within the noise": new Map(),
    missed: new Map(),
  };
  for (const { contestants, workloads: among, base, most } of GOALS) {
    for (const name of contestants) {
      for (const workload of among) {
        const figure = ratios[workload]?.[name]?.[base];
        if (figure === undefined) continue;
        const list = lists[judge(toComparison(figure), most)];
        const cells = list.get(name) ?? [];
        list.set(name, cells.concat(`${titleOfWorkload(workload)} ${BASE_TITLES[base]}`));
      }
    }
  }
  const counts = Object.entries(lists).map(([verdict, list]) => ({
    verdict,
    list,
    count: [...list.values()].flat().length,
  }));
  const all = counts.reduce((sum, { count }) => sum + count, 0);
  return [
    `${all} goals:`,
    "",
    ...counts.flatMap(({ verdict, list, count }) =>
      [`- **${count} ${verdict}**`].concat(
        verdict === "met" || verdict === "met, within the noise"
          ? []
          : Array.from(list, ([name, cells]) => `  - ${toTitle(name)}: ${cells.join(", ")}`),
      ),
    ),
  ].join("\n");
}

function toComparison([ratio, noise]: Figure): Comparison {
  return { ratio, noise: noise ?? Number.NaN };
}

function goalOf(contestant: string, workload: string, base: Base): number | undefined {
  return GOALS.find(
    (goal) =>
      goal.base === base &&
      goal.contestants.includes(contestant) &&
      goal.workloads.includes(workload),
  )?.most;
}

/** Formats a ratio. It is bold if it misses its goal, and in italics if another run may give the opposite result. */
function showRatio(figure: Figure, goal: number | undefined): string {
  const [ratio, noise] = figure;
  const text = `${ratio.toFixed(2)} ± ${noise === null ? "?" : noise.toFixed(2)}`;
  if (goal === undefined) return text;
  const verdict = judge(toComparison(figure), goal);
  const mark = verdict === "met" ? "" : verdict === "missed" ? "**" : "_";
  return `${mark}${text}${mark} (≤ ${goal.toFixed(2)})`;
}

function toLoadTable({ load }: Summary): string {
  const rows = Object.entries(load)
    .toSorted(([, a], [, b]) => b[0] - a[0])
    .map(([name, [rps, p99]]) => [toTitle(name), `${rps}`, p99.toFixed(1)]);
  return joinTable(["", "requests/s", "p99 ms"], rows);
}

/** Returns a table with a row for each contestant, in the order of the first workload. */
function toMemoryTable({ memory }: Summary): string {
  const columns = Object.keys(memory);
  const first = memory[columns[0] ?? ""] ?? {};
  const rows = Object.keys(first)
    .toSorted((a, b) => (first[a] ?? 0) - (first[b] ?? 0))
    .map((name) =>
      [toTitle(name)].concat(columns.map((workload) => `${memory[workload]?.[name] ?? "–"}`)),
    );
  return joinTable(["", ...columns.map(titleOfWorkload)], rows);
}

function joinTable(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = head.map((title) => (title === "" || title === "compared" ? "---" : "--:"));
  return [head, line, ...rows].map((cells) => `| ${cells.join(" | ")} |`).join("\n");
}

function titleOfWorkload(name: string): string {
  return workloads.find((each) => each.name === name)?.title ?? name;
}
