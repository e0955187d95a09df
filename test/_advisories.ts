/**
 * Generates the table of advisories in SECURITY.md, from the list in conformance/advisories.ts, the tests that name them,
 * and the lists of gaps.
 *
 *     node test/_advisories.ts    # brings SECURITY.md up to date
 */
import { readFileSync, writeFileSync } from "node:fs";
import { type Advisory, advisories } from "./conformance/advisories.ts";
import { findAdvisories, isInSuite, type Marked } from "./conformance/markers.ts";
import { gaps } from "./_gaps.ts";
import { CLIENTS, HOSTS, toTable } from "./_readme.ts";

export const POLICY: URL = new URL("../SECURITY.md", import.meta.url);

const BLOCK = /(?<=<!-- advisories -->\n)[^]*(?=<!-- \/advisories -->)/;

/** Returns the advisories of the list, in its order. */
export function listAdvisories(): Advisory[] {
  return Object.values(advisories).flat();
}

function linkOf(id: string): string {
  if (id.startsWith("CVE-")) return `[${id}](https://www.cve.org/CVERecord?id=${id})`;
  if (id.startsWith("GHSA-")) return `[${id}](https://github.com/advisories/${id})`;
  return `[${id}](https://github.com/oven-sh/bun/issues/${id.replace("bun#", "")})`;
}

/** Returns the titles of the hosts on which one of the tests fails. */
function gapsOf(tests: readonly Marked<string>[]): string[] {
  const titles = new Set<string>(tests.filter(isInSuite).map(({ title }) => title));
  const failing = new Set(gaps.filter(({ test }) => titles.has(test)).map(({ host }) => host));
  return [...HOSTS, ...CLIENTS].filter(([host]) => failing.has(host)).map(([, title]) => title);
}

function rowOf({ ids, says, untested }: Advisory, named: readonly Marked<string>[]): string[] {
  const links = ids.map(linkOf).join(", ");
  if (untested !== undefined) return [links, says, untested];
  const tests = named.filter(({ id }) => ids.includes(id));
  const files = [...new Set(tests.map(({ file }) => `[${file}](test/${file})`))];
  const without = gapsOf(tests);
  const except = without.length === 0 ? "" : `; not on ${without.join(", ")}`;
  return [links, says, files.join(", ") + except];
}

/** Returns the tables, each below its heading. */
export function makeTables(named: readonly Marked<string>[] = findAdvisories()): string {
  const tables = Object.entries(advisories).map(([heading, rows]) => {
    const body = rows.map((row) => rowOf(row, named));
    return `### ${heading}\n\n${toTable([["advisory", "here", "tests"], ...body])}`;
  });
  return `\n${tables.join("\n")}\n`;
}

/** Returns the text of SECURITY.md with these tables. */
export function withTables(policy: string, tables: string = makeTables()): string {
  return policy.replace(BLOCK, () => tables);
}

if (import.meta.main) writeFileSync(POLICY, withTables(readFileSync(POLICY, "utf8")));
