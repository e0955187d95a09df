/**
 * Writes the figures as Markdown and JSON.
 *
 *     node bench/report.ts    # rewrites the tables and the charts from results.json
 */
import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { cpus } from "node:os";
import { fileURLToPath } from "node:url";
import { toChart } from "./chart.ts";
import { hashOfCode } from "./code.ts";
import { type Contestant, contestants } from "./contestants.ts";
import { toGoalTable } from "./goals.ts";
import { generator } from "./load.ts";
import { pinned } from "./program.ts";
import { BASES, type Base, besides, compare, toTitle, valuesOf } from "./ratios.ts";
import type { Measurement, Sample } from "./rounds.ts";
import { median, spread } from "./statistics.ts";
import { summarize, type Summary, toOverview } from "./summary.ts";
import { versionOf } from "./versions.ts";
import { MIB, workloads } from "./workloads.ts";

export interface Machine {
  readonly date: string;
  readonly cpu: string;
  readonly generator: string;
  readonly pinned: boolean;
  /** The hash of the measured code. */
  readonly code: string;
  /** The versions of Node and of all tools that took part, by name. */
  readonly versions: Readonly<Record<string, string>>;
}

export interface Report extends Machine {
  readonly rounds: number;
  readonly seconds: number;
  readonly results: readonly Measurement[];
}

const pathOf = (name: string): string => fileURLToPath(new URL(name, import.meta.url));

/** Describes the machine, and the versions of the tools that the contestants use. */
export function describeMachine(taking: readonly Contestant[] = contestants): Machine {
  const versions: Record<string, string> = { node: process.versions.node };
  for (const tool of new Set(taking.flatMap(({ uses }) => uses))) {
    const version = versionOf(tool);
    if (version !== undefined) versions[tool] = version;
  }
  const model = cpus()[0]?.model ?? "";
  return {
    date: new Date().toISOString().slice(0, 10),
    cpu: `${cpus().length} × ${model.trim()}`,
    generator,
    pinned,
    code: hashOfCode(),
    versions,
  };
}

/** Returns tables of all measurements and of the goals. */
export function toMarkdown(report: Report): string {
  const { results, versions, date, cpu, rounds, seconds } = report;
  const others = Object.entries(versions).filter(([name]) => name !== "node");
  const parts = [
    `Node ${versions["node"]}, ${date}. ${cpu}, load by ${report.generator}; ${
      report.pinned ? "the proxy alone on its core" : "nothing pinned to a core"
    }; ${rounds === 1 ? "one round" : `${rounds} interleaved rounds`} of ${seconds} s.`,
  ];
  if (others.length > 0) {
    parts.push(`With ${others.map(([name, version]) => `${name} ${version}`).join(", ")}.`);
  }
  const seen = new Set<string>();
  for (const one of results) {
    const key = `${one.workload} ${one.connections}`;
    if (seen.has(key)) continue;
    seen.add(key);
    const title = workloads.find(({ name }) => name === one.workload)?.title ?? one.workload;
    parts.push(`### ${title}, ${one.connections} connections`, toTable(results, one));
  }
  const goals = toGoalTable(results);
  if (goals !== undefined) parts.push("### Goals", goals);
  return parts.join("\n\n");
}

const COLUMNS: Readonly<Record<Base, string>> = {
  floor: "× floor",
  nginx: "× nginx",
  go: "× Go",
  peer: "× best peer",
  rival: "× own or naive",
};

interface Figure {
  readonly title: string;
  readonly of: keyof Sample;
  readonly unit: number;
  readonly digits: number;
}

/** The columns of a table after the ratios. Columns without figures in the report are left out. */
const FIGURES: readonly Figure[] = [
  { title: "requests/s", of: "rps", unit: 1, digits: 0 },
  { title: "MiB/s", of: "bps", unit: MIB, digits: 1 },
  { title: "mean ms", of: "mean", unit: 1, digits: 2 },
  { title: "p50 ms", of: "p50", unit: 1, digits: 2 },
  { title: "p99 ms", of: "p99", unit: 1, digits: 2 },
  { title: "RSS MiB", of: "rss", unit: MIB, digits: 0 },
];

