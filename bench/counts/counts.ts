/**
 * `npm run bench -- counts`: counts what a request costs in each proxy on Node: allocated bytes, promises, timers, system
 * calls. Unlike times, counts are the same on a busy machine.
 */
import { fileURLToPath } from "node:url";
import { hashOfCode, toStamp } from "../code.ts";
import { type Contestant, contestants, isOnOtherRuntime } from "../contestants.ts";
import { type Bench, defineBench, names } from "../flags.ts";
import { say, startScript } from "../program.ts";
import { toTitle } from "../ratios.ts";
import { toTable, writeBetween } from "../report.ts";
import { workloadsOf } from "../workloads.ts";
import { type Cost, measureCost, measureUnderLoad } from "./cost.ts";

const WORKLOADS = workloadsOf("get-1k", "post-1k", "get-64k");
/** The workload that is counted under load as well. */
const LOADED = "get-1k";
/** The goals: the highest number of kilobytes that a GET of 1 KB may allocate under load. */
const GOALS: Readonly<Record<string, number>> = {
  node: 12,
  srvx: 13,
  h3: 14,
  hono: 16,
  "node-undici": 19,
};

/** The cost of a request. Only the workload of the goals is also counted under load. */
interface Counted extends Cost {
  readonly bytesUnderLoad?: number;
}

type Costs = Record<string, Record<string, Counted>>;

async function countAll(taking: readonly Contestant[]): Promise<Costs> {
  const upstream = await startScript(new URL("../target.ts", import.meta.url));
  const target = `http://127.0.0.1:${upstream.port}`;
  const costs: Costs = {};
  try {
    for (const { name } of taking) {
      const own: Record<string, Counted> = (costs[name] = {});
      const script = [fileURLToPath(new URL(`../contestants/${name}.ts`, import.meta.url))];
      for (const workload of WORKLOADS) {
        let cost: Counted = await measureCost(script, workload, target);
        if (workload.name === LOADED) {
          cost = { ...cost, bytesUnderLoad: await measureUnderLoad(script, workload, target) };
        }
        own[workload.name] = cost;
        say(`${name.padEnd(24)} ${workload.name.padEnd(8)} ${JSON.stringify(cost)}`);
      }
    }
  } finally {
    await upstream.stop();
  }
  return costs;
}

const OTHERS = ["promises", "timers", "reads", "writes"] as const;

function toMarkdown(costs: Costs): string {
  const rows = Object.entries(costs)
    .toSorted(([, a], [, b]) => sortKey(a) - sortKey(b))
    .map(([name, own]) =>
      [
        toTitle(name),
        showKilobytes(loadedBytes(own), GOALS[name]),
        ...WORKLOADS.map((workload) => showKilobytes(own[workload.name]?.bytes)),
      ].concat(OTHERS.map((kind) => showCount(own["get-1k"]?.[kind]))),
    );
  const head = ["", "GET 1 KB under load", ...WORKLOADS.map(({ title }) => title), ...OTHERS];
  return [
    `Node ${process.versions.node}, ${toStamp(hashOfCode())}. Kilobytes that a request allocates in V8's heap; the other columns are of GET 1 KB.`,
    toTable(head, rows),
  ].join("\n\n");
}

/** Returns the bytes under load. Contestants without that figure sort last, by their bytes without load. */
function sortKey(own: Record<string, Counted>): number {
  return loadedBytes(own) || 1e6 + (own[LOADED]?.bytes ?? 0);
}

function loadedBytes(own: Record<string, Counted>): number {
  return own[LOADED]?.bytesUnderLoad ?? Number.NaN;
}

function showKilobytes(bytes = Number.NaN, goal?: number): string {
  if (Number.isNaN(bytes)) return "–";
  const text = (bytes / 1000).toFixed(1);
  if (goal === undefined) return text;
  return Number(text) <= goal ? `${text} (≤ ${goal})` : `**${text}** (≤ ${goal})`;
}

function showCount(count = Number.NaN): string {
  return count < 0.05 ? "0" : count.toFixed(1).replace(/\.0$/, "");
}

const onNode = contestants.filter((each) => !isOnOtherRuntime(each) && each.role !== "reference");

export const counts: Bench = defineBench({
  name: "counts",
  text: "bytes, promises, timers and system calls of a request, about eight minutes",
  writes: "the table of counts in bench/README.md",
  flags: { only: names("these contestants", onNode) },
  async run({ only }, isComplete) {
    const text = toMarkdown(await countAll(only));
    console.log(text);
    if (isComplete) writeBetween("README.md", "counts", text);
  },
});
