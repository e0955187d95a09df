/** `npm run bench -- render`: writes tables and charts again from the stored figures, after a change of their form. */
import { readFileSync } from "node:fs";
import { type Summary, writeSummary } from "./cpu/summary.ts";
import { type Bench, defineBench } from "./flags.ts";
import { pathOf } from "./report.ts";
import { type TailSummary, writeTail } from "./tail/tailreport.ts";

function readFigures(name: string): unknown {
  return JSON.parse(readFileSync(pathOf(name), "utf8"));
}

function renderAll(): void {
  writeSummary(readFigures("results.json") as Summary);
  writeTail(readFigures("tail.json") as TailSummary);
}

export const render: Bench = defineBench({
  name: "render",
  text: "writes tables and charts again from results.json and tail.json",
  flags: {},
  run: renderAll,
});
