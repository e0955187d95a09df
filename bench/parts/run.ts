/** `npm run bench:parts`: measures what single options cost, and what the choice among many upstreams costs. */
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { toStamp } from "../code.ts";
import type { Contestant } from "../contestants.ts";
import { measureCost } from "../cost.ts";
import { readCommandLine } from "../commandline.ts";
import { emphasize, judge, show } from "../goals.ts";
import { freePort, pin, Program } from "../program.ts";
import { type Comparison, cpuOf } from "../ratios.ts";
import { describeMachine, toRow } from "../report.ts";
import { readRoundFlags, type RoundOptions } from "../roundflags.ts";
import { measure, type Measurement } from "../rounds.ts";
import { median, ratios, spread } from "../statistics.ts";
import { type Workload, workloads } from "../workloads.ts";
import { type ChoiceCost, COUNTS, measureChoices, measureStart } from "./choices.ts";
import { PARTS } from "./options.ts";

/** The goals: nothing that stays off may cost anything, and one option that is on may cost this much of a request. */
const GOALS = { cpu: 1.1, bytes: 1.15 };
/** The parts to which the goals do not apply: a mirrored request is a second request. */
const WITHOUT_GOAL: ReadonlySet<string> = new Set(["mirror"]);
/** How many times as much a choice among the most upstreams may cost as one among a hundred: caches miss, no loop grows. */
const GROWTH = 10;

const help = `Usage: npm run bench:parts -- [flags]

  --quick           times choices, and counts the bytes of hooks and observation; no CPU time under load; writes no files
  --only <names>    some of ${PARTS.map(({ name }) => name).join(",")}
  --rounds <n>      interleaved rounds, 5 by default
  --seconds <n>     length of a round, 1 by default

A run without --quick and --only writes bench/parts.md and bench/parts.json.`;

const fileOf = (name: string): string => fileURLToPath(new URL(name, import.meta.url));
const SCRIPT = fileOf("../contestants/part.ts");
const BASE = "defaults";

function say(line: string): void {
  process.stderr.write(`${line}\n`);
}

/** The CPU time and the allocated bytes of one part. */
interface PartCost {
  readonly name: string;
  readonly cpu: Measurement | undefined;
  readonly bytes: number;
}

async function measureParts(
  names: readonly string[],
  { quick, rounds = 5, seconds = 1 }: RoundOptions,
): Promise<PartCost[]> {
  const directory = mkdtempSync(join(tmpdir(), "fetchway-bench-"));
  const port = await freePort();
  const upstream = await Program.start(
    pin([process.execPath, fileOf("../target.ts")], "others"),
    port,
  );
  const target = `http://127.0.0.1:${port}`;
  const workload = workloads.find(({ name }) => name === "get-1k") as Workload;
  try {
    const bytes: number[] = [];
    for (const name of names) {
      const cost = await measureCost([SCRIPT, name], workload, target);
      bytes.push(cost.bytes);
      say(`  ${name.padEnd(24)} ${cost.bytes.toFixed(0)} bytes`);
    }
    const taking = names.map((name): Contestant => ({
      name,
      title: name,
      role: "fetchway",
      uses: [],
      command: () => [process.execPath, SCRIPT, name],
    }));
    const measured = quick
      ? []
      : await measure(workload, taking, {
          rounds,
          seconds,
          connections: 64,
          target,
          directory,
          progress: ({ name }, what) =>
            say(`  ${name.padEnd(24)} ${typeof what === "string" ? what : what.cpu.toFixed(1)}`),
        });
    return names.map((name, i) => ({ name, cpu: measured[i], bytes: bytes[i] as number }));
  } finally {
    await upstream.stop();
    rmSync(directory, { recursive: true });
  }
}

/** Compares a part with the defaults. */
function toRatios(part: PartCost, base: PartCost): { cpu: Comparison | undefined; bytes: number } {
  const bytes = part.bytes / base.bytes;
  if (part.cpu === undefined || base.cpu === undefined || part.cpu.failed !== undefined) {
    return { cpu: undefined, bytes };
  }
  const each = ratios(cpuOf(part.cpu), cpuOf(base.cpu));
  return { cpu: { ratio: median(each), noise: spread(each) }, bytes };
}

function toPartTable(costs: readonly PartCost[]): string {
  const base = costs.find(({ name }) => name === BASE) as PartCost;
  const groups = new Set(PARTS.map(({ group }) => group));
  const rows = Array.from(groups, (group) =>
    PARTS.filter((part) => part.group === group).flatMap(({ name, title }) => {
      const cost = costs.find((each) => each.name === name);
      if (cost === undefined) return [];
      const { cpu, bytes } = toRatios(cost, base);
      const hasGoal = !WITHOUT_GOAL.has(name);
      return [
        toRow([
          title,
          group,
          cpu ? show(cpu) : "–",
          cpu && hasGoal ? emphasize(judge(cpu, GOALS.cpu)) : "",
          bytes.toFixed(3),
          `${cost.bytes < base.bytes ? "−" : "+"}${Math.abs(cost.bytes - base.bytes).toFixed(0)}`,
          // Bytes are counted: they have no noise that another run could change.
          hasGoal ? emphasize(judge({ ratio: bytes, noise: 0 }, GOALS.bytes)) : "",
        ]),
      ];
    }),
  ).flat();
  const head = ["", "", "CPU, ratio", "", "bytes, ratio", "bytes", ""];
  return [toRow(head), "| --- | --- | --: | --- | --: | --: | --- |", ...rows].join("\n");
}

