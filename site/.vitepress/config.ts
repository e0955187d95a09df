import { globSync } from "node:fs";
import { type DefaultTheme, defineConfig, type UserConfig } from "vitepress";
import { pages, readProjectFile, resolveLink, toAddress } from "../paths.ts";
import { sidebar } from "../sidebar.ts";

const { description } = JSON.parse(readProjectFile("package.json")) as {
  description: string;
};

function toItems(group: Readonly<Record<string, string>>): DefaultTheme.SidebarItem[] {
  return Object.entries(group).map(([text, file]) => ({ text, link: `/${toAddress(file)}` }));
}

/** Names the anchor of a heading as GitHub does, so that links to headings hold on both. */
function toAnchor(heading: string, { env }: { env: Environment }): string {
  const name = heading
    .trim()
    .replaceAll(/[^\p{L}\p{N}_ -]/gu, "")
    .replaceAll(" ", "-");
  // Names in code may differ only by case.
  return env.relativePath.startsWith("api/") ? name : name.toLowerCase();
}

/** Resolves the address of a link to another document. */
function resolveHref(link: Token, { realPath, path }: Environment): void {
  const href = link.attrGet("href");
  if (link.type !== "link_open" || href === null || /^(?:\w+:|#)/.test(href)) return;
  link.attrSet("href", resolveLink(realPath ?? path, href));
}

/** Returns the text of a cell, without its markup. */
function textOf(content: Token | undefined): string {
  return (content?.children ?? []).map((part) => part.content).join("");
}

/** Adds a class with a minimum width to table cells with much text. */
function markText(cell: Token, content: Token | undefined): void {
  const { length } = textOf(content);
  if (length > 40) cell.attrJoin("class", length > 90 ? "sentence" : "phrase");
}

/** Gives each table cell the heading of its column, which the style sheet shows before the cell on narrow screens. */
function labelCells(tokens: readonly Token[]): void {
  let headings: string[] = [];
  let column = 0;
  for (const [i, token] of tokens.entries()) {
    if (token.type === "table_open") headings = [];
    if (token.type === "tr_open") column = 0;
    if (token.type === "th_open") headings.push(textOf(tokens[i + 1]));
    if (token.type === "td_open") token.attrSet("data-label", headings[column++] ?? "");
  }
}

/** The part of a token of markdown-it that is used. */
interface Token {
  readonly type: string;
  readonly content: string;
  readonly children?: readonly Token[] | null;
  attrGet(name: string): string | null;
  attrSet(name: string, value: string): void;
  attrJoin(name: string, value: string): void;
}

/** The data of VitePress about a page. */
interface Environment {
  /** The path of the page's file. */
  readonly realPath?: string;
  /** The same for the search index. */
  readonly path: string;
  /** The path in the site. */
  readonly relativePath: string;
}

/** The pages of the API, which `generate.ts` has written. */
const entries = globSync("api/*/*.md", { cwd: pages })
  .toSorted()
  .map((page) => [page.replace(/^api\/|\.md$/g, ""), page] as const);

const config: UserConfig<DefaultTheme.Config> = defineConfig({
  title: "Fetchway",
  description,
  srcDir: "pages",
  outDir: "dist",
  // The search index is one large file, which is loaded with the first search.
  vite: { build: { chunkSizeWarningLimit: 2000 } },
  cacheDir: "node_modules/.vitepress",
  rewrites: toAddress,
  head: [
    [
      "link",
      {
        rel: "icon",
        href: "data:image/svg+xml,<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 32 32'><path d='M4 9h16m-5-5 5 5-5 5M28 23H12m5-5-5 5 5 5' fill='none' stroke='%233451b2' stroke-width='4'/></svg>",
      },
    ],
  ],
  markdown: {
    anchor: { slugifyWithState: toAnchor },
    config(md) {
      md.core.ruler.push("project", ({ tokens, env }) => {
        labelCells(tokens);
        for (const [i, token] of tokens.entries()) {
          if (token.type === "td_open") markText(token, tokens[i + 1]);
          for (const link of token.children ?? []) resolveHref(link, env as Environment);
        }
      });
    },
  },
  transformPageData({ relativePath, frontmatter }) {
    if (relativePath.startsWith("api/")) frontmatter["pageClass"] = "api";
  },
  themeConfig: {
    search: { provider: "local" },
    outline: [2, 3],
    nav: [
      { text: "Quick start", link: "/quickstart.md" },
      { text: "Options", link: "/options.md" },
      { text: "Recipes", link: "/recipes.md" },
      { text: "API", link: "/api/index.md" },
    ],
    sidebar: [
      ...Object.entries(sidebar).map(([text, group]) => ({ text, items: toItems(group) })),
      {
        text: "API",
        items: toItems({ "All entries": "api/index.md", ...Object.fromEntries(entries) }),
      },
    ],
  },
});

export default config;
