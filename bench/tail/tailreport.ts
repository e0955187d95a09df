/**
 * Writes the figures of `npm run bench:tail` as Markdown and JSON.
 *
 *     node bench/tail/tailreport.ts    # writes tail.md again from tail.json
 */
import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { toStamp } from "../code.ts";
import { emphasize, judge } from "../goals.ts";
import { contestantOf, toTitle } from "../ratios.ts";
import { type Machine, toRow } from "../report.ts";
import { DIRECT } from "./contenders.ts";
import { CORES_RATE, type WorkersFigures } from "./cores.ts";
import type { Generator } from "./generate.ts";
import {
  combineRounds,
  compareRounds,
  KEPT,
  type Latency,
  type Middle,
  type PacedRound,
} from "./latency.ts";

/** The rounds of a run. */
export interface TailRows {
  /** Requests per second. */
  readonly rates: readonly number[];
  /** The requests per second of the slowest contestant as fast as it can. */
  readonly slowest: number;
  /** By rate, then by contestant. */
  readonly samples: Readonly<Record<string, Readonly<Record<string, readonly PacedRound[]>>>>;
  /** Why contestants could not be measured. */
  readonly failures: Readonly<Record<string, string>>;
}

interface TailSettings extends Machine {
  readonly rounds: number;
  readonly seconds: number;
  readonly connections: number;
  readonly pacer: Generator;
  readonly cores: readonly WorkersFigures[];
}

export type TailReport = TailSettings & TailRows;

const BASES = ["go", "peer"] as const;
type TailBase = (typeof BASES)[number];
const PERCENTILES = ["p50", "p99"] as const;

/** The goals: the most that a percentile may be of Go's, and of the best Node peer's. */
const TAIL_GOALS: Readonly<Record<TailBase, number>> = { go: 1.2, peer: 1 };
const BASE_NAMES: Readonly<Record<TailBase, string>> = {
  go: "Go's",
  peer: "the best Node peer's",
};

/** Milliseconds: a machine whose timer is later than this while no proxy runs has other work to do. */
const BUSY = 2.5;

type Ratios = Partial<Record<TailBase, Readonly<Record<"p50" | "p99", Middle>>>>;

export interface TailSummary extends TailSettings {
  readonly rates: readonly number[];
  readonly slowest: number;
  /** By rate, then by contestant: its latencies, or the reason why it has none. */
  readonly latencies: Readonly<Record<string, Readonly<Record<string, Latency | string>>>>;
  /** By rate, then by contestant of Fetchway. */
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
    .filter(({ name }) => (base === "go" ? name === "go" : contestantOf(name)?.role === "peer"))
    .toSorted((a, b) => a.latency[what][0] - b.latency[what][0]);
  return best && samples[best.name];
}

