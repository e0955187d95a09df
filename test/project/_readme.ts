/**
 * Generates parts of README and of the pages in docs/: the tables of options and counters from their doc strings, the
 * tables of runtimes and of HTTP clients from the gaps, and the example from a file in examples/ that tests run.
 *
 *     node test/project/_readme.ts    # brings README.md and docs/ up to date
 */
import { globSync, readFileSync, writeFileSync } from "node:fs";
import { serverSchema } from "../../command/flags/commandoptions.ts";
import { flags } from "../../command/flags/flags.ts";
import type { Kind, Table } from "../../src/schema/schema.ts";
import { inheritedBy, type OptionDoc, readInterface } from "./_docs.ts";
import { readExample } from "./_example.ts";
import { clientGaps, type Gap, serverGaps } from "../suite/gaps/gaps.ts";
import { losses } from "../suite/gaps/losses.ts";
import { columnsOf, OWN } from "../hosts/_hosts.ts";
import { countLosses, lossRows } from "./_clients.ts";
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

/** The sections of docs/ that explain an option further. */
const SECTIONS: Readonly<Record<string, string>> = {
  trustProxy: "security.md#behind-another-proxy",
  followRedirects: "redirects.md#redirects-and-second-attempts",
  retry: "redirects.md#redirects-and-second-attempts",
  attemptTimeout: "redirects.md#redirects-and-second-attempts",
  mirror: "upstreams.md#mirroring",
  cookieDomainRewrite: "redirects.md#rewriting",
  cookiePathRewrite: "redirects.md#rewriting",
  cookieSecure: "redirects.md#cookies-on-httplocalhost",
  locationRewrite: "redirects.md#rewriting",
  onRequest: "hooks.md#hooks",
  onInformational: "hooks.md#hooks",
  onRequestEnd: "hooks.md#seeing-what-happens",
  onResponse: "hooks.md#hooks",
  onError: "hooks.md#hooks",
  transport: "connections.md",
};

/** The interfaces of options whose value is an object, by the option's heading. */
const MEMBERS: Readonly<Record<string, string>> = {
  "`retry`": "RetryOptions",
  "`mirror`": "MirrorSettings",
  "`dns`": "DnsOptions",
  "`cookie`": "CookieOptions",
  "`outliers`": "OutlierOptions",
  "`check`": "CheckOptions",
  "`resolve`": "ResolveOptions",
  "`retryBudget`": "RetryBudgetOptions",
};

/** Returns the anchor of a heading on GitHub; the site makes the same. */
export function toAnchor(heading: string): string {
  return heading
    .toLowerCase()
    .replaceAll(/[^\w -]/g, "")
    .replaceAll(" ", "-");
}

/** Renders a link with the name of an RFC and its section, or of the server. */
function toReference(url: string): string {
  const [, rfc, section] = /\/rfc(\d+)(?:#section-([\d.]+))?$/.exec(url) ?? [];
  if (rfc === undefined) return `[${new URL(url).hostname}](${url})`;
  return `[RFC ${rfc}${section === undefined ? "" : ` §${section}`}](${url})`;
}

/** Renders what the tags of an option say: its default, an example, and where to read more. */
function tagsOf({ name, preset, example, see }: OptionDoc): string[] {
  const links = [
    ...(name in SECTIONS ? [`[how it works](${SECTIONS[name]})`] : []),
    ...(see === undefined ? [] : [toReference(see)]),
  ];
  const parts = [
    ...(preset === undefined ? [] : [`Default: \`${preset}\`.`]),
    ...(example === undefined ? [] : [`Example: \`${name}: ${example}\`.`]),
    ...(links.length === 0 ? [] : [`See ${links.join(", ")}.`]),
  ];
  return parts.length === 0 ? [] : [parts.join(" ")];
}

/** Renders a list of the members of an option whose value is an object. */
function membersOf(name: string): string[] {
  const lines = readInterface(name).map(
    ({ name: member, preset, paragraphs }) =>
      `- \`${member}\`${preset === undefined ? "" : ` (\`${preset}\`)`}: ${paragraphs.join(" ")}`,
  );
  return [lines.join("\n")];
}

/**
 * Renders a section for each option, so that each has an anchor, and links to the sections in front of them.
 * @param suffix what follows the name in the heading of an option whose name another option has
 */
function sectionsOf(options: OptionDoc[], others: readonly string[] = [], suffix = ""): string {
  const titled = options.map((option) => {
    const isShared = others.includes(option.name);
    return { option, title: `\`${option.name}\`${isShared ? suffix : ""}` };
  });
  const links = titled.map(({ option, title }) => `[\`${option.name}\`](#${toAnchor(title)})`);
  const sections = titled.map(({ option, title }) => {
    const members = MEMBERS[title];
    return [
      `#### ${title}`,
      ...option.paragraphs,
      ...(members === undefined ? [] : membersOf(members)),
      ...tagsOf(option),
    ].join("\n\n");
  });
  return `${[links.join(", "), ...sections].join("\n\n")}\n`;
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

/** Renders the options of a proxy by group, each with its heading. */
function groupedSections(): string {
  return inheritedBy("ProxyOptions")
    .map((name) => `### ${GROUPS[name] ?? name}\n\n${sectionsOf(readInterface(name))}`)
    .join("\n");
}

