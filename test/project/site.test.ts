/** The sidebar and the addresses of pages of `npm run docs`. The site is not built here, because that needs its own packages. */
import { globSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, relative } from "node:path";
import { afterAll, describe, expect, test } from "vitest";
import { findBrokenLinks } from "../../site/brokenlinks.ts";
import { findPage, project, readProjectFile, toAddress } from "../../site/paths.ts";
import { sidebar } from "../../site/sidebar.ts";
import { toTabs } from "../../site/tabs.ts";

const listed = Object.values(sidebar).flatMap((group) => Object.values(group));

// docs/upstream/ is for other projects, not for users, and so is not in the sidebar.
test("the sidebar lists every document for users, and nothing else", () => {
  const documents = globSync("{*.md,{docs,bench}/*.md,examples/README.md}", { cwd: project });
  expect(documents.length).toBeGreaterThan(20);
  expect(new Set(listed)).toEqual(new Set(documents));
});

test("no two pages have the same address", () => {
  expect(toAddress("README.md")).toBe("index.md");
  expect(toAddress("docs/log.md")).toBe("log.md");
  expect(toAddress("bench/README.md")).toBe("bench/index.md");
  expect(new Set(listed.map(toAddress)).size).toBe(listed.length);
});

test("each link of a document to a file of the project leads to a page", () => {
  const examples = globSync("examples/[!_]*/", { cwd: project }).map(findPage);
  const proxies = globSync("docs/scoreboard/*.md", { cwd: project });
  const pages = new Set([...listed, ...examples, ...proxies, "LICENSE.md"]);
  const links = listed.flatMap((document) => {
    const prose = readProjectFile(document).replaceAll(/^```[\s\S]*?^```$/gm, "");
    const paths = prose.matchAll(/(?<!!\[[^\]]*)\]\((?!\w+:|#)([^)#]+)/g);
    return Array.from(paths, ([, path = ""]) => ({
      document,
      page: findPage(join(dirname(document), path)),
    }));
  });
  expect(links.length).toBeGreaterThan(100);
  expect(links.filter(({ page }) => !pages.has(page))).toEqual([]);
});

// VitePress reads a tag at the start of a line as an HTML element, even within code that began on the line before.
test("no line of a document begins with an HTML tag", () => {
  const begins = listed.flatMap((document) => {
    const prose = readProjectFile(document).replaceAll(/^```[\s\S]*?^```$/gm, "");
    return Array.from(prose.matchAll(/^ {0,3}<\w.*$/gm), ([line]) => `${document}: ${line}`);
  });
  expect(begins).toEqual([]);
});

test("TypeDoc finds the file and the examples of each entry, for the API reference", () => {
  const { exports } = JSON.parse(readProjectFile("deno.json")) as {
    exports: Record<string, string>;
  };
  const { include } = JSON.parse(readProjectFile("site/tsconfig.api.json")) as {
    include: string[];
  };
  const included = globSync(include, { cwd: join(project, "site") });
  const sources = included.map((file) => relative(project, join(project, "site", file)));
  const entries = Object.values(exports).map((file) => file.replace("./", ""));
  expect(sources).toEqual(expect.arrayContaining(entries));
  // TypeDoc refuses a fence on the line of the tag.
  const fenced = /@example ```/;
  expect(sources.filter((file) => fenced.test(readProjectFile(file)))).toEqual([]);
});

describe("toTabs", () => {
  const block = (name: string): string => `### ${name}\n\n\`\`\`ts\n${name}();\n\`\`\`\n\n`;
  const tab = (name: string): string => `\`\`\`ts [${name}]\n${name}();\n\`\`\`\n\n`;

  test("`toTabs` makes tabs of headed code blocks that follow each other", () => {
    expect(toTabs(`# A\n\n${block("a")}${block("b")}text\n`)).toBe(
      `# A\n\n::: code-group\n\n${tab("a")}${tab("b")}:::\n\ntext\n`,
    );
  });

  test("`toTabs` does not change headed code blocks with text between them", () => {
    const document = `${block("a")}text\n\n${block("b")}text\n`;
    expect(toTabs(document)).toBe(document);
  });

  test("README's first examples become tabs, one for each server", () => {
    const labels = toTabs(readProjectFile("README.md")).matchAll(/^```ts \[(.+)\]$/gm);
    expect(Array.from(labels, ([, label]) => label)).toEqual([
      "h3",
      "Hono",
      "Workers",
      "Deno",
      "Bun",
      "node:http",
    ]);
  });
});

describe("findBrokenLinks", () => {
  const folder = mkdtempSync(join(tmpdir(), "fetchway-site-"));
  afterAll(() => rmSync(folder, { recursive: true }));

  test("`findBrokenLinks` finds links to pages and headings that do not exist", () => {
    const links = [
      "b.html#there",
      "/x/b.html",
      "#gone",
      "/x/gone.html",
      "/b.html",
      "https://a.test",
    ];
    const html = links.map((href) => `<a class="c" href="${href}">a</a>`).join("");
    writeFileSync(join(folder, "a.html"), html);
    writeFileSync(join(folder, "b.html"), '<h1 id="there">b</h1><a href="./">the first page</a>');
    expect(findBrokenLinks(folder, "/x/")).toEqual([
      "a.html → #gone",
      "a.html → /x/gone.html",
      "a.html → /b.html",
      "b.html → ./",
    ]);
  });
});