function isOurs(name: string): boolean {
  return contestantOf(name)?.role === "fetchway";
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

function toTable(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = head.map((_, i) => (i === 0 ? "---" : "--:"));
  return [head, line, ...rows].map(toRow).join("\n");
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
    typeof latency === "string" ? [`- ${titleOf(name)}: **no figures**, ${latency}`] : [],
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

function whole(value: number): string {
  return value.toFixed(0);
}

function tenths(value: number): string {
  return value.toFixed(1);
}

/** Returns the section about workers. */
function toCoresText({ cores, cpu, connections }: TailSummary): string {
  const head = ["", "requests/s", "CPU, µs", "rest, µs", "idle", "p50, ms", "p99, ms"];
  const rows = cores.map(({ workers, rps, cpu: own, others, idle, latency }) => [
    `\`--workers ${workers}\``,
    showMiddle(rps, whole),
    showMiddle(own, tenths),
    showMiddle(others, tenths),
    `${(100 * idle).toFixed(0)} %`,
    ...(typeof latency === "string"
      ? [latency, ""]
      : [showMiddle(latency.p50, showTime), showMiddle(latency.p99, showTime)]),
  ]);
  const [one, two] = cores;
  const parts = [
    `The command with one process and with two workers, the same requests over ${connections} connections. Nothing is pinned to a core:
the load generator and the upstream run on the same machine (${cpu}), and take their share of its cores. **requests/s** are
as many as possible; meanwhile, **CPU** is the CPU time of the command per request, all its processes together, **rest** that of
all other programs, and **idle** the part of the cores that had nothing to do. **p50** and **p99** are latency at ${CORES_RATE} requests a
second. \`npm run bench:tail -- --cores\` measures only this.`,
    toTable(head, rows),
  ];
  if (one !== undefined && two !== undefined) {
    const ratio = (what: "rps" | "cpu"): string => (two[what][0] / one[what][0]).toFixed(2);
    parts.push(
      `Two workers serve ${ratio("rps")} times as many requests a second as one process, at ${ratio("cpu")} times the CPU time a request.`,
    );
    const count = Number.parseInt(cpu, 10);
    const bound = (count * one.cpu[0]) / (one.cpu[0] + one.others[0]);
    // On a busy machine, there is less than one core for the command.
    if (bound > 1 && bound < 2) {
      parts.push(
        `One process is limited by its core. Two workers are limited by the machine, because all other programs need ${tenths(one.others[0])} µs for
each request as well: if all ${count} cores are busy all the time, that is ${bound.toFixed(2)} times as many requests as one process serves.`,
      );
    }
  }
  return parts.join("\n\n");
}

/** Returns half of a contestant's requests per second, rounded to hundreds. */
export function halfOf(slowest: number): number {
  return Math.max(100, Math.round(slowest / 200) * 100);
}

/** Returns bench/tail.md. */
export function toTailDocument(summary: TailSummary): string {
  const { rates, rounds, seconds, connections, versions, slowest, pacer } = summary;
  const others = Object.entries(versions).filter(([name]) => name !== "node");
  const parts = [
    "# Latency at fixed rates",
    `Made by \`npm run bench:tail\` on ${summary.date} with the ${toStamp(summary.code)}: Node ${versions["node"]}, ${summary.cpu}, ${
      summary.pinned ? "the proxy alone on its core" : "nothing pinned to a core"
    }; the load generator is written in ${pacer === "go" ? "Go" : "JavaScript"}.${
      others.length > 0
        ? ` With ${others.map(([name, version]) => `${name} ${version}`).join(", ")}.`
        : ""
    }`,
  ];
  if (rates.length > 0) {
    parts.push(
      "## How to read it",
      `All contestants get the same requests at the same times: GET of 1 KB, ${connections} connections that are kept open,
${rounds === 1 ? "one round" : `${rounds} interleaved rounds`} of ${seconds} s for each rate. A request is sent when it is due, whether or not earlier ones have
been answered, and its latency counts **from when it was due**. So a pause of 100 ms delays all requests that are due in
it, and all of them are in the figures; a load generator that waits for responses sends none in a pause, and misses it.`,
      `- **p50** to **p99.9** are percentiles in ms, medians over the rounds; ± is half the distance between the quartiles.
  **longest** is the longest latency of all rounds. p50 and p99 have goals; p99.9 and longest are a few requests, and
  another run gives other figures.
- **CPU** is the CPU time of the proxy per request, at this rate.
- **generator** is what the load generator adds: the 99th percentile of how much later than possible it sent a request.
- **timer** is what the machine adds: a thread beside the generator waits for a timer of 1 ms, again and again, and does
  nothing else. The column has the longest time by which it was late in a round (median over the rounds). A tail that is
  not much longer than that is the machine's.
- **no proxy** is the generator's direct way to the upstream: the latency of a proxy that costs nothing. Here the generator
  runs on the core that the proxies have otherwise, so that the timer shows what the machine does there.
- A contestant that has answered less than ${100 * KEPT} % of the requests when the last one is due does not keep the rate, and
  has no figures, because its latency would grow with the length of the round.`,
    );
  }
  const late = rates.flatMap((rate) => {
    const direct = summary.latencies[rate]?.[DIRECT];
    return typeof direct === "object" ? direct.hiccup : [];
  });
  if (late.some((hiccup) => hiccup > BUSY)) {
    parts.push(
      `**The machine was busy during this run.** Without a proxy, the timer was up to ${showTime(Math.max(...late))} ms late. Other programs on its
cores delayed requests at random, so this run says little about p99, and nothing about what is above it.`,
    );
  }
  for (const rate of rates) {
    const why =
      rate === halfOf(slowest)
        ? `\n\nHalf of what the slowest contestant can: ${slowest} requests a second.`
        : "";
    parts.push(`## ${rate} requests a second${why}`, toLatencyTable(summary.latencies[rate] ?? {}));
  }
  if (Object.values(summary.ratios).some((each) => Object.keys(each).length > 0)) {
    parts.push(
      "## Goals",
      `Ratios of percentiles of the same round, medians over the rounds: at most ${TAIL_GOALS.go.toFixed(1)} of Go's, and never above a Node peer's. If
a ratio differs from its goal by less than ±, another run may give the opposite result.`,
      toGoalTable(summary),
    );
  }
  if (summary.cores.length > 0) parts.push("## Several processes", toCoresText(summary));
  return `${parts.join("\n\n")}\n`;
}

function pathOf(name: string): string {
  return fileURLToPath(new URL(`../${name}`, import.meta.url));
}

/** Writes tail.json and tail.md. @returns their paths */
export function writeTail(summary: TailSummary): string[] {
  const files = [pathOf("tail.json"), pathOf("tail.md")] as const;
  writeFileSync(files[0], JSON.stringify(summary, undefined, 2));
  writeFileSync(files[1], toTailDocument(summary));
  execFileSync(pathOf("../node_modules/.bin/oxfmt"), files);
  return [...files];
}

if (import.meta.main) {
  const summary = JSON.parse(readFileSync(pathOf("tail.json"), "utf8")) as TailSummary;
  for (const file of writeTail(summary)) console.log(`wrote ${file}`);
}
