/** Summarizes a run. results.json stores the summary, and bench/README.md and its charts show it. */
import { hashOfCode, toStamp } from "../code.ts";
import {
  BASE_TITLES,
  BASES,
  type Base,
  compare,
  type Comparison,
  isOurs,
  judge,
  toTitle,
  valuesOf,
  VERDICTS,
} from "../ratios.ts";
import {
  describePinning,
  describeRounds,
  listVersions,
  type Machine,
  toFailure,
  toTable,
  writeBetween,
  writeFiles,
} from "../report.ts";
import type { Measurement } from "../rounds.ts";
import { median, spread } from "../statistics.ts";
import { MIB, titleOfWorkload } from "../workloads.ts";
import { toChart } from "./chart.ts";
import { GOALS } from "./goals.ts";

/** The rounds of a run. */
export interface Report extends Machine {
  readonly rounds: number;
  readonly seconds: number;
  readonly results: readonly Measurement[];
}

/** The median of the rounds, and their spread: half the distance between the quartiles, or null after a single round. */
export type Figure = readonly [median: number, spread: number | null];

type ByContestant<T> = Readonly<Record<string, T>>;

export interface Summary extends Machine {
  readonly rounds: number;
  readonly seconds: number;
  readonly connections: readonly number[];
  /**
   * CPU time per request in µs, or the reason why there is no figure, by workload. If a run has several numbers of
   * connections, the key also has the number.
   */
  readonly cpuTimes: Readonly<Record<string, ByContestant<Figure | string>>>;
  /**
   * The CPU time of Fetchway's contestants as ratios to that of other contestants, by workload. It has only the bases
   * for which the contestant has a goal.
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
  const connections = [...new Set(results.map((each) => each.connections))];
  for (const one of results) {
    const { contestant, failed } = one;
    const workload = connections.length > 1 ? `${one.workload} × ${one.connections}` : one.workload;
    const values = valuesOf(one, "cpu");
    (cpuTimes[workload] ??= {})[contestant] =
      failed ?? toFigure([median(values), spread(values)], 1);
    if (failed !== undefined) continue;
    if (one.workload === LOAD && load[contestant] === undefined) load[contestant] = loadOf(one);
    if (MEMORY.has(one.workload)) {
      (memory[workload] ??= {})[contestant] = round(median(valuesOf(one, "rss")) / MIB, 0);
    }
    if (isOurs(contestant)) {
      (ratios[workload] ??= {})[contestant] = ratiosOf(results, one);
    }
  }
  return { ...run, connections, cpuTimes, ratios, load, memory };
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
 * @param code the hash of the current code
 */
export function toOverview(summary: Summary, code: string): string {
  const { rounds, seconds, connections, generator, cpuTimes, ratios, date } = summary;
  const parts = [
    `${date}. ${summary.cpu}, load by ${generator} over ${connections.join(", ")} connections; ${describePinning(summary)}; ${describeRounds(rounds, seconds)}.`,
    summary.code === code
      ? `Measured with the ${toStamp(code)}, which is the code beside this document.`
      : `Measured with the ${toStamp(summary.code)}: the code beside this document has changed since.`,
    `With ${listVersions(summary)}.`,
  ];
  parts.push("### CPU per request, µs", toCpuTable(cpuTimes));
  if (Object.values(ratios).some((each) => Object.values(each).some((own) => isFilled(own)))) {
    parts.push("### CPU per request as a ratio, with its goal");
    parts.push(toVerdicts(summary), toRatioTable(summary));
  }
  if (isFilled(summary.load)) {
    parts.push(`### ${titleOfWorkload(LOAD)}: throughput and latency`, toLoadTable(summary));
  }
  if (isFilled(summary.memory)) parts.push("### Resident memory, MiB", toMemoryTable(summary));
  return parts.join("\n\n");
}

function isFilled(record: object): boolean {
  return Object.keys(record).length > 0;
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
  const list = columns.flatMap((workload) =>
    Object.entries(cpu[workload] ?? {}).flatMap(([contestant, why]) =>
      typeof why === "string" ? [toFailure(toTitle(contestant), why, workload)] : [],
    ),
  );
  return [toTable(["", ...columns.map(titleOfWorkload)], rows), list.join("\n")]
    .filter((part) => part !== "")
    .join("\n\n");
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
  return toTable(["", "compared", ...columns.map(titleOfWorkload)], rows, 2);
}

/** Says how many goals are met. */
function toVerdicts({ ratios }: Summary): string {
  const verdicts = Object.entries(ratios).flatMap(([workload, contestants]) =>
    Object.entries(contestants).flatMap(([name, bases]) =>
      (Object.entries(bases) as [Base, Figure][]).flatMap(([base, figure]) => {
        const goal = goalOf(name, workload, base);
        return goal === undefined ? [] : [judge(toComparison(figure), goal)];
      }),
    ),
  );
  const counts = VERDICTS.map(
    (verdict) => `${verdicts.filter((each) => each === verdict).length} ${verdict}`,
  );
  return `${verdicts.length} goals: ${counts.join("; ")}.`;
}

function toComparison([ratio, noise]: Figure): Comparison {
  return { ratio, noise: noise ?? Number.NaN };
}

function goalOf(contestant: string, workload: string, base: Base): number | undefined {
  return GOALS.find(
    (goal) =>
      goal.base === base &&
      goal.contestants.includes(contestant) &&
      goal.workloads.includes(workload.split(" ")[0] ?? ""),
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
  return toTable(["", "requests/s", "p99 ms"], rows);
}

/** Returns a table with a row for each contestant. The one with the least memory under the first workload comes first. */
function toMemoryTable({ memory }: Summary): string {
  const columns = Object.keys(memory);
  const first = memory[columns[0] ?? ""] ?? {};
  const rows = Object.keys(first)
    .toSorted((a, b) => (first[a] ?? 0) - (first[b] ?? 0))
    .map((name) =>
      [toTitle(name)].concat(columns.map((workload) => `${memory[workload]?.[name] ?? "–"}`)),
    );
  return toTable(["", ...columns.map(titleOfWorkload)], rows);
}

/** Writes results.json, the charts, and the tables of bench/README.md. */
export function writeSummary(summary: Summary): void {
  writeFiles({
    "results.json": JSON.stringify(summary, undefined, 2),
    "chart.svg": toChart(summary, "node"),
    "chart-runtimes.svg": toChart(summary, "runtimes"),
  });
  writeBetween("README.md", "load", toOverview(summary, hashOfCode()));
}