const format = (count: number): string => count.toLocaleString("en");

function toChoiceTable(choices: readonly ChoiceCost[], of: "choice" | "retry"): string {
  const rows = choices.map((each) => {
    const [, some = Number.NaN, many = Number.NaN] = each[of];
    const growth = many / some;
    return toRow([
      each.title,
      ...each[of].map((ns) => ns.toFixed(0)),
      growth.toFixed(1),
      emphasize(judge({ ratio: growth, noise: 0 }, GROWTH)),
    ]);
  });
  const head = ["", ...COUNTS.map((count) => `${format(count)} upstreams`), "growth", ""];
  return [toRow(head), "| --- | --: | --: | --: | --: | --- |", ...rows].join("\n");
}

function toMarkdown(
  costs: readonly PartCost[],
  choices: readonly ChoiceCost[],
  starts: readonly number[],
): string {
  const { versions, date, cpu, code, pinned, generator } = describeMachine([]);
  const base = costs.find(({ name }) => name === BASE) as PartCost;
  const [few, , most] = COUNTS as [number, number, number];
  return `# What the parts cost

Made by \`npm run bench:parts\` with the ${toStamp(code)}: Node ${versions["node"]}, ${date}. ${cpu}, load by ${generator}; ${pinned ? "the proxy alone on its core" : "nothing pinned to a core"}.

## Options, hooks and observation

A proxy on node:http with one option more than the defaults (or one default turned off), compared with the defaults at
GET 1 KB: ${base.cpu ? `${median(cpuOf(base.cpu)).toFixed(1)} µs and ` : ""}${(base.bytes / 1000).toFixed(1)} kB of V8's heap for a request.

- **CPU** is the CPU time of a request as a ratio to that of the defaults: the median of the ratios of neighbouring rounds,
  under a load of 64 connections. ± is half the distance between the quartiles. Goal: ≤ ${GOALS.cpu.toFixed(2)}.
- **Bytes** are counted, so that they are the same on a busy machine: what a request allocates in V8's heap, as a ratio and as a
  difference to the defaults. Goal: ≤ ${GOALS.bytes.toFixed(2)}. A ratio below 1 says what a default costs.
- \`mirror\` has no goal: it sends a second request. \`bodyLimit\` and the like look only at requests that have a body.

${toPartTable(costs)}

## The choice among many upstreams

Nanoseconds for one choice and the report of its result, without a network, for each policy of \`balance()\`; with weights, each
third upstream has three times the weight of the others. *Growth* compares ${format(most)} upstreams with 100. No policy looks
at all upstreams for a choice, but the memory of many does not fit into the caches of the CPU: goal ≤ ${GROWTH}.

${toChoiceTable(choices, "choice")}

The same for requests that need a second choice, elsewhere than the first. Policies that would return the same upstream
again get a list without it, which grows with the number of upstreams.

${toChoiceTable(choices, "retry")}

\`balance()\` with ${format(few)} upstreams is made in ${(starts[0] ?? 0).toFixed(1)} ms, with ${format(most)} in ${(starts.at(-1) ?? 0).toFixed(0)} ms.
`;
}

async function main(): Promise<void> {
  const known = PARTS.map(({ name }) => name);
  const options = readCommandLine("bench:parts", help, (args) => readRoundFlags(args, { known }));
  if (options === undefined) return;
  const { quick } = options;
  const some = PARTS.filter(({ group }) => !quick || group !== "options");
  const names = options.names ?? some.map(({ name }) => name);
  // The first target of a process also compiles the code.
  measureStart(COUNTS[1] as number);
  const starts = COUNTS.map(measureStart);
  const choices = measureChoices(quick ? 20 : 200);
  const costs = await measureParts([BASE, ...names], options);
  const text = toMarkdown(costs, choices, starts);
  console.log(text);
  if (options.complete) {
    const files = [fileOf("../parts.md"), fileOf("../parts.json")] as const;
    const parts = costs.map(({ name, cpu, bytes }) => ({
      name,
      bytes: Math.round(bytes),
      ...(cpu?.failed === undefined
        ? { cpu: cpu && cpuOf(cpu).map((each) => Number(each.toPrecision(4))) }
        : { failed: cpu.failed }),
    }));
    const rounded = choices.map(({ title, choice, retry }) => ({
      title,
      choice: choice.map(Math.round),
      retry: retry.map(Math.round),
    }));
    writeFileSync(files[0], text);
    writeFileSync(files[1], JSON.stringify({ parts, choices: rounded, starts }));
    execFileSync(fileOf("../../node_modules/.bin/oxfmt"), files, { stdio: "ignore" });
  }
  if (costs.some(({ cpu }) => cpu?.failed !== undefined)) process.exitCode = 1;
}

await main();
