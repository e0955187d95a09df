/** Identifies the measured code, so that published figures name the code with which they were measured. */
import { createHash } from "node:crypto";
import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { transformSync } from "esbuild";

const root = join(import.meta.dirname, "..");

/**
 * Returns a hash of the statements of the sources: 12 hexadecimal digits. Comments, types and white space do not
 * change it, because they do not change what runs.
 */
export function hashOfCode(): string {
  const hash = createHash("sha256");
  for (const file of globSync("{src,runtimes,integrations,command}/**/*.ts", {
    cwd: root,
  }).toSorted()) {
    const source = readFileSync(join(root, file), "utf8");
    const { code } = transformSync(source, {
      loader: "ts",
      minifyWhitespace: true,
      legalComments: "none",
    });
    hash.update(`${file}\n${code}\n`);
  }
  return hash.digest("hex").slice(0, 12);
}

/** Returns the stamp for figures in a document. It names the code with which the figures were measured. */
export function toStamp(hash: string): string {
  return `code \`${hash}\``;
}

/** Returns the hashes in the stamps of a document. */
export function stampsIn(document: string): string[] {
  return Array.from(document.matchAll(/\bcode `([\da-f]{12})`/g), ([, hash]) => hash as string);
}
