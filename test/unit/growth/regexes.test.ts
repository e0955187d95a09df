/** Each regular expression of the sources must take linear time; responses.test.ts says why. */
import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { transform } from "esbuild";
import { describe, expect, test } from "vitest";
import { fill, growthOf, LINEAR } from "./_growth.ts";

/**
 * Finds the regular expression literals in code. The code must be printed by esbuild, without comments, types and
 * template literals.
 */
function literalsIn(code: string): RegExp[] {
  const string = /"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'/;
  const regex = /(?<=[=(,:[!&|?{};]|return)\/((?:[^\\/[\n]|\\.|\[(?:[^\\\]\n]|\\.)*\])+)\/([a-z]*)/;
  const found = code.matchAll(new RegExp(`${string.source}|${regex.source}`, "g"));
  return Array.from(found)
    .filter(([, source]) => source !== undefined)
    .map(([, source = "", flags]) => new RegExp(source, flags));
}

describe("regular expressions", () => {
  /** The parts of the inputs. An input is a prefix, many repetitions of a filling, and an ending that may prevent a match. */
  const befores = ["", ..."a|a=|5|;|;path=|;path=x|/|http://|:|::ffff:|[".split("|")];
  const fillings = Array.from(' \ta10.:/\\=;,"%#?');
  const pairs = ["a,", " ,", "a=", '="', ' "', "\\a", "/.", "%2e", "..", "1.", ":1", "\r\n", "\r"];
  const ends = ["", "x", "!", '""', "\u0100", "\n"];
  const texts = befores.flatMap((before) =>
    [...fillings, ...pairs].flatMap((filling) =>
      ends.map((end) => (size: number) => fill(size, before, filling, end)),
    ),
  );
  const long = texts.map((text) => text(4000));
  const root = join(import.meta.dirname, "../../..");
  const sources = globSync("{src,runtimes,integrations,command}/**/*.ts", { cwd: root }).toSorted();

  test.each(sources)("of %s take linear time", async (source) => {
    const text = readFileSync(join(root, source), "utf8");
    const { code } = await transform(text.replace(/^#!.*/, ""), {
      loader: "ts",
      minifyWhitespace: true,
      supported: { "template-literal": false },
    });
    for (const literal of literalsIn(code)) {
      // Search for all matches, because this takes at least as long as a search for the first match.
      const all = new RegExp(literal, `${literal.flags.replace("g", "")}g`);
      long.forEach((given, index) => {
        const start = performance.now();
        given.replace(all, "");
        // Measure the growth only of a search that is not clearly faster than a quadratic search.
        if (performance.now() - start < 0.5) return;
        const growth = growthOf((size) => {
          const sized = texts[index]?.(size) as string;
          return () => sized.replace(all, "");
        });
        expect(growth, `${String(literal)} on ${given.slice(0, 20)}`).toBeLessThan(LINEAR);
      });
    }
  });

  test("are found in the text of a source, and strings and divisions are not taken for them", () => {
    const code =
      'const a=/^x[/"]\\/y/gi,b="/no/",c=["=/no/"];c(/a/.test(d));return/b/;e/f/g;x=1/2/3';
    expect(literalsIn(code).map(String)).toEqual(['/^x[/"]\\/y/gi', "/a/", "/b/"]);
  });
});
