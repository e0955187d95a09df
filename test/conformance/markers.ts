/**
 * Finds the calls of `rfc` and `advisory` in the sources of the tests, and the tests that contain them. A test whose title
 * names an advisory needs no call.
 */
import { globSync, readFileSync } from "node:fs";
import type { TestName } from "../suite/_suite.ts";
import { ADVISORY_ID } from "./advisories.ts";
import { type RequirementId, requirements } from "./requirements.ts";

const TESTS = new URL("../", import.meta.url);

/** The tests of this file and of the generated documents, whose sources contain markers in strings. */
const OWN: ReadonlySet<string> = new Set([
  "project/conformance.test.ts",
  "project/advisories.test.ts",
]);

/** A test with a marker, which names a requirement or an advisory that the test checks. */
export interface Marked<Id extends string = RequirementId> {
  readonly id: Id;
  /** The file, from the folder of the tests, such as `suite/hops.ts`. */
  readonly file: string;
  /** The title of the test, after the title of the `describe` around it. */
  readonly title: string;
}

/** Whether the test belongs to the black-box suite. The lists of gaps name its tests by their titles. */
export function isInSuite<Id extends string>(
  marked: Marked<Id>,
): marked is Marked<Id> & { title: TestName } {
  return marked.file.startsWith("suite/");
}

const TITLE = String.raw`("(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')`;
/** Finds the methods of a theme, each of which is a test of the suite. */
const METHOD = new RegExp(String.raw`^ {2}async ${TITLE}\(`, "gm");
/** Finds the titles of tests, after `test(` or after the arguments of `test.each(…)`. */
const CALL = new RegExp(
  String.raw`^( *)(?:(describe|test)\b[^\n"']*|\]\)|.*?\)|\))\(\s*${TITLE},`,
  "gm",
);

interface Named {
  readonly at: number;
  readonly indent: number;
  readonly title: string;
}

function textOf(literal: string): string {
  return literal.slice(1, -1).replaceAll(/\\(.)/g, "$1");
}

function titlesOf(file: string, source: string): Named[] {
  if (/^(?:suite|compare)\//.test(file)) {
    return Array.from(source.matchAll(METHOD), ({ index, 1: literal = "" }) => ({
      at: index,
      indent: 2,
      title: textOf(literal),
    }));
  }
  return Array.from(source.matchAll(CALL), ({ index, 1: indent = "", 3: literal = "" }) => ({
    at: index,
    indent: indent.length,
    title: textOf(literal),
  }));
}

/** Joins the titles of the tests and `describe` calls around a position in the source, the outermost first. */
function titleAt(titles: readonly Named[], at: number, indent: number): string | undefined {
  const around: string[] = [];
  let within = indent;
  for (const named of titles.filter((each) => each.at < at).toReversed()) {
    if (named.indent >= within) continue;
    within = named.indent;
    around.unshift(named.title);
  }
  return around.length === 0 ? undefined : around.join(": ");
}

/**
 * Reads the calls of a marker in a file.
 * @throws Error for a call outside of a test, and for arguments that are not literals
 */
function callsOf(marker: "rfc" | "advisory", file: string, source: string): Marked<string>[] {
  const titles = titlesOf(file, source);
  const pattern = new RegExp(String.raw`^( *)${marker}\(\s*("[^)]*)\);$`, "gm");
  const found = Array.from(source.matchAll(pattern), ({ index, 1: indent = "", 2: list = "" }) => {
    const title = titleAt(titles, index, indent.length);
    if (title === undefined) throw new Error(`${file}: a marker is outside of a test: ${list}`);
    return Array.from(list.matchAll(/"([^"]*)"/g), ([, id = ""]) => ({ id, file, title }));
  });
  const calls = source.match(new RegExp(String.raw`\b${marker}\(`, "g"))?.length ?? 0;
  if (calls !== found.length) {
    throw new Error(`${file}: of ${calls} markers, ${found.length} are statements of literals`);
  }
  return found.flat();
}

/**
 * Reads the calls of `rfc` in a file.
 * @throws Error as `callsOf` does, and for an unknown id
 */
export function markersOf(file: string, source: string): Marked[] {
  const found = callsOf("rfc", file, source);
  const unknown = found.find(({ id }) => !Object.hasOwn(requirements, id));
  if (unknown !== undefined) throw new Error(`${file}: no such requirement: ${unknown.id}`);
  return found as Marked[];
}

/** Reads the advisories that the tests of a file name, in their titles or in calls of `advisory`. */
export function advisoriesIn(file: string, source: string): Marked<string>[] {
  const titled = titlesOf(file, source).flatMap(({ at, indent, title: own }) => {
    const title = titleAt(titlesOf(file, source), at + 1, indent + 1) ?? own;
    return Array.from(own.matchAll(ADVISORY_ID), ([id]) => ({ id, file, title }));
  });
  return [...titled, ...callsOf("advisory", file, source)];
}

/** Calls a function with each file of tests and its source. */
function readTests<T>(read: (file: string, source: string) => T[]): T[] {
  const files = globSync(["**/*.test.ts", "suite/*.ts"], { cwd: TESTS }).toSorted();
  return files
    .filter((file) => !OWN.has(file))
    .flatMap((file) => read(file, readFileSync(new URL(file, TESTS), "utf8")));
}

/** Reads the calls of `rfc` in all tests. */
export function findMarkers(): Marked[] {
  return readTests(markersOf);
}

/** Reads the advisories that all tests name. */
export function findAdvisories(): Marked<string>[] {
  return readTests(advisoriesIn);
}
