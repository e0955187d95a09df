/** `npm run bench -- start`: measures the CPU time of an import on Node, and of a Worker until it answers. */
import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { hashOfCode, toStamp } from "../code.ts";
import { workerdCommand } from "../commands.ts";
import { binOf } from "../contestants.ts";
import { type Bench, defineBench, wholeNumber } from "../flags.ts";
import { freePort, makeDirectory, Program, say } from "../program.ts";
import { emphasize, judge, show } from "../ratios.ts";
import { toTable, writeBetween } from "../report.ts";
import { interleave } from "../rounds.ts";
import { median, ratios, spread } from "../statistics.ts";
import { preciseCpuOf } from "../usage.ts";

/** The goal: the highest ratio of `import "fetchway"` to `import "h3"`. */
const GOAL = 0.95;

/** The modules that each row imports. They are also measured beside `node:http`, which every server imports. */
const MODULES: Readonly<Record<string, readonly string[]>> = {
  '**`"fetchway"`**': ["fetchway"],
  '**`"fetchway/fetch"`**': ["fetchway/fetch"],
  '`"h3"`': ["h3"],
  '`"hono"`, `"hono/proxy"`, `"@hono/node-server"`': ["hono", "hono/proxy", "@hono/node-server"],
  '`"httpxy"`': ["httpxy"],
};
const H3 = '`"h3"`';

/** The Workers, by the names of their files. */
const WORKERS: Readonly<Record<string, string>> = {
  "**Fetchway**": "fetchway",
  "h3 proxyRequest": "h3",
  "hono/proxy": "hono",
};

/** A program, and the CPU time of its start in ms in each round. */
interface Case {
  readonly run: () => Promise<number>;
  readonly samples: number[];
}

function toCase(run: () => Promise<number>): Case {
  return { run, samples: [] };
}

/** Imports modules in a new process. */
function importing(...modules: readonly string[]): Case {
  const code = modules.map((name) => `await import("${name}");`).join("");
  const args = ["--input-type=module", "--eval", `${code}console.log(process.cpuUsage())`];
  return toCase(async () => {
    // In this working directory, "fetchway" is the built package.
    const { stdout, stderr, status } = spawnSync(process.execPath, args, {
      cwd: fileURLToPath(new URL("../..", import.meta.url)),
      encoding: "utf8",
      env: { ...process.env, NODE_OPTIONS: "" },
    });
    if (status !== 0) throw new Error(`the import failed (is dist built?): ${stderr}`);
    const [user = Number.NaN, system = Number.NaN] = (stdout.match(/\d+/g) ?? []).map(Number);
    return (user + system) / 1000;
  });
}

/** Starts workerd with a Worker. */
function serving(name: string, directory: string): Case {
  const entry = fileURLToPath(new URL(`workers/${name}.ts`, import.meta.url));
  return toCase(async () => {
    const port = await freePort();
    const command = await workerdCommand(binOf("workerd"), entry, { port, target: "", directory });
    const program = await Program.start(command, port);
    try {
      return preciseCpuOf(program.pid);
    } finally {
      await program.stop();
    }
  });
}

/** Returns by how many ms a start takes longer than another start, in each round. */
function beyond({ samples }: Case, base: Case): number[] {
  return samples.map((each, round) => each - (base.samples[round] ?? Number.NaN));
}

function toTime(values: readonly number[]): string {
  return `${median(values).toFixed(1)} ± ${spread(values).toFixed(1)}`;
}

function compare(values: readonly number[], base: readonly number[], goal?: number): string {
  const each = ratios(values, base);
  const comparison = { ratio: median(each), noise: spread(each) };
  const verdict = goal === undefined ? "" : ` (≤ ${goal}: ${emphasize(judge(comparison, goal))})`;
  return show(comparison) + verdict;
}

async function measureImports(rounds: number): Promise<string> {
  const [none, http] = [importing(), importing("node:http")];
  const rows = Object.entries(MODULES).map(([title, modules]) => ({
    title,
    alone: importing(...modules),
    beside: importing("node:http", ...modules),
  }));
  await runAll(rounds, [none, http, ...rows.flatMap(({ alone, beside }) => [alone, beside])]);
  const h3 = rows.find(({ title }) => title === H3) as (typeof rows)[number];
  const [h3Alone, h3Beside] = [beyond(h3.alone, none), beyond(h3.beside, http)];
  const cells = rows.map(({ title, alone, beside }, index) => [
    title,
    toTime(beyond(alone, none)),
    compare(beyond(alone, none), h3Alone, index === 0 ? GOAL : undefined),
    toTime(beyond(beside, http)),
    compare(beyond(beside, http), h3Beside),
  ]);
  return [
    `An empty process takes ${toTime(none.samples)} ms, and \`"node:http"\` ${toTime(beyond(http, none))} ms more.`,
    toTable(["import, ms", "alone", "to h3", 'beside `"node:http"`', "to h3"], cells),
  ].join("\n\n");
}

async function measureWorkers(rounds: number): Promise<string> {
  const directory = makeDirectory();
  const empty = serving("empty", directory);
  const rows = Object.entries(WORKERS).map(([title, name]) => ({
    title,
    start: serving(name, directory),
  }));
  await runAll(rounds, [empty, ...rows.map(({ start }) => start)]);
  return [
    `workerd with an empty Worker takes ${toTime(empty.samples)} ms until it has answered.`,
    toTable(
      ["Worker, ms", "more than empty"],
      rows.map(({ title, start }) => [title, toTime(beyond(start, empty))]),
    ),
  ].join("\n\n");
}

async function runAll(rounds: number, cases: readonly Case[]): Promise<void> {
  say(`${rounds} rounds of ${cases.length} starts`);
  await interleave(rounds, cases, async ({ run, samples }) => void samples.push(await run()));
}

export const start: Bench = defineBench({
  name: "start",
  text: "CPU time of an import on Node, and of the start of a Worker, about a minute",
  writes: "the tables of starts in bench/README.md",
  flags: { rounds: wholeNumber("interleaved rounds", { usual: "25", keepsComplete: true }) },
  async run({ rounds }, isComplete) {
    const text = [
      `Node ${process.versions.node}, ${toStamp(hashOfCode())}; ${rounds} interleaved rounds.`,
      await measureImports(rounds),
      await measureWorkers(rounds),
    ].join("\n\n");
    console.log(text);
    if (isComplete) writeBetween("README.md", "starts", text);
  },
});