const namesOf = (...interfaces: string[]): string[] =>
  interfaces.flatMap(readInterface).map(({ name }) => name);

function poolSections(): string {
  return sectionsOf(readInterface("PoolOptions"), namesOf("ProxyOptions"), " of connections");
}

/** Renders the options of several upstreams. */
function balanceSections(): string {
  const others = namesOf("ProxyOptions", "PoolOptions");
  return sectionsOf(readInterface("BalanceOptions"), others, " of several upstreams");
}

/** Describes the values of a kind: their type or unit. */
function describeKind({ name, choices, parts }: Kind<never>): string {
  if (parts !== undefined) return parts.map(describeKind).join(" or ");
  if (choices !== undefined) return choices.map((each) => `\`"${each}"\``).join(", ");
  return name === undefined ? "" : (UNITS[name] ?? name);
}

/** The types and units that the name of their kind does not describe. */
const UNITS: Readonly<Record<string, string>> = {
  switch: "`true` or `false`",
  milliseconds: "ms",
  names: "array of texts",
  ranges: "array of ranges",
};

/** Renders the table of the options of the command's server, which are the keys of `server` in a config file. */
function serverTable(): string {
  const table: Table = serverSchema;
  const rows = readInterface("ServerOptions").map(({ name, summary }) => {
    const { kind, default: preset } = table[name] as Table[string];
    const flag = flags.find(({ scope, option }) => scope === "server" && option === name);
    const key = name in SERVER_SECTIONS ? `[\`${name}\`](${SERVER_SECTIONS[name]})` : `\`${name}\``;
    const shown = preset === undefined ? "none" : `\`${JSON.stringify(preset)}\``;
    return [`${key}, \`--${flag?.name}\``, `${describeKind(kind)}; ${shown}`, summary];
  });
  return toTable([["key and flag", "value; default", "meaning"], ...rows]);
}

/** The sections of docs/ that explain an option of the server further. */
const SERVER_SECTIONS: Readonly<Record<string, string>> = {
  host: "command.md#a-socket-instead-of-a-port",
  proxyProtocol: "command.md#the-proxy-protocol",
  stopTimeout: "limits.md#stopping",
  workers: "command.md#several-processes",
  cert: "limits.md#https",
  cors: "limits.md#cors",
  maxConnections: "limits.md#limits-for-clients",
  log: "log.md",
  admin: "command.md#the-status-page",
  record: "command.md#record-and-replay",
};

/** Renders the table of the counters of `stats()`. */
function statsTable(): string {
  const rows = readInterface("PoolStats").map(({ name, summary }) => [`\`${name}\``, summary]);
  const each = readInterface("OriginStats").map(({ name, summary }) => [
    `\`origins[origin].${name}\``,
    summary,
  ]);
  return toTable([["`stats()`", "what it counts"], ...rows, ...each]);
}

function renderExample(name: string): string {
  const code = readExample(name).replace(/^\/\*\*[\s\S]*?\*\/\n/, "");
  return `\`\`\`ts\n${code}\`\`\`\n`;
}

/** Renders the number of losses of each HTTP client, and the lists of what is lost. */
export function renderLosses(
  lists: typeof losses = losses,
  onClients: readonly Gap[] = clientGaps,
  onServers: readonly Gap[] = serverGaps,
): string {
  const sections = lossRows(lists, onClients, onServers).map(
    ([heading, rows]) => `### ${heading}\n\n${toTable([["loss", "HTTP client"], ...rows])}`,
  );
  return [countLosses(onClients), ...sections].join("\n");
}

/** Renders a table with a row for each reason for which servers have a gap. */
function gapTable(): string {
  const columns = columnsOf(OWN);
  const hostsOf = (reason: string): string[] =>
    columns
      .filter(([host]) => serverGaps.some((gap) => gap.host === host && gap.reason === reason))
      .map(([, name]) => name);
  const reasons = [...new Set(serverGaps.map((gap) => gap.reason))];
  const rows = reasons.map((reason) => [reason, hostsOf(reason)] as const);
  return toTable([
    ["limit", "where"],
    ...rows.flatMap(([reason, hosts]) => {
      const where = hosts.length === columns.length ? "everywhere" : hosts.join(", ");
      return hosts.length === 0 ? [] : [[reason, where]];
    }),
  ]);
}

/** The paths of README and of all pages in docs/, relative to the project. Any of them may have generated blocks. */
export const pages: readonly string[] = [
  "README.md",
  ...globSync("docs/*.md", { cwd: root }).toSorted(),
];

export function readPage(page: string): string {
  return readFileSync(new URL(page, root), "utf8");
}

/** Renders the text between the markers `<!-- name -->` and `<!-- /name -->`, by name. */
export function renderBlocks(): Record<string, string> {
  return {
    node: renderExample("node"),
    options: groupedSections(),
    pool: poolSections(),
    balance: balanceSections(),
    server: serverTable(),
    stats: statsTable(),
    runtimes: gapTable(),
    support: toTable(supportRows()),
    clients: renderLosses(),
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
