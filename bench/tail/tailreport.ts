/** Writes the figures of `npm run bench -- tail` as Markdown and JSON. */
import { drawChart } from "../chart.ts";
import { toStamp } from "../code.ts";
import { contestantOf } from "../contestants.ts";
import { KIND_OF } from "../cpu/chart.ts";
import { emphasize, isOurs, isPeer, judge, toTitle } from "../ratios.ts";
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
import { DIRECT } from "./contenders.ts";
import {
  combineRounds,
  compareRounds,
  type Latency,
  type Middle,
  type PacedRound,
} from "./latency.ts";

/** The rates and the rounds of a run. */
export interface TailRows {
  /** Requests per second. */
  readonly rates: readonly number[];
  /** The highest rate of the slowest contestant, in requests per second. */
  readonly slowest: number;
  /** The rounds, by rate and then by contestant. */
  readonly samples: Readonly<Record<string, Readonly<Record<string, readonly PacedRound[]>>>>;
  /** The reasons why contestants could not be measured, by contestant. */
  readonly failures: Readonly<Record<string, string>>;
}

interface TailSettings extends Machine {
  readonly rounds: number;
  readonly seconds: number;
  readonly connections: number;
}

export type TailReport = TailSettings & TailRows;

const BASES = ["go", "peer"] as const;
type TailBase = (typeof BASES)[number];
const PERCENTILES = ["p50", "p99"] as const;

/** The goals: the highest ratio of a percentile to Go's, and to that of the best Node peer. */
const TAIL_GOALS: Readonly<Record<TailBase, number>> = { go: 1.2, peer: 1 };
const BASE_NAMES: Readonly<Record<TailBase, string>> = {
  go: "Go's",
  peer: "the best Node peer's",
};

/** If a timer is later than this many milliseconds while no proxy runs, the machine has other work to do. */
const BUSY = 2.5;

type Ratios = Partial<Record<TailBase, Readonly<Record<"p50" | "p99", Middle>>>>;

export interface TailSummary extends TailSettings {
  readonly rates: readonly number[];
  readonly slowest: number;
  /** The latencies of a contestant, or the reason why it has none, by rate and then by contestant. */
  readonly latencies: Readonly<Record<string, Readonly<Record<string, Latency | string>>>>;
  /** The ratios of Fetchway's contestants, by rate and then by contestant. */
  readonly ratios: Readonly<Record<string, Readonly<Record<string, Ratios>>>>;
}

type Samples = TailRows["samples"][string];

/** Returns the rounds of the contestant to compare with; undefined if none of that kind keeps the rate. */
function baseOfTail(
  samples: Samples,
  latencies: TailSummary["latencies"][string],
  base: TailBase,
  what: "p50" | "p99",
): readonly PacedRound[] | undefined {
  const [best] = Object.entries(latencies)
    .flatMap(([name, latency]) => (typeof latency === "string" ? [] : [{ name, latency }]))
    .filter(({ name }) => (base === "go" ? name === "go" : isPeer(name)))
    .toSorted((a, b) => a.latency[what][0] - b.latency[what][0]);
  return best && samples[best.name];
}

/** Reduces the rounds of a run to its summary. */
export function summarizeTail({ samples, failures, slowest, ...run }: TailReport): TailSummary {
  const latencies: Record<string, Record<string, Latency | string>> = {};
  const ratios: Record<string, Record<string, Ratios>> = {};
  for (const rate of run.rates) {
    const rounds: Samples = samples[rate] ?? {};
    const own: Record<string, Latency | string> = (latencies[rate] = {});
    for (const [name, each] of Object.entries(rounds)) own[name] = combineRounds(each);
    Object.assign(own, failures);
    const compared: Record<string, Ratios> = (ratios[rate] = {});
    for (const [name, each] of Object.entries(rounds)) {
      if (!isOurs(name) || typeof own[name] === "string") continue;
      const found: Ratios = {};
      for (const base of BASES) {
        const [p50, p99] = PERCENTILES.map((what) => {
          const other = baseOfTail(rounds, own, base, what);
          return other && compareRounds(each, other, what);
        });
        if (p50 !== undefined && p99 !== undefined) found[base] = { p50, p99 };
      }
      compared[name] = found;
    }
  }
  return { ...run, slowest: Math.round(slowest), latencies, ratios };
}

function titleOf(name: string): string {
  if (name === DIRECT) return "_no proxy_";
  const [base = "", ...flags] = name.split(" ");
  return [toTitle(base), ...flags.map((flag) => `\`${flag}\``)].join(" ");
}

/** Formats milliseconds so that two digits are significant. */
function showTime(value: number): string {
  return value.toFixed(value < 1 ? 2 : value < 10 ? 1 : 0);
}

function showMiddle([middle, noise]: Middle, show: (value: number) => string): string {
  return `${show(middle)} ± ${noise === null ? "?" : show(noise)}`;
}

function p99Of(latency: Latency | string): number {
  return typeof latency === "string" ? Infinity : latency.p99[0];
}

