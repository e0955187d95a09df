/** The levels of the rows, and their sources in RFCs and advisories, by the requirements that their tests name. */
import { readFileSync } from "node:fs";
import { findAdvisories, findMarkers, markersOf } from "../conformance/markers.ts";
import { type RequirementId, requirements } from "../conformance/requirements.ts";
import { ADVISED, type GroupedRow, rows } from "./rows.ts";

/** `practice`: no RFC has the rule, but users notice where it does not hold. */
export type Level = "MUST" | "SHOULD" | "advisory" | "practice";

export interface Rule extends GroupedRow {
  readonly level: Level;
  /** The level with links to the sections, or the advisories, in Markdown. */
  readonly source: string;
}

function linkSection(id: RequirementId): string {
  const [, rfc = "", section = ""] = /^(\d+)-([\d.]+)-/.exec(id) ?? [];
  return `[RFC ${rfc} §${section}](https://www.rfc-editor.org/rfc/rfc${rfc}#section-${section})`;
}

function toUnique<T>(values: readonly T[]): T[] {
  return [...new Set(values)];
}

type Marks = readonly { readonly id: string; readonly title: string }[];

function idsOf({ test }: GroupedRow, marks: Marks): string[] {
  return toUnique(marks.filter(({ title }) => title === test).map(({ id }) => id));
}

/**
 * @throws if an advisory row has no advisory, or if another row has no requirement (but `practice` needs none), or has
 * requirements of different levels and no `rule` that chooses one of these requirements
 */
function toRule(row: GroupedRow, markers: Marks, advisories: Marks): Rule {
  if (row.group === ADVISED) {
    const source = idsOf(row, advisories).join(", ");
    if (source === "") throw new Error(`the test names no advisory: ${row.test}`);
    return { ...row, level: "advisory", source };
  }
  if (row.rule === "practice") return { ...row, level: "practice", source: "practice" };
  const named = idsOf(row, markers) as RequirementId[];
  const ids = row.rule === undefined ? named : named.filter((id) => id === row.rule);
  const levels = toUnique(ids.map((id) => requirements[id].level.replace(" NOT", "")));
  if (levels.length !== 1)
    throw new Error(`${levels.join(" and ") || "no requirement"}: ${row.test}`);
  const source = `${levels[0]}, ${toUnique(ids.map(linkSection)).join(", ")}`;
  return { ...row, level: levels[0] as Level, source };
}

/** Reads the code of the tests, and returns the rules with their levels and sources. */
export function readLedger(): Rule[] {
  const own = readFileSync(new URL("rules.ts", import.meta.url), "utf8");
  const markers = [...findMarkers(), ...markersOf("compare/rules.ts", own)];
  const advisories = findAdvisories();
  return rows.map((row) => toRule(row, markers, advisories));
}
