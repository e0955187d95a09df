/** Draws bar charts: SVG files without external resources, for light and dark pages. */

/** The colours of the bars, each with its text in the legend. */
const KINDS = {
  fetchway: ["#2563eb", "Fetchway"],
  other: ["#d97706", "other proxies in JavaScript"],
  naive: ["#d97706", "one line of fetch"],
  reference: ["#059669", "not in JavaScript"],
  floor: ["#64748b", "floor: the cost of the runtime itself"],
  direct: ["#64748b", "no proxy"],
} as const;
export type Kind = keyof typeof KINDS;

export interface Bar {
  readonly title: string;
  readonly kind: Kind;
  readonly value: number;
  /** The spread of the value (±), drawn as a line through the end of the bar; null after a single round. */
  readonly spread: number | null;
  /** A smaller value on the same scale, up to which the bar has its full colour. */
  readonly inner?: number;
  /** The number beside the bar. */
  readonly label: string;
}

export interface Panel {
  readonly title: string;
  readonly bars: readonly Bar[];
}

const WIDTH = 760;
const LABEL = 240;
const ROW = 22;

/** Draws panels of bars, the lowest value on top, under a title and a legend of the kinds that occur. */
export function drawChart(title: string, panels: readonly Panel[]): string {
  const parts = [text(0, 24, title, "title")];
  let x = 0;
  for (const kind of Object.keys(KINDS) as Kind[]) {
    if (!panels.some(({ bars }) => bars.some((bar) => bar.kind === kind))) continue;
    const [colour, label] = KINDS[kind];
    parts.push(rect(x, 40, 12, 12, colour), text(x + 18, 51, label));
    x += 40 + label.length * 7;
  }
  let y = 60;
  for (const panel of panels) {
    if (panel.bars.length === 0) continue;
    const bars = panel.bars.toSorted((a, b) => a.value - b.value);
    const most = Math.max(...bars.map(({ value, spread }) => value + (spread ?? 0)));
    const scale = (WIDTH - LABEL - 84) / most;
    parts.push(text(0, y + 24, panel.title, "title"));
    y += 36;
    for (const bar of bars) {
      parts.push(text(0, y + 14, bar.title), ...drawBar(bar, y, scale));
      y += ROW;
    }
  }
  return toSvg(WIDTH, y, parts);
}

/** Joins the parts of a chart of this size, with a margin. */
export function toSvg(width: number, height: number, parts: readonly string[]): string {
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="-12 0 ${width + 24} ${height + 12}" font-family="system-ui, sans-serif" font-size="13">
<style>
.page { fill: #fff } text { fill: #1e293b } .title { font-weight: bold } line { stroke: #1e293b }
@media (prefers-color-scheme: dark) { .page { fill: #0d1117 } text { fill: #e2e8f0 } line { stroke: #e2e8f0 } }
</style>
<rect class="page" x="-12" width="${width + 24}" height="${height + 12}"/>
${parts.join("\n")}
</svg>
`;
}

function drawBar(
  { value, spread: half, inner, kind, label }: Bar,
  y: number,
  scale: number,
): readonly string[] {
  const [colour] = KINDS[kind];
  const spread = half ?? 0;
  const middle = y + ROW / 2 - 1;
  const [from, to] = [Math.max(0, value - spread), value + spread].map(
    (each) => LABEL + each * scale,
  ) as [number, number];
  return [
    rect(LABEL, y + 2, value * scale, ROW - 6, colour, inner === undefined ? 1 : 0.4),
    ...(inner === undefined ? [] : [rect(LABEL, y + 2, inner * scale, ROW - 6, colour)]),
    `<line x1="${from.toFixed(1)}" y1="${middle}" x2="${to.toFixed(1)}" y2="${middle}"/>`,
    text(to + 6, y + 14, label),
  ];
}

export function rect(
  x: number,
  y: number,
  width: number,
  height: number,
  colour: string,
  opacity = 1,
): string {
  const fade = opacity === 1 ? "" : ` opacity="${opacity}"`;
  return `<rect x="${x}" y="${y}" width="${width.toFixed(1)}" height="${height}" rx="2" fill="${colour}"${fade}/>`;
}

/** @param style `title` for a bold text, or further attributes of the element */
export function text(x: number, y: number, content: string, style = ""): string {
  const escaped = content.replaceAll("&", "&amp;").replaceAll("<", "&lt;");
  const more = style === "title" ? ` class="title"` : style && ` ${style}`;
  return `<text x="${x.toFixed(1)}" y="${y}"${more}>${escaped}</text>`;
}
