/**
 * Generates the table of advisories in SECURITY.md, from the list in conformance/advisories.ts, the tests that name them,
 * and the lists of gaps.
 *
 *     node test/project/_advisories.ts    # brings SECURITY.md up to date
 */
import { readFileSync, writeFileSync } from "node:fs";
import { type Advisory, advisories } from "../conformance/advisories.ts";
import { findAdvisories, isInSuite, type Marked } from "../conformance/markers.ts";
import { gaps } from "../suite/gaps/gaps.ts";
import { columnsOf, hostNames } from "../hosts/_hosts.ts";
import { toTable } from "./_readme.ts";

export const POLICY: URL = new URL("../../SECURITY.md", import.meta.url);

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

/** Returns the effects of the gaps in which one of these tests fails, each with its hosts. */
function gapsOf(tests: readonly Marked<string>[]): string[] {
  const titles = new Set<string>(tests.filter(isInSuite).map(({ title }) => title));
  const failing = gaps.filter(({ test }) => titles.has(test));
  return [...new Set(failing.map(({ reason }) => reason))].map((reason) => {
    const on = new Set(failing.filter((gap) => gap.reason === reason).map(({ host }) => host));
    const hosts = columnsOf(hostNames).filter(([host]) => on.has(host));
    return `${hosts.map(([, title]) => title).join(", ")}: ${reason}`;
  });
}

function rowOf({ ids, says, untested }: Advisory, named: readonly Marked<string>[]): string[] {
  const links = ids.map(linkOf).join(", ");
  if (untested !== undefined) return [links, says, untested];
  const tests = named.filter(({ id }) => ids.includes(id));
  const files = [...new Set(tests.map(({ file }) => `\`test/${file}\``))];
  const differing = gapsOf(tests).map((gap) => ` On ${gap}.`);
  return [links, `${says}${differing.join("")}`, files.join(", ")];
}

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
