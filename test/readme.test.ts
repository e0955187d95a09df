import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { README, readmeBlocks, updateReadme } from "./_readme.ts";

const readme = readFileSync(README, "utf8");

test("README has the generated tables and the example", () => {
  for (const name of Object.keys(readmeBlocks())) expect(readme).toContain(`<!-- ${name} -->\n`);
  expect(readme === updateReadme(readme), "README is out of date; run: npm run readme").toBe(true);
});

test("README's links to its own sections are valid", () => {
  const headings = Array.from(readme.matchAll(/^#+ (.+)$/gm), ([, text = ""]) =>
    text
      .toLowerCase()
      .replaceAll(/[^\w ]/g, "")
      .replaceAll(" ", "-"),
  );
  const links = Array.from(readme.matchAll(/\]\(#([^)]+)\)/g), ([, slug]) => slug);
  expect(links.length).toBeGreaterThan(5);
  expect(headings).toEqual(expect.arrayContaining([...new Set(links)]));
});
