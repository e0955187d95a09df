/**
 * README's tables: of options and counters, made of the JSDoc that editors show, and of runtimes, made of
 * the gaps. And an example, made of one that runs.
 *
 *     node test/_readme.ts    # brings README.md up to date
 */
import { readFileSync, writeFileSync } from "node:fs";
import { serverOf } from "./_gaps.clients.ts";
import { type Gap, gaps } from "./_gaps.ts";
import type { ClientHost } from "./_host.ts";

/** One member of an interface. */
export interface OptionDoc {
  name: string;
  /** Its JSDoc without the stars; `""` if it has none. */
  doc: string;
  /** What `@default` says. */
  preset: string | undefined;
  /** The first sentence. */
  summary: string;
}

const MEMBER = /(?:^ {2}\/\*\*((?:(?!\*\/)[\s\S])*)\*\/\n)?^ {2}(?:readonly )?(\w+)\??:/gm;

/** Where the interfaces are. */
const HOMES = {
  ProxyOptions: "../src/options/options.ts",
  PoolOptions: "../src/options/pool.ts",
  PoolStats: "../src/transport.ts",
  OriginStats: "../src/transport.ts",
};

/** Reads the members of an interface out of its formatted source. */
export function readInterface(name: keyof typeof HOMES): OptionDoc[] {
  const source = readFileSync(new URL(HOMES[name], import.meta.url), "utf8");
  const start = source.indexOf(`export interface ${name} {`);
  const end = source.indexOf("\n}", start);
  if (start < 0 || end < 0) throw new Error(`no interface ${name}`);
  return Array.from(source.slice(start, end).matchAll(MEMBER), ([, comment = "", member = ""]) => {
    const doc = comment.replaceAll(/^\s*\* ?/gm, "").trim();
    const text = doc.replace(/^@[\s\S]*/m, "").replaceAll(/\s+/g, " ");
    return {
      name: member,
      doc,
      preset: /^@default (.+)$/m.exec(doc)?.[1],
      summary: /^.+?\.(?= |$)/.exec(text)?.[0] ?? text,
    };
  });
}

/** A Markdown table, padded as the formatter pads it. */
function toTable(rows: string[][]): string {
  const cells = rows.map((row) => row.map((cell) => cell.replaceAll("|", "\\|")));
  const widths = (cells[0] ?? []).map((_, i) =>
    Math.max(...cells.map((row) => row[i]?.length ?? 0)),
  );
  const lines = cells.map((row) => row.map((cell, i) => cell.padEnd(widths[i] ?? 0)));
  const rule = widths.map((width) => "-".repeat(width));
  const [head = [], ...body] = lines;
  return [head, rule, ...body].map((line) => `| ${line.join(" | ")} |\n`).join("");
}

/** A default as a table can show it: of a long object, the beginning. */
function abridged(preset: string): string {
  return preset.length <= 30 ? preset : preset.replace(/^(\{ .*?,).*/, "$1 … }");
}

/** Options that README says more of, and under which heading. */
const SECTIONS: Readonly<Record<string, string>> = {
  trustProxy: "behind-another-proxy",
  followRedirects: "redirects-and-second-attempts",
  retry: "redirects-and-second-attempts",
  cookieDomainRewrite: "rewriting",
  cookiePathRewrite: "rewriting",
  locationRewrite: "rewriting",
  onRequest: "hooks",
  onInformational: "hooks",
  onResponse: "hooks",
  onError: "hooks",
  transport: "connections",
};

function tableOf(options: OptionDoc[]): string {
  const rows = options.map(({ name, preset, summary }) => [
    name in SECTIONS ? `[\`${name}\`](#${SECTIONS[name]})` : `\`${name}\``,
    preset === undefined ? "–" : `\`${abridged(preset)}\``,
    summary,
  ]);
  return toTable([["option", "default", "meaning"], ...rows]);
}

/** What `stats()` counts. */
function statsTable(): string {
  const rows = readInterface("PoolStats").map(({ name, summary }) => [`\`${name}\``, summary]);
  const each = readInterface("OriginStats").map(({ name, summary }) => [
    `\`origins[origin].${name}\``,
    summary,
  ]);
  return toTable([["`stats()`", "what it counts"], ...rows, ...each]);
}

/** An example with the imports of a user's project. */
function example(name: string): string {
  const source = readFileSync(new URL(`../examples/${name}.ts`, import.meta.url), "utf8");
  const code = source.replace(/^\/\*\*[\s\S]*?\*\/\n/, "").replace('"#proxy"', '"fetchway"');
  return `\`\`\`ts\n${code}\`\`\`\n`;
}

const HOSTS: readonly [Gap["host"], string][] = [
  ["node", "node:http"],
  ["srvx", "srvx"],
  ["h3", "h3"],
  ["hono", "Hono"],
  ["bun", "Bun"],
  ["deno", "Deno"],
  ["workerd", "Workers"],
];

/** The hosts with other clients. */
const CLIENTS: readonly [ClientHost, string][] = [
  ["undici", "undici"],
  ["fetch-node", "Node's fetch"],
  ["fetch-bun", "Bun's fetch"],
  ["fetch-deno", "Deno's fetch"],
];

/** The table of gaps that belong to the client and not to its server. */
function clientTable(): string {
  const isServers = ({ host, reason }: Gap): boolean => {
    const server = serverOf[host as ClientHost];
    return gaps.some((gap) => gap.host === server && gap.reason === reason);
  };
  return gapTable(
    CLIENTS,
    gaps.filter((gap) => !isServers(gap)),
  );
}

/** A row for each reason that one or more hosts have a gap. */
function gapTable(hosts: typeof HOSTS = HOSTS, among: readonly Gap[] = gaps): string {
  const shown = among.filter((gap) => hosts.some(([host]) => host === gap.host));
  const reasons = [...new Set(shown.map(({ reason }) => reason))];
  const rows = reasons.map((reason) =>
    [reason].concat(
      hosts.map(([host]) =>
        shown.some((gap) => gap.host === host && gap.reason === reason) ? "gap" : "",
      ),
    ),
  );
  return toTable([["", ...hosts.map(([, name]) => name)], ...rows]);
}

export const README: URL = new URL("../README.md", import.meta.url);

/** What stands between the markers `<!-- name -->` and `<!-- /name -->`. */
export function readmeBlocks(): Record<string, string> {
  return {
    node: example("node"),
    options: tableOf(readInterface("ProxyOptions")),
    pool: tableOf(readInterface("PoolOptions")),
    stats: statsTable(),
    runtimes: gapTable(),
    clients: clientTable(),
  };
}

/** README with its generated blocks up to date. */
export function updateReadme(readme: string): string {
  let updated = readme;
  for (const [name, block] of Object.entries(readmeBlocks())) {
    const between = new RegExp(`(<!-- ${name} -->\n)[\\s\\S]*?(<!-- /${name} -->)`);
    updated = updated.replace(
      between,
      (_, open: string, close: string) => `${open}\n${block}\n${close}`,
    );
  }
  return updated;
}

if (import.meta.main) writeFileSync(README, updateReadme(readFileSync(README, "utf8")));
