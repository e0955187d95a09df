/** Renders the results: docs/scoreboard.md with its matrix, and a page for each proxy in docs/scoreboard/. */
import { existsSync, globSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { rect, text, toSvg } from "../../bench/chart.ts";
import { toTable } from "../project/_readme.ts";
import type { Contestant } from "./contestant.ts";
import { type Level, readLedger, type Rule } from "./ledger.ts";
import type { Passage } from "./recorder.ts";
import { groupNames } from "./rows.ts";
import { type Failure, isFailure, type Outcome, type Outcomes } from "./run.ts";

/** The results of a proxy. */
export interface Result extends Outcomes, Pick<Contestant, "name" | "source" | "hardenings"> {}

const root = join(import.meta.dirname, "../..");
const STORE = join(import.meta.dirname, "results.json");

export function readResults(): Result[] {
  return existsSync(STORE) ? (JSON.parse(readFileSync(STORE, "utf8")) as Result[]) : [];
}

export function writeResults(results: readonly Result[]): void {
  writeFileSync(STORE, `${JSON.stringify(results, null, 2)}\n`);
}

/** Numbers of rules: of those that hold, and of all that could be tested. */
interface Count {
  kept: number;
  tested: number;
}

function countRules(result: Result, rules: readonly Rule[]): Count {
  const outcomes = rules.map(({ test }) => result.rows[test]);
  const isTested = (outcome: Outcome | undefined): boolean =>
    outcome === "passed" || isFailure(outcome);
  return {
    kept: outcomes.filter((outcome) => outcome === "passed").length,
    tested: outcomes.filter(isTested).length,
  };
}

/** Returns the number of withheld failures: the rules that have no outcome. */
function countWithheld({ rows }: Result, rules: readonly Rule[]): number {
  return rules.filter(({ test }) => rows[test] === undefined).length;
}

/** The colours of the cells of the matrix. White text is readable on each of them. */
const COLOURS = { kept: "#15803d", broken: "#b91c1c", other: "#b45309", untested: "#64748b" };

const [LABEL, HEAD, COLUMN, ROW] = [126, 104, 30, 26];

function cellOf(result: Result, rules: readonly Rule[]): [colour: string, mark: string] {
  const { kept, tested } = countRules(result, rules);
  if (tested === 0) return [COLOURS.untested, "–"];
  if (kept === tested && countWithheld(result, rules) > 0) return [COLOURS.untested, "?"];
  if (kept === tested) return [COLOURS.kept, "✓"];
  const isBroken = rules.some(
    ({ level, test }) => /MUST|advisory/.test(level) && isFailure(result.rows[test]),
  );
  return [isBroken ? COLOURS.broken : COLOURS.other, `${tested - kept}`];
}

/** Draws the numbers of rules that do not hold: a row for each proxy, and a column for each group. */
export function toMatrix(results: readonly Result[], rules: readonly Rule[]): string {
  const parts = groupNames.map((group, i) => {
    const [x, y] = [LABEL + i * COLUMN + 20, HEAD - 6];
    return text(x, y, group, `transform="rotate(-55 ${x} ${y})"`);
  });
  for (const [i, result] of results.entries()) {
    const y = HEAD + i * ROW;
    parts.push(text(0, y + 17, result.name, result.source === "project" ? "title" : ""));
    for (const [j, group] of groupNames.entries()) {
      const ofGroup = rules.filter((rule) => rule.group === group);
      const [colour, mark] = cellOf(result, ofGroup);
      const x = LABEL + j * COLUMN;
      const centre = `style="fill:#fff" text-anchor="middle"`;
      parts.push(rect(x, y, COLUMN - 3, ROW - 3, colour), text(x + 13.5, y + 16, mark, centre));
    }
  }
  const legend: [string, string][] = [
    [COLOURS.kept, "every rule holds"],
    [COLOURS.broken, "rules that do not hold, with a MUST or an advisory among them"],
    [COLOURS.other, "rules that do not hold, none of which is a MUST or of an advisory"],
    [COLOURS.untested, "nothing to test, because the proxy lacks the feature; ?: withheld"],
  ];
  let y = HEAD + results.length * ROW + 14;
  for (const [colour, label] of legend) {
    parts.push(rect(0, y, 14, 14, colour), text(22, y + 12, label));
    y += 22;
  }
  return toSvg(LABEL + groupNames.length * COLUMN + 30, y, parts);
}

const PAGE = "docs/scoreboard.md";
const MATRIX = "docs/scoreboard.svg";
const pageOf = (name: string): string => `docs/scoreboard/${name}.md`;

function fraction(result: Result, rules: readonly Rule[], level: Level): string {
  const { kept, tested } = countRules(
    result,
    rules.filter((rule) => rule.level === level),
  );
  return `${kept} of ${tested}`;
}

function toFigures(
  results: readonly Result[],
  rules: readonly Rule[],
  levels: readonly (readonly [Level, string])[],
): string {
  const head = ["proxy", ...levels.map(([, title]) => title)];
  const body = results.map((result) => {
    const withheld = countWithheld(result, rules);
    const note = withheld === 0 ? "" : `, ${withheld} withheld`;
    const name = `[${result.name}](scoreboard/${result.name}.md)${note}`;
    return [name, ...levels.map(([level]) => fraction(result, rules, level))];
  });
  return toTable([head, ...body]);
}

/** Returns the row of a rule: the proxies for which it does not hold are named in one cell. */
function toRuleRow(results: readonly Result[], rule: Rule): string[] {
  const failing = results
    .filter(({ rows }) => isFailure(rows[rule.test]))
    .map(({ name }) => name)
    .join(", ");
  return [rule.test, rule.source, failing || "–"];
}

function toGroup(results: readonly Result[], rules: readonly Rule[], group: string): string {
  const ofGroup = rules.filter((rule) => rule.group === group);
  const rows = ofGroup.map((rule) => toRuleRow(results, rule));
  return `### ${group}\n\n${toTable([["rule", "source", "does not hold for"], ...rows])}`;
}

const GENERATED = "<!-- `npm run compare -- --write` writes this page. -->";

export function toPage(results: readonly Result[], rules: readonly Rule[]): string {
  const groups = groupNames.map((group) => toGroup(results, rules, group));
  return `# The scoreboard

${GENERATED}

What proxies do with ${rules.length} cases, as seen from both sides: the bytes that the upstream receives, and those that the client
receives. Each proxy runs in its plainest sensible configuration. Its page has that configuration, the rules that do not
hold with the bytes of each, and the options that change that.

![The number of rules that do not hold, by proxy and group of rules](scoreboard.svg)

A rule is a MUST or a SHOULD of an RFC, the mechanism of an advisory about some proxy or HTTP client, or practice: no RFC
has the rule, but users notice where it does not hold. What an RFC allows passes: a proxy may refuse where a rule permits
that, and buffer a body unless the rule is about that. A rule fails if it fails twice, the second time on a new process.

## Figures

The rules that hold, of those that could be tested:

${toFigures(results, rules, [
  ["MUST", "MUST"],
  ["SHOULD", "SHOULD"],
])}
${toFigures(results, rules, [
  ["advisory", "advisories"],
  ["practice", "practice"],
])}
## Run it

\`\`\`sh
npm run compare -- --proxy nginx,haproxy          # all rules
npm run compare -- --proxy nginx --row "103"      # those whose titles contain this text, with their bytes
npm run compare -- --proxy nginx --row trailer --hardening "proxy_buffering off"
\`\`\`

Each rule is a test of the suite in \`test/suite/\`, which runs on every host of Fetchway as well.
[CONTRIBUTING.md](../CONTRIBUTING.md) says how a rule or a proxy is added.

## Rules

${groups.join("\n")}`;
}

function toBytes(passages: readonly Passage[]): string {
  const blocks = passages.map(({ way, bytes, end }) => {
    const lines = bytes.replace(/\n$/, "").split("\n");
    const body = lines.filter((line, i) => line !== "" || i < lines.length - 1);
    if (end) body.push(end === "reset" ? "(resets the connection)" : "(closes the connection)");
    return `${way}\n${body.map((line) => `    ${line.replace(/ $/, "\\x20")}\n`).join("")}`;
  });
  return `\`\`\`text\n${blocks.join("")}\`\`\`\n`;
}

function toFailure({ test, source }: Rule, failure: Failure): string {
  const hardened = Object.keys(failure.hardened ?? {}).map((label) => `\`${label}\``);
  const notes = [
    source === "practice" ? "Practice: no RFC has the rule." : `${source}.`,
    failure.crashed ? "The process ended; it was started again for the next rule." : "",
    hardened.length > 0 ? `Holds with ${hardened.join(", ")}.` : "",
  ];
  const why = `The test: \`${failure.why.replaceAll("`", "'")}\``;
  const bytes = failure.passages.length > 0 ? `\n${toBytes(failure.passages)}` : "";
  return `### ${test}\n\n${notes.filter(Boolean).join(" ")}\n\n${why}\n${bytes}`;
}

function toConfiguration(configuration: string): string {
  if (existsSync(join(root, configuration))) return `Its program is \`${configuration}\`.\n`;
  return `Its configuration:\n\n\`\`\`text\n${configuration.trimEnd()}\n\`\`\`\n`;
}

function toHardenings(result: Result): string {
  const labels = Object.entries(result.hardenings ?? {});
  if (labels.length === 0) return "";
  const failures = Object.values(result.rows).filter(isFailure);
  const rows = labels.map(([label, says]) => {
    const mends = failures.filter(({ hardened }) => hardened?.[label]).length;
    return [`\`${label}\``, says, `${mends}`];
  });
  return `\n${toTable([["option", "effect", "rules that then hold"], ...rows])}`;
}

export function toProxyPage(result: Result, rules: readonly Rule[]): string {
  const failing = rules.filter(({ test }) => isFailure(result.rows[test]));
  const listed = (wanted: Outcome): string[] =>
    rules.filter(({ test }) => result.rows[test] === wanted).map(({ test }) => `- ${test}\n`);
  const sections = failing.map((rule) => toFailure(rule, result.rows[rule.test] as Failure));
  const lacking = listed("lacking");
  const withheld = countWithheld(result, rules);
  return `# ${result.name}

${GENERATED}

One of the proxies of [the scoreboard](../scoreboard.md): ${result.version}. ${toConfiguration(result.configuration)}${toHardenings(result)}
${
  withheld === 0
    ? ""
    : `Rules that are withheld: ${withheld}. They do not hold in a way that endangers users, and the project has not published that yet.\n\n`
}${
    lacking.length > 0
      ? `## Not tested\n\nThe proxy lacks the feature that these rules are about:\n\n${lacking.join("")}\n`
      : ""
  }## Rules that do not hold

${sections.join("\n") || "None.\n"}`;
}

/** Returns the files of the report by their paths in the project. */
export function render(results: readonly Result[]): Map<string, string> {
  const rules = readLedger();
  return new Map([
    [PAGE, toPage(results, rules)],
    [MATRIX, toMatrix(results, rules)],
    ...results.map((result): [string, string] => [pageOf(result.name), toProxyPage(result, rules)]),
  ]);
}

/** Writes the files of the report, and removes the pages of other proxies. */
export function writeReport(results: readonly Result[]): void {
  const files = render(results);
  mkdirSync(join(root, "docs/scoreboard"), { recursive: true });
  for (const file of globSync("docs/scoreboard/*.md", { cwd: root })) {
    if (!files.has(file)) rmSync(join(root, file));
  }
  for (const [file, content] of files) writeFileSync(join(root, file), content);
}
