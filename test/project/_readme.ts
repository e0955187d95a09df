/**
 * Generates parts of README and of the pages in docs/: the tables of options and counters from their doc strings, the
 * tables of runtimes from the gaps, and the example from a file in examples/ that tests run.
 *
 *     node test/project/_readme.ts    # brings README.md and docs/ up to date
 */
import { globSync, readFileSync, writeFileSync } from "node:fs";
import { inheritedBy, type OptionDoc, readInterface } from "./_docs.ts";
import { readExample } from "./_example.ts";
import { type Gap, gaps } from "../suite/gaps/gaps.ts";
import { columnsOf, HOSTS, OTHER_CLIENTS, OWN } from "../hosts/_hosts.ts";
import { supportRows } from "./_support.ts";

const root = new URL("../../", import.meta.url);

/** A Markdown table, padded as the formatter pads it. */
export function toTable(rows: string[][]): string {
  const cells = rows.map((row) => row.map((cell) => cell.replaceAll("|", "\\|")));
  const widths = (cells[0] ?? []).map((_, i) =>
    Math.max(...cells.map((row) => row[i]?.length ?? 0)),
  );
  const lines = cells.map((row) => row.map((cell, i) => cell.padEnd(widths[i] ?? 0)));
  const rule = widths.map((width) => "-".repeat(width));
  const [head = [], ...body] = lines;
  return [head, rule, ...body].map((line) => `| ${line.join(" | ")} |\n`).join("");
}

/** Abridges a default for the table: a long object ends after its first member. */
function abridged(preset: string): string {
  return preset.length <= 30 ? preset : preset.replace(/^(\{ .*?,).*/, "$1 … }");
}

/** The sections of docs/ that explain an option further. */
const SECTIONS: Readonly<Record<string, string>> = {
  trustProxy: "security.md#behind-another-proxy",
  followRedirects: "redirects.md#redirects-and-second-attempts",
  retry: "redirects.md#redirects-and-second-attempts",
  attemptTimeout: "redirects.md#redirects-and-second-attempts",
  mirror: "upstreams.md#mirroring",
  cookieDomainRewrite: "redirects.md#rewriting",
  cookiePathRewrite: "redirects.md#rewriting",
  locationRewrite: "redirects.md#rewriting",
  onRequest: "hooks.md#hooks",
  onInformational: "hooks.md#hooks",
  onRequestEnd: "hooks.md#seeing-what-happens",
  onResponse: "hooks.md#hooks",
  onError: "hooks.md#hooks",
  transport: "connections.md",
};

function tableOf(options: OptionDoc[]): string {
  const rows = options.map(({ name, preset, summary }) => [
    name in SECTIONS ? `[\`${name}\`](${SECTIONS[name]})` : `\`${name}\``,
    preset === undefined ? "–" : `\`${abridged(preset)}\``,
    summary,
  ]);
  return toTable([["option", "default", "meaning"], ...rows]);
}

/** The headings of the groups of options, by the interface of the group. */
const GROUPS: Readonly<Record<string, string>> = {
  HeaderOptions: "Header fields of the request",
  ForwardingOptions: "What the upstream is told about the client",
  PathOptions: "The path",
  LimitOptions: "Time and size",
  RepeatOptions: "Redirects and retries",
  MirrorOptions: "Copies to another upstream",
  ObservationOptions: "Traces and times",
  RewriteOptions: "Header fields of the response that name the target",
  HookOptions: "Functions of the app",
  ClientOptions: "What sends the requests",
};

/** Renders a table for each group of the options of a proxy, with its heading. */
function groupedTables(): string {
  return inheritedBy("ProxyOptions")
    .map((name) => `### ${GROUPS[name] ?? name}\n\n${tableOf(readInterface(name))}`)
    .join("\n");
}

/** Renders the table of the counters of `stats()`. */
function statsTable(): string {
  const rows = readInterface("PoolStats").map(({ name, summary }) => [`\`${name}\``, summary]);
  const each = readInterface("OriginStats").map(({ name, summary }) => [
    `\`origins[origin].${name}\``,
    summary,
  ]);
  return toTable([["`stats()`", "what it counts"], ...rows, ...each]);
}

/** Renders the code of an example. */
function example(name: string): string {
  const code = readExample(name).replace(/^\/\*\*[\s\S]*?\*\/\n/, "");
  return `\`\`\`ts\n${code}\`\`\`\n`;
}

/** Renders the table of the gaps of the HTTP clients, without the gaps of the servers on the same hosts. */
function clientTable(): string {
  const isServers = ({ host, reason }: Gap): boolean => {
    const server = HOSTS[host].server;
    return gaps.some((gap) => gap.host === server && gap.reason === reason);
  };
  return gapTable(
    columnsOf(OTHER_CLIENTS),
    gaps.filter((gap) => !isServers(gap)),
  );
}

/** Renders a table with a row for each reason for which a host has a gap. */
function gapTable(
  columns: readonly [Gap["host"], string][] = columnsOf(OWN),
  among: readonly Gap[] = gaps,
): string {
  const shown = among.filter((gap) => columns.some(([host]) => host === gap.host));
  const reasons = [...new Set(shown.map(({ reason }) => reason))];
  const rows = reasons.map((reason) =>
    [reason].concat(
      columns.map(([host]) =>
        shown.some((gap) => gap.host === host && gap.reason === reason) ? "gap" : "",
      ),
    ),
  );
  return toTable([["", ...columns.map(([, name]) => name)], ...rows]);
}

/** The paths of the pages that have generated blocks: README and those in docs/, relative to the project. */
export const pages: readonly string[] = [
  "README.md",
  ...globSync("docs/*.md", { cwd: root }).toSorted(),
];

/** Returns the text of a page. */
export function readPage(page: string): string {
  return readFileSync(new URL(page, root), "utf8");
}

/** Renders the text between the markers `<!-- name -->` and `<!-- /name -->`, by name. */
export function renderBlocks(): Record<string, string> {
  return {
    node: example("node"),
    options: groupedTables(),
    pool: tableOf(readInterface("PoolOptions")),
    stats: statsTable(),
    runtimes: gapTable(),
    support: toTable(supportRows()),
    clients: clientTable(),
  };
}

/** Returns the text of a page with its generated blocks up to date. */
export function updateBlocks(text: string): string {
  let updated = text;
  for (const [name, block] of Object.entries(renderBlocks())) {
    const between = new RegExp(`(<!-- ${name} -->\n)[\\s\\S]*?(<!-- /${name} -->)`);
    updated = updated.replace(
      between,
      (_, open: string, close: string) => `${open}\n${block}\n${close}`,
    );
  }
  return updated;
}

if (import.meta.main) {
  for (const page of pages) writeFileSync(new URL(page, root), updateBlocks(readPage(page)));
}
