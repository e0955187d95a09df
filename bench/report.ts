/** The parts of all reports: the machine, tables in Markdown, and writing them into documents. */
import { execFileSync, spawnSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { cpus } from "node:os";
import { fileURLToPath } from "node:url";
import { hashOfCode } from "./code.ts";
import { hasCommand } from "./commands.ts";
import { type Contestant, contestants } from "./contestants.ts";
import { generator } from "./load.ts";
import { pinned } from "./program.ts";
import { titleOfWorkload } from "./workloads.ts";

export interface Machine {
  readonly date: string;
  readonly cpu: string;
  readonly generator: string;
  readonly pinned: boolean;
  readonly code: string;
  /** The versions of Node and of all tools in the run, by name. */
  readonly versions: Readonly<Record<string, string>>;
}

/** The argument with which a command prints its version. */
const VERSION_FLAGS: Readonly<Record<string, string>> = {
  go: "version",
  nginx: "-v",
  haproxy: "-v",
};

/** Returns the version of a package or a command, or undefined for a command that is not installed. */
function versionOf(tool: string): string | undefined {
  const flag = VERSION_FLAGS[tool];
  if (flag === undefined) {
    const manifest = new URL(`../node_modules/${tool}/package.json`, import.meta.url);
    return (JSON.parse(readFileSync(manifest, "utf8")) as { version: string }).version;
  }
  if (!hasCommand(tool)) return undefined;
  const { stdout, stderr } = spawnSync(tool, [flag], { encoding: "utf8" });
  return /\d+(\.\d+)+/.exec(stdout + stderr)?.[0];
}

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

/** Lists the versions of Node and of all tools. */
export function listVersions({ versions }: Pick<Machine, "versions">): string {
  return Object.entries(versions)
    .map(([name, version]) => `${name === "node" ? "Node" : name} ${version}`)
    .join(", ");
}

export function describePinning({ pinned: isPinned }: Pick<Machine, "pinned">): string {
  return isPinned ? "the proxy alone on its core" : "nothing pinned to a core";
}

export function describeRounds(rounds: number, seconds: number): string {
  return `${rounds === 1 ? "one round" : `${rounds} interleaved rounds`} of ${seconds} s`;
}

/** Formats a spread as a percentage. The spread of a single round is `NaN`, and is shown as `?`. */
export function toPercent(part: number): string {
  return Number.isNaN(part) ? "?" : `${(part * 100).toFixed(0)} %`;
}

/** Returns a table in Markdown. The first `texts` columns have text; all others have numbers. */
export function toTable(
  head: readonly string[],
  rows: readonly (readonly string[])[],
  texts = 1,
): string {
  const line = head.map((_, i) => (i < texts ? "---" : "--:"));
  return [head, line, ...rows].map((cells) => `| ${cells.join(" | ")} |`).join("\n");
}

/** Returns the sentence that says why a contestant has no figures. */
export function toFailure(title: string, why: string, workload?: string): string {
  const where = workload === undefined ? "" : `, ${titleOfWorkload(workload)}`;
  return `- ${title}${where}: **no figures**, ${why}`;
}

export function pathOf(name: string): string {
  return fileURLToPath(new URL(name, import.meta.url));
}

/** Writes files of bench/, and formats them. */
export function writeFiles(files: Readonly<Record<string, string>>): void {
  const paths = Object.entries(files).map(([name, text]) => {
    writeFileSync(pathOf(name), text);
    return pathOf(name);
  });
  const documents = paths.filter((path) => !path.endsWith(".svg"));
  execFileSync(pathOf("../node_modules/.bin/oxfmt"), documents, { stdio: "ignore" });
  for (const path of paths) process.stderr.write(`wrote ${path}\n`);
}

/** Replaces the text between two markers in a document of bench/. */
export function writeBetween(document: string, name: string, text: string): void {
  const old = readFileSync(pathOf(document), "utf8");
  const [begin, end] = [`<!-- ${name} -->`, `<!-- /${name} -->`];
  const from = old.indexOf(begin);
  const to = old.indexOf(end);
  if (from < 0 || to < from) throw new Error(`bench/${document} has no ${begin} … ${end}`);
  const written = `${old.slice(0, from + begin.length)}\n\n${text}\n\n${old.slice(to)}`;
  writeFiles({ [document]: written });
}
