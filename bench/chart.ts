/** CPU per request as bars: an SVG that needs nothing else. */
import type { Role } from "./contestants.ts";
import { contestantOf } from "./ratios.ts";
import type { Summary } from "./summary.ts";
import { workloads } from "./workloads.ts";

const COLOURS: Readonly<Record<Role, string>> = {
  fetchway: "#2563eb",
  floor: "#64748b",
  peer: "#d97706",
  own: "#d97706",
  naive: "#a8a29e",
  reference: "#059669",
};

const SHOWN = ["get-1k", "post-1k"];
const WIDTH = 760;
const LABEL = 240;
const ROW = 22;
const TITLE = 40;

/** One panel for each of the small workloads, the cheapest on top. */
export function toChart({ cpuTimes }: Pick<Summary, "cpuTimes">): string {
  let y = 0;
  const panels: string[] = [];
  for (const name of SHOWN) {
    const figures = cpuTimes[name];
    const title = workloads.find((each) => each.name === name)?.title;
    if (figures === undefined || title === undefined) continue;
    const bars = Object.entries(figures)
      .flatMap(([contestant, figure]) =>
        typeof figure === "string" ? [] : { contestant, cpu: figure[0] },
      )
      .toSorted((a, b) => a.cpu - b.cpu);
    const most = Math.max(...bars.map(({ cpu }) => cpu));
    panels.push(text(0, y + 24, `${title}: CPU per request, µs`, "bold"));
    y += TITLE;
    for (const { contestant, cpu } of bars) {
      const { title: label = contestant, role = "peer" } = contestantOf(contestant) ?? {};
      const width = (cpu / most) * (WIDTH - LABEL - 60);
      panels.push(
        text(0, y + 14, label),
        `<rect x="${LABEL}" y="${y + 2}" width="${width.toFixed(1)}" height="${ROW - 6}" rx="2" fill="${COLOURS[role]}"/>`,
        text(LABEL + width + 6, y + 14, cpu.toFixed(1)),
      );
      y += ROW;
    }
  }
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="-12 0 ${WIDTH + 24} ${y + 12}" font-family="system-ui, sans-serif" font-size="13">
<rect x="-12" width="${WIDTH + 24}" height="${y + 12}" fill="#fff"/>
${panels.join("\n")}
</svg>
`;
}

function text(x: number, y: number, content: string, weight = "normal"): string {
  const escaped = content.replaceAll("&", "&amp;").replaceAll("<", "&lt;");
  return `<text x="${x.toFixed(1)}" y="${y}" font-weight="${weight}" fill="#1e293b">${escaped}</text>`;
}
