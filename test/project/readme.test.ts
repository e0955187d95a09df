/** README and the pages of docs/: generated blocks are up to date, links lead somewhere, and the package has the linked files. */
import { existsSync, globSync, readFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { describe, expect, test } from "vitest";
import { readInterface } from "./_docs.ts";
import { pages, readPage, renderBlocks, updateBlocks } from "./_readme.ts";

const root = resolve(import.meta.dirname, "../..");

test("each generated block is on exactly one page", () => {
  for (const name of Object.keys(renderBlocks())) {
    const having = pages.filter((page) => readPage(page).includes(`<!-- ${name} -->\n`));
    expect(having, name).toHaveLength(1);
  }
});

test.each(pages)("the generated blocks of %s are up to date", (page) => {
  const text = readPage(page);
  expect(text === updateBlocks(text), `${page} is out of date; run: npm run readme`).toBe(true);
});

test("docs/options.md has a heading for every option, so that links to the option work", () => {
  const names = ["ProxyOptions", "PoolOptions", "BalanceOptions"]
    .flatMap(readInterface)
    .map(({ name }) => name.toLowerCase());
  expect(names.length).toBeGreaterThan(50);
  const anchors = anchorsOf("docs/options.md");
  expect(new Set(anchors).size).toBe(anchors.length);
  const counts = Map.groupBy(names, (name) => name);
  for (const [name, { length }] of counts) {
    const found = anchors.filter((each) => new RegExp(`^${name}(?:$|-of-)`).test(each));
    expect(found, name).toHaveLength(length);
  }
});

/** Pages with a table that compares more things than a phone has room for. */
const WITH_WIDE_TABLES = new Set(["README.md", "docs/frameworks.md"]);

test.each([...pages, "SECURITY.md"].filter((page) => !WITH_WIDE_TABLES.has(page)))(
  "the tables of %s have at most three columns, so that they fit on a phone",
  (page) => {
    const heads = readProse(page).match(/^\|.*(?=\n\| ?:?--)/gm) ?? [];
    expect(heads.filter((head) => head.split("|").length - 2 > 3)).toEqual([]);
  },
);

/** Returns the text of a page without its code blocks. */
function readProse(page: string): string {
  return readPage(page).replaceAll(/^```[\s\S]*?^```$/gm, "");
}

/** Returns the anchors of a page's headings. */
function anchorsOf(page: string): string[] {
  return Array.from(readProse(page).matchAll(/^#+ (.+)$/gm), ([, text = ""]) =>
    text
      .toLowerCase()
      .replaceAll(/[^\w -]/g, "")
      .replaceAll(" ", "-"),
  );
}

/** Returns the links of a page that lead to other files or to a heading, as paths of the project with an anchor. */
function linksOf(page: string): { file: string; anchor: string | undefined }[] {
  const links = readProse(page).matchAll(/\]\((?!\w+:)([^)#]*)(?:#([^)]+))?\)/g);
  return Array.from(links, ([, path = "", anchor]) => ({
    file: path === "" ? page : join(dirname(page), path),
    anchor,
  }));
}

const documents = [
  ...pages,
  "SECURITY.md",
  "CONTRIBUTING.md",
  "examples/README.md",
  ...globSync("bench/*.md", { cwd: root }),
];

describe("links of the documents", () => {
  test("the check finds the links of the documents", () => {
    expect(documents.flatMap(linksOf).length).toBeGreaterThan(60);
  });

  test.each(documents)("the links of %s lead to files and headings that exist", (page) => {
    const broken = linksOf(page).filter(
      ({ file, anchor }) =>
        !existsSync(join(root, file)) ||
        (anchor !== undefined && !anchorsOf(file).includes(anchor)),
    );
    expect(broken).toEqual([]);
  });

  test("the links of published pages lead to published files", () => {
    const { files } = JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as {
      files: string[];
    };
    const isPublished = (path: string): boolean =>
      files.some((file) => path === file || path.startsWith(`${file}/`));
    const published = documents.filter(isPublished);
    expect(published).toEqual(expect.arrayContaining([...pages]));
    const missing = published.flatMap(linksOf).filter(({ file }) => !isPublished(file));
    expect(missing).toEqual([]);
  });

  test("links lead from README to every page of docs/", () => {
    const reached = new Set(["README.md"]);
    for (const page of reached) {
      for (const { file } of linksOf(page)) if (file.endsWith(".md")) reached.add(file);
    }
    expect(pages.filter((page) => !reached.has(page))).toEqual([]);
  });
});