function toLatencyTable(latencies: TailSummary["latencies"][string]): string {
  const head = ["", "p50", "p90", "p99", "p99.9", "longest", "CPU, µs", "generator", "timer"];
  const sorted = Object.entries(latencies).toSorted(([, a], [, b]) => p99Of(a) - p99Of(b));
  const rows = sorted.flatMap(([name, latency]) => {
    if (typeof latency === "string") return [];
    const { p50, p90, p99, p999, longest, cpu, late, hiccup } = latency;
    return [
      [
        titleOf(name),
        showTime(p50[0]),
        showTime(p90),
        showMiddle(p99, showTime),
        showTime(p999),
        showTime(longest),
        name === DIRECT ? "" : cpu.toFixed(0),
        showTime(late),
        showTime(hiccup),
      ],
    ];
  });
  const failures = sorted.flatMap(([name, latency]) =>
    typeof latency === "string" ? [toFailure(titleOf(name), latency)] : [],
  );
  return [toTable(head, rows), failures.join("\n")].filter((part) => part !== "").join("\n\n");
}

function toGoalTable({ rates, ratios, latencies }: TailSummary): string {
  const names = [...new Set(rates.flatMap((rate) => Object.keys(latencies[rate] ?? {})))];
  const toCell = (rate: number, name: string, base: TailBase, what: "p50" | "p99"): string => {
    if (typeof latencies[rate]?.[name] === "string") return "**missed**";
    const ratio = ratios[rate]?.[name]?.[base]?.[what];
    if (ratio === undefined) return "–";
    const [middle, noise] = ratio;
    const verdict = judge({ ratio: middle, noise: noise ?? Number.NaN }, TAIL_GOALS[base]);
    return `${showMiddle(ratio, (value) => value.toFixed(2))}, ${emphasize(verdict)}`;
  };
  const rows = names
    .filter(isOurs)
    .flatMap((name) =>
      BASES.flatMap((base) =>
        PERCENTILES.map((what) =>
          [`${titleOf(name)}, ${what} to ${BASE_NAMES[base]}`, TAIL_GOALS[base].toFixed(1)].concat(
            rates.map((rate) => toCell(rate, name, base, what)),
          ),
        ),
      ),
    );
  return toTable(["", "goal", ...rates.map((rate) => `${rate}/s`)], rows);
}

/** Returns half of a contestant's requests per second, rounded to hundreds. */
export function halfOf(slowest: number): number {
  return Math.max(100, Math.round(slowest / 200) * 100);
}

/** Returns the figures of bench/tail.md. */
export function toTailDocument(summary: TailSummary): string {
  const { rates, rounds, seconds, connections, slowest } = summary;
  const parts = [
    `${listVersions(summary)}, ${toStamp(summary.code)}; ${summary.date}, ${summary.cpu}, ${describePinning(summary)}; ${connections} connections, ${describeRounds(rounds, seconds)} for each rate.`,
  ];
  const late = rates.flatMap((rate) => {
    const direct = summary.latencies[rate]?.[DIRECT];
    return typeof direct === "object" ? direct.hiccup : [];
  });
  if (late.some((hiccup) => hiccup > BUSY)) {
    parts.push(
      `**The machine was busy during this run.** Without a proxy, the timer was up to ${showTime(Math.max(...late))} ms late. Other programs on its cores delayed requests at random, so this run says little about p99, and nothing about what is above it.`,
    );
  }
  for (const rate of rates) {
    parts.push(`## ${rate} requests a second`);
    if (rate === halfOf(slowest)) {
      parts.push(`Half of what the slowest contestant can: ${slowest} requests a second.`);
    }
    parts.push(toLatencyTable(summary.latencies[rate] ?? {}));
  }
  if (Object.values(summary.ratios).some((each) => Object.keys(each).length > 0)) {
    parts.push(
      "## Goals",
      `Ratios of percentiles of the same round, medians over the rounds: at most ${TAIL_GOALS.go.toFixed(1)} of Go's, and never above a Node peer's. If a ratio differs from its goal by less than ±, another run may give the opposite result.`,
      toGoalTable(summary),
    );
  }
  return parts.join("\n\n");
}

/** Draws a panel for each of the first two rates. */
export function toTailChart({
  rates,
  latencies,
}: Pick<TailSummary, "rates" | "latencies">): string {
  return drawChart(
    "Latency at a fixed rate, in ms: p50 (full colour) and p99 (and spread), lower is better",
    rates.slice(0, 2).map((rate) => ({
      title: `${rate} requests a second`,
      bars: Object.entries(latencies[rate] ?? {}).flatMap(([name, latency]) => {
        const role = contestantOf(name)?.role;
        if (typeof latency === "string" || (name !== DIRECT && role === undefined)) return [];
        const [[inner], [value, spread]] = [latency.p50, latency.p99];
        const title = titleOf(name).replaceAll(/[*_]/g, "");
        const kind = role === undefined ? ("direct" as const) : KIND_OF[role];
        const label = `${inner.toFixed(2)} / ${value.toFixed(1)}`;
        return [{ title, kind, value, spread, inner, label }];
      }),
    })),
  );
}

export function writeTail(summary: TailSummary): void {
  writeFiles({
    "tail.json": JSON.stringify(summary, undefined, 2),
    "chart-tail.svg": toTailChart(summary),
  });
  writeBetween("tail.md", "figures", toTailDocument(summary));
}