function toTable(results: readonly Measurement[], one: Measurement): string {
  const measured = besides(results, one);
  // Only the bases that were measured in this run have a column.
  const bases = BASES.filter((base) =>
    measured.some((each) => compare(results, each, base) !== undefined),
  );
  const figures = FIGURES.filter(({ of }) =>
    measured.every((each) => valuesOf(each, of).length > 0),
  );
  const rows = measured
    .map((each) => ({ each, cpu: median(valuesOf(each, "cpu")) }))
    .toSorted((a, b) => a.cpu - b.cpu)
    .map(({ each, cpu }) => {
      const ratios = bases.map((base) => compare(results, each, base)?.ratio.toFixed(2) ?? "");
      return toRow([
        toTitle(each.contestant),
        `${cpu.toFixed(1)} ± ${toPercent(spread(valuesOf(each, "cpu")) / cpu)}`,
        ...ratios,
        ...figures.map(({ of, unit, digits }) =>
          (median(valuesOf(each, of)) / unit).toFixed(digits),
        ),
      ]);
    });
  const failures = results
    .filter(
      ({ workload, connections, failed }) =>
        failed !== undefined && workload === one.workload && connections === one.connections,
    )
    .map((each) => `\n- ${toTitle(each.contestant)}: **no figures**, ${each.failed}`);
  const titles = bases.map((base) => COLUMNS[base]);
  const head = ["", "CPU µs", ...titles, ...figures.map(({ title }) => title)];
  const line = head.map((_, i) => (i === 0 ? "---" : "--:"));
  return [toRow(head), toRow(line), ...rows].join("\n") + failures.join("");
}

/** Formats a spread as a percentage; `?` for the spread of a single round, which is `NaN`. */
export function toPercent(part: number): string {
  return Number.isNaN(part) ? "?" : `${(part * 100).toFixed(0)} %`;
}

export function toRow(cells: readonly string[]): string {
  return `| ${cells.join(" | ")} |`;
}

/** Replaces the text between two markers in bench/README.md. @returns its path */
export function writeBetween(name: string, text: string): string {
  const path = pathOf("README.md");
  const readme = readFileSync(path, "utf8");
  const [begin, end] = [`<!-- ${name} -->`, `<!-- /${name} -->`];
  const from = readme.indexOf(begin);
  const to = readme.indexOf(end);
  if (from < 0 || to < from) throw new Error(`bench/README.md has no ${begin} … ${end}`);
  writeFileSync(path, `${readme.slice(0, from + begin.length)}\n\n${text}\n\n${readme.slice(to)}`);
  return path;
}

/**
 * Writes the files of a run: its rounds, which Git ignores, and its summary if the run was complete.
 * @returns the paths of the files
 */
export function writeReport(report: Report, complete: boolean): string[] {
  const rounds = pathOf("_rounds.json");
  writeFileSync(rounds, JSON.stringify(report));
  if (!complete) return [rounds];
  const summary = summarize(report);
  const json = pathOf("results.json");
  writeFileSync(json, JSON.stringify(summary, undefined, 2));
  return [rounds, json, ...writeOverview(summary)];
}

/**
 * Writes the charts and the tables of bench/README.md.
 * @returns the paths of the files
 */
function writeOverview(summary: Summary): string[] {
  const charts = { "chart.svg": "node", "chart-runtimes.svg": "runtimes" } as const;
  for (const [name, field] of Object.entries(charts)) {
    writeFileSync(pathOf(name), toChart(summary, field));
  }
  const readme = writeBetween("load", toOverview(summary, hashOfCode()));
  execFileSync(pathOf("../node_modules/.bin/oxfmt"), [pathOf("results.json"), readme]);
  return [...Object.keys(charts).map(pathOf), readme];
}

if (import.meta.main) {
  const summary = JSON.parse(readFileSync(pathOf("results.json"), "utf8")) as Summary;
  for (const file of writeOverview(summary)) console.log(`wrote ${file}`);
}
