/** Copies of the examples, in which imports of the installed package are replaced by this project's sources. */
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

/** The sources in place of the installed package. */
const SOURCES: Readonly<Record<string, string>> = {
  fetchway: "#fetchway",
  "fetchway/bun": "../runtimes/bun.ts",
  "fetchway/errors": "../src/explain/errors.ts",
  "fetchway/transport": "../src/transport.ts",
  "fetchway/undici": "../runtimes/undici.ts",
};

/** Returns the code of an example as its users write it. */
export function readExample(name: string): string {
  return readFileSync(new URL(`../../examples/${name}/index.ts`, import.meta.url), "utf8");
}

/** Returns the code of an example with imports of this project's sources, for a file in the folder `examples`. */
export function readLinkedExample(name: string): string {
  return readExample(name).replaceAll(/(?<=from )"(fetchway[^"]*)"/g, (_, path: string) => {
    const source = SOURCES[path];
    if (source === undefined) throw new Error(`${name} imports ${path}, which has no source here`);
    return `"${source}"`;
  });
}

/** Returns the path of a copy of an example, which the test writes and removes. */
export function copyPathOf(name: string): string {
  const copy = `../../examples/_${name}-${process.pid}-${Math.random()}.ts`;
  return fileURLToPath(new URL(copy, import.meta.url));
}
