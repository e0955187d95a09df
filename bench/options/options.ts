/** `npm run bench -- options`: measures what single options cost. */
import { fileURLToPath } from "node:url";
import { toStamp } from "../code.ts";
import { type Contestant, contestantsOf, variantOf } from "../contestants.ts";
import { measureCost } from "../counts/cost.ts";
import { type Bench, defineBench, names, roundFlags, toggle } from "../flags.ts";
import { say, startScript } from "../program.ts";
import { type Comparison, cpuOf, emphasize, judge, show } from "../ratios.ts";
import { describeMachine, describePinning, toTable, writeBetween } from "../report.ts";
import { measure, type Measurement, requireFigures } from "../rounds.ts";
import { median, ratios, spread } from "../statistics.ts";
import { type Workload, workloadsOf } from "../workloads.ts";
import { type Row, ROWS } from "./rows.ts";

/** The goals: the highest cost of a request with one option, as a ratio to the cost with the defaults. */
const GOALS = { cpu: 1.1, bytes: 1.15 };
/** The rows to which the goals do not apply, because each request needs a second request or a new connection. */
const WITHOUT_GOAL: ReadonlySet<string> = new Set(["mirror", "no-keep-alive"]);

const SCRIPT = fileURLToPath(new URL("../contestants/option.ts", import.meta.url));
const BASE = "defaults";
const WORKLOADS = workloadsOf("get-1k");
const CONNECTIONS = 64;

/** The CPU time and the allocated bytes of a request with one option. */
interface OptionCost {
  readonly name: string;
  readonly cpu: Measurement | undefined;
  readonly bytes: number;
}

async function countBytes(rows: readonly string[]): Promise<number[]> {
  const upstream = await startScript(new URL("../target.ts", import.meta.url));
  const target = `http://127.0.0.1:${upstream.port}`;
  const bytes: number[] = [];
  try {
    for (const name of rows) {
      const cost = await measureCost([SCRIPT, name], WORKLOADS[0] as Workload, target);
      bytes.push(cost.bytes);
      say(`  ${name.padEnd(24)} ${cost.bytes.toFixed(0)} bytes`);
    }
  } finally {
    await upstream.stop();
  }
  return bytes;
}

function contestantOfRow(name: string): Contestant {
  const [node] = contestantsOf("node") as [Contestant];
  return variantOf(node, { name, title: name }, ([runtime]) => [runtime, SCRIPT, name]);
}

/** Compares an option with the defaults. */
function compareCosts(
  one: OptionCost,
  base: OptionCost,
): { cpu: Comparison | undefined; bytes: number } {
  const bytes = one.bytes / base.bytes;
  const samples = [one.cpu, base.cpu].map((measured) => (measured ? cpuOf(measured) : []));
  const [own = [], others = []] = samples;
  if (own.length === 0 || others.length === 0) return { cpu: undefined, bytes };
  const each = ratios(own, others);
  return { cpu: { ratio: median(each), noise: spread(each) }, bytes };
}

function toRow({ name, title, group }: Row, cost: OptionCost, base: OptionCost): string[] {
  const { cpu, bytes } = compareCosts(cost, base);
  const hasGoal = !WITHOUT_GOAL.has(name);
  const more = cost.bytes - base.bytes;
  return [
    title,
    group,
    cpu ? show(cpu) : "–",
    cpu && hasGoal ? emphasize(judge(cpu, GOALS.cpu)) : "",
    bytes.toFixed(3),
    `${more < 0 ? "−" : "+"}${Math.abs(more).toFixed(0)}`,
    // Bytes are counted, not measured, so they have no noise.
    hasGoal ? emphasize(judge({ ratio: bytes, noise: 0 }, GOALS.bytes)) : "",
  ];
}

function toMarkdown(costs: readonly OptionCost[]): string {
  const machine = describeMachine([]);
  const { versions, date, cpu, code, generator } = machine;
  const base = costs[0] as OptionCost;
  const rows = costs.flatMap((cost) => {
    const row = ROWS.find(({ name }) => name === cost.name);
    return row ? [toRow(row, cost, base)] : [];
  });
  const own = base.cpu === undefined ? [] : cpuOf(base.cpu);
  return [
    `Node ${versions["node"]}, ${toStamp(code)}; ${date}, ${cpu}, load by ${generator} over ${CONNECTIONS} connections; ${describePinning(machine)}. The defaults need ${own.length > 0 ? `${median(own).toFixed(1)} µs and ` : ""}${(base.bytes / 1000).toFixed(1)} kB of V8's heap for a request.`,
    toTable(["", "", "CPU, ratio", "", "bytes, ratio", "bytes", ""], rows, 2),
  ].join("\n\n");
}

export const options: Bench = defineBench({
  name: "options",
  text: "CPU time and memory that single options cost: hooks, trust, balancing and others",
  writes: "the figures of bench/options.md",
  flags: {
    only: names("these options", ROWS),
    bytes: toggle("counts only bytes, no CPU time under load"),
    ...roundFlags({ usual: "5" }, { usual: "1" }),
  },
  async run({ only, bytes: isOnlyBytes, rounds, seconds }, isComplete) {
    const rows = [BASE, ...only.map(({ name }) => name)];
    const bytes = await countBytes(rows);
    const contestants = rows.map(contestantOfRow);
    const measured = isOnlyBytes
      ? []
      : await measure({
          contestants,
          workloads: WORKLOADS,
          connections: [CONNECTIONS],
          rounds,
          seconds,
        });
    const costs = rows.map((name, i) => ({ name, cpu: measured[i], bytes: bytes[i] as number }));
    const text = toMarkdown(costs);
    console.log(text);
    if (isComplete) writeBetween("options.md", "figures", text);
    requireFigures(contestants, measured);
  },
});
