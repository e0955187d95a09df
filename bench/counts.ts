/**
 * Counts what a request costs in each proxy on Node: allocated bytes, promises, timers, system calls. Unlike times, counts
 * are the same on a busy machine.
 *
 *     npm run bench:counts    # writes counts.json and the table in README.md, about eight minutes
 */
import { execFileSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { hashOfCode, toStamp } from "./code.ts";
import { contestants, isOnOtherRuntime } from "./contestants.ts";
import { type Cost, measureCost, measureUnderLoad } from "./cost.ts";
import { freePort, pin, Program } from "./program.ts";
import { toTitle } from "./ratios.ts";
import { writeBetween } from "./report.ts";
import { workloads } from "./workloads.ts";

const WORKLOADS = workloads.filter(({ name }) => ["get-1k", "post-1k", "get-64k"].includes(name));
/** The workload that is counted under load as well. */
const LOADED = "get-1k";
/** The goals for kilobytes that a GET of 1 KB allocates under load. */
const GOALS: Readonly<Record<string, number>> = { node: 12, srvx: 13, h3: 14, hono: 16 };

/** What a request costs; only the workload of the goals is counted under load as well. */
interface Counted extends Cost {
  readonly bytesUnderLoad?: number;
}

type Costs = Record<string, Record<string, Counted>>;

async function countAll(): Promise<Costs> {
  const port = await freePort();
  const upstream = await Program.start(
    pin([process.execPath, fileURLToPath(new URL("target.ts", import.meta.url))], "others"),
    port,
  );
  const onNode = contestants.filter((each) => !isOnOtherRuntime(each) && each.role !== "reference");
  const costs: Costs = {};
  try {
    for (const { name } of onNode) {
      const own: Record<string, Counted> = (costs[name] = {});
      for (const workload of WORKLOADS) {
        const target = `http://127.0.0.1:${port}`;
        const script = [fileURLToPath(new URL(`contestants/${name}.ts`, import.meta.url))];
        let cost: Counted = await measureCost(script, workload, target);
        if (workload.name === LOADED) {
          cost = { ...cost, bytesUnderLoad: await measureUnderLoad(script, workload, target) };
        }
        own[workload.name] = cost;
        console.error(`${name.padEnd(24)} ${workload.name.padEnd(8)} ${JSON.stringify(cost)}`);
      }
    }
  } finally {
    await upstream.stop();
  }
  return costs;
}

const OTHERS = ["promises", "timers", "reads", "writes"] as const;

function toTable(costs: Costs): string {
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
  const table = [head, ["---", ...head.slice(1).fill("--:")], ...rows];
  return [
    `Node ${process.versions.node}, ${toStamp(hashOfCode())}. Kilobytes that a request allocates in V8's heap; the other columns are of GET 1 KB.`,
    table.map((cells) => `| ${cells.join(" | ")} |`).join("\n"),
  ].join("\n\n");
}

/** Returns the bytes under load; for a contestant without them, more than any other has. */
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

const costs = await countAll();
const json = fileURLToPath(new URL("counts.json", import.meta.url));
writeFileSync(json, JSON.stringify({ node: process.versions.node, costs }, undefined, 2));
const readme = writeBetween("counts", toTable(costs));
execFileSync(fileURLToPath(new URL("../node_modules/.bin/oxfmt", import.meta.url)), [json, readme]);
