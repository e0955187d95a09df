import { existsSync, readFileSync } from "node:fs";
import { resolve } from "node:path";
import { describe, expect, test } from "vitest";

const root = resolve(import.meta.dirname, "../..");
const read = (path: string): string => readFileSync(resolve(root, path), "utf8");
const security = read("SECURITY.md");
const promises = security.split("## What is promised")[1]?.split("\n## ")[0] ?? "";

const named = Array.from(
  promises.matchAll(/^ {2}- `(test\/[^`]+\.ts)` › (`+) ?(.+?) ?\2$/gm),
  ([, file = "", , title = ""]) => ({ file, title }),
);

test("every promise of SECURITY.md names a test", () => {
  const texts = promises.split(/^(?=- \*\*)/m).slice(1);
  expect(texts.length).toBeGreaterThan(10);
  for (const text of texts) expect(text).toMatch(/^ {2}- `test\//m);
  expect(promises.match(/^ {2}- /gm)).toHaveLength(named.length);
});

describe("a test that SECURITY.md names exists:", () => {
  test.each(named)("$file › $title", ({ file, title }) => {
    expect(existsSync(resolve(root, file))).toBe(true);
    // A title is a string literal in the file: the title of a test, or the name of a test in a theme of the suite.
    const literals = ['"', "'", "`"].map((quote) => quote + title + quote);
    expect(literals.some((literal) => read(file).includes(literal))).toBe(true);
  });
});

test("SECURITY.md is part of the package", () => {
  const { files } = JSON.parse(read("package.json")) as { files: string[] };
  const { publish } = JSON.parse(read("deno.json")) as { publish: { include: string[] } };
  expect(files).toContain("SECURITY.md");
  expect(publish.include).toContain("SECURITY.md");
});
