/** Finds the calls of `rfc` in the sources of the tests, and the tests that contain them. */
import { globSync, readFileSync } from "node:fs";
import { basename } from "node:path";
import type { TestName } from "../_suite.ts";
import { type RequirementId, requirements } from "./requirements.ts";

const TESTS = new URL("../", import.meta.url);

/** A test with a marker, which says that it checks a requirement. */
export interface Marked {
  readonly id: RequirementId;
  /** The file, from the folder of the tests, such as `suite/hops.ts`. */
  readonly file: string;
  /** The title of the test, after the title of the `describe` around it. */
  readonly title: string;
}

/** Whether the test belongs to the black-box suite. Gaps name such a test by its title. */
export function isInSuite(marked: Marked): marked is Marked & { title: TestName } {
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
const MARKER = /^( *)rfc\(\s*("[^)]*)\);$/gm;

interface Named {
  readonly at: number;
  readonly indent: number;
  readonly title: string;
}

function textOf(literal: string): string {
  return literal.slice(1, -1).replaceAll(/\\(.)/g, "$1");
}

function titlesOf(file: string, source: string): Named[] {
  if (file.startsWith("suite/")) {
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

/** Joins the titles of the tests and `describe` calls around a place, the outermost first. */
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
 * Reads the markers of a file.
 * @throws Error for a marker outside of a test, for arguments that are not literals, and for an unknown id
 */
export function markersOf(file: string, source: string): Marked[] {
  const titles = titlesOf(file, source);
  const found = Array.from(source.matchAll(MARKER), ({ index, 1: indent = "", 2: list = "" }) => {
    const title = titleAt(titles, index, indent.length);
    if (title === undefined) throw new Error(`${file}: a marker stands in no test: ${list}`);
    return Array.from(list.matchAll(/"([^"]*)"/g), ([, id = ""]): Marked => {
      if (!Object.hasOwn(requirements, id)) throw new Error(`${file}: no such requirement: ${id}`);
      return { id: id as RequirementId, file, title };
    });
  });
  const calls = source.match(/\brfc\(/g)?.length ?? 0;
  if (calls !== found.length) {
    throw new Error(`${file}: of ${calls} markers, ${found.length} are statements of literals`);
  }
  return found.flat();
}

/** Reads the markers of all tests. */
export function findMarkers(): Marked[] {
  const files = globSync(["*.test.ts", "suite/*.ts"], { cwd: TESTS }).toSorted();
  return files
    .filter((file) => basename(file) !== "conformance.test.ts")
    .flatMap((file) => markersOf(file, readFileSync(new URL(file, TESTS), "utf8")));
}
