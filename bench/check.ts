/**
 * `npm run bench -- check`: exits with 1 if a document has figures that were measured with code other than the current code.
 */
import { globSync, readFileSync } from "node:fs";
import { hashOfCode, stampsIn, toStamp } from "./code.ts";
import { type Bench, defineBench } from "./flags.ts";
import { pathOf } from "./report.ts";

/**
 * Returns the generated parts of a document, each of which is between two markers. A document without markers is generated as
 * a whole.
 */
function tablesOf(document: string): { name: string; text: string }[] {
  const parts = Array.from(
    document.matchAll(/<!-- (\w+) -->([^]*?)<!-- \/\1 -->/g),
    ([, name, text]) => ({ name: `, ${name}`, text: text as string }),
  );
  return parts.length > 0 ? parts : [{ name: "", text: document }];
}

function compareStamps(): void {
  const now = hashOfCode();
  console.log(`the sources are ${toStamp(now)}`);
  for (const document of globSync("*.md", { cwd: pathOf(".") }).toSorted()) {
    for (const { name, text } of tablesOf(readFileSync(pathOf(document), "utf8"))) {
      const [hash] = stampsIn(text);
      if (hash === now) continue;
      console.log(`bench/${document}${name}: figures of ${hash ? toStamp(hash) : "unknown code"}`);
      process.exitCode = 1;
    }
  }
}

export const check: Bench = defineBench({
  name: "check",
  text: "names the documents with figures of other code than the code beside them",
  flags: {},
  run: compareStamps,
});
