/** Draws the CPU time per request as bar charts: SVG files without external resources, for light and dark pages. */
import { contestantOf, isOnOtherRuntime, type Role } from "../contestants.ts";
import type { Summary } from "./summary.ts";
import { titleOfWorkload } from "../workloads.ts";

/** The colours of the bars, each with its text in the legend. */
const KINDS = {
  fetchway: ["#2563eb", "Fetchway"],
  other: ["#d97706", "other proxies in JavaScript"],
  naive: ["#d97706", "one line of fetch"],
  reference: ["#059669", "not in JavaScript"],
  floor: ["#64748b", "floor: the cost of the runtime itself"],
} as const;
type Kind = keyof typeof KINDS;

const KIND_OF: Readonly<Record<Role, Kind>> = {
  fetchway: "fetchway",
  floor: "floor",
  peer: "other",
  own: "other",
  naive: "naive",
  reference: "reference",
};

/**
 * Which proxies a chart shows: `node` for those on Node and those that are not written in JavaScript, `runtimes` for those on
 * other runtimes.
 */
export type Field = "node" | "runtimes";

const TITLES: Readonly<Record<Field, string>> = {
  node: "on Node",
  runtimes: "on Bun, Deno and Workers",
};

const SHOWN = ["get-1k", "post-1k"];
const WIDTH = 760;
const LABEL = 240;
const ROW = 22;

interface Bar {
  readonly title: string;
  readonly kind: Kind;
  readonly cpu: number;
}

/** Draws a panel for each small workload, with the cheapest contestant on top, under a title and a legend. */
export function toChart({ cpuTimes }: Pick<Summary, "cpuTimes">, field: Field): string {
  const parts = [
    text(0, 24, `CPU time of a request ${TITLES[field]}, in µs: lower is better`, "title"),
  ];
  const panels = SHOWN.map((name) => ({ name, bars: barsOf(cpuTimes[name] ?? {}, field) }));
  let x = 0;
  for (const kind of Object.keys(KINDS) as Kind[]) {
    if (!panels.some(({ bars }) => bars.some((bar) => bar.kind === kind))) continue;
    const [colour, label] = KINDS[kind];
    parts.push(rect(x, 40, 12, 12, colour), text(x + 18, 51, label));
    x += 40 + label.length * 7;
  }
  let y = 60;
  for (const { name, bars } of panels) {
    if (bars.length === 0) continue;
    const most = Math.max(...bars.map(({ cpu }) => cpu));
    parts.push(text(0, y + 24, titleOfWorkload(name), "title"));
    y += 36;
    for (const bar of bars) {
      const width = (bar.cpu / most) * (WIDTH - LABEL - 60);
      parts.push(
        text(0, y + 14, bar.title),
        rect(LABEL, y + 2, width, ROW - 6, KINDS[bar.kind][0]),
        text(LABEL + width + 6, y + 14, bar.cpu.toFixed(1)),
      );
      y += ROW;
    }
  }
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="-12 0 ${WIDTH + 24} ${y + 12}" font-family="system-ui, sans-serif" font-size="13">
<style>
.page { fill: #fff } text { fill: #1e293b } .title { font-weight: bold }
@media (prefers-color-scheme: dark) { .page { fill: #0d1117 } text { fill: #e2e8f0 } }
</style>
<rect class="page" x="-12" width="${WIDTH + 24}" height="${y + 12}"/>
${parts.join("\n")}
</svg>
`;
}

function barsOf(figures: Summary["cpuTimes"][string], field: Field): Bar[] {
  return Object.entries(figures)
    .flatMap(([name, figure]): Bar[] => {
      const contestant = contestantOf(name);
      if (typeof figure === "string" || contestant === undefined) return [];
      if (isOnOtherRuntime(contestant) !== (field === "runtimes")) return [];
      return [{ title: contestant.title, kind: KIND_OF[contestant.role], cpu: figure[0] }];
    })
    .toSorted((a, b) => a.cpu - b.cpu);
}

function rect(x: number, y: number, width: number, height: number, colour: string): string {
  return `<rect x="${x}" y="${y}" width="${width.toFixed(1)}" height="${height}" rx="2" fill="${colour}"/>`;
}

function text(x: number, y: number, content: string, kind?: "title"): string {
  const escaped = content.replaceAll("&", "&amp;").replaceAll("<", "&lt;");
  const style = kind === undefined ? "" : ` class="${kind}"`;
  return `<text x="${x.toFixed(1)}" y="${y}"${style}>${escaped}</text>`;
}
