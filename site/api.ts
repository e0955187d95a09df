/** The pages of the API, made by TypeDoc from the doc strings. */
import { globSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Application, Converter, type DeclarationReflection, ReflectionKind } from "typedoc";
import { pages, project, readProjectFile, writePage } from "./paths.ts";

/** Returns the source file of each entry by the name that apps import. */
function readEntries(): Map<string, string> {
  const { exports } = JSON.parse(readProjectFile("deno.json")) as {
    exports: Record<string, string>;
  };
  // The entry "." depends on the runtime: the conditions in package.json select it.
  const named = Object.entries(exports).filter(([path]) => path !== ".");
  named.sort(([a], [b]) => Number(b === "./node") - Number(a === "./node"));
  return new Map(named.map(([path, file]) => [`fetchway${path.slice(1)}`, file]));
}

/**
 * Removes the numbers of links such as `#Target-1`. TypeDoc appends them because it counts nested types that the Markdown
 * has no headings for; the headings of exports are unique.
 */
function removeNumbers(): void {
  const files = globSync("api/*/*.md", { cwd: pages }).map((page) => join(pages, page));
  const headings = files.flatMap(
    (file) => readFileSync(file, "utf8").match(/(?<=^### )\w+$/gm) ?? [],
  );
  const numbered = new RegExp(`(#(?:${headings.join("|")}))-\\d+(?=\\))`, "g");
  for (const file of files) {
    writeFileSync(file, readFileSync(file, "utf8").replaceAll(numbered, "$1"));
  }
}

/** Options of the plugin that writes Markdown. */
const MARKDOWN = {
  hidePageHeader: true,
  hideBreadcrumbs: true,
  useCodeBlocks: true,
  outputFileStrategy: "modules",
  parametersFormat: "table",
  entryFileName: "index",
};

const INTRODUCTION = `Made from the doc strings. \`fetchway\` is the entry of the runtime, which the conditions in \`exports\`
select; each entry has its own path, too. The entries of all runtimes export \`ProxyError\` and the types of options, which
are on the page of \`fetchway/node\`. [Options](../docs/options.md) has all options on one page.`;

/** Generates a page for each entry from the doc strings, and the page that lists them. */
export async function generateApi(): Promise<void> {
  const entries = readEntries();
  const app = await Application.bootstrapWithPlugins({
    ...MARKDOWN,
    plugin: ["typedoc-plugin-markdown"],
    entryPoints: Array.from(entries.values(), (file) => join(project, file)),
    // A type that several entries export is on the page of the first.
    sortEntryPoints: false,
    excludeReferences: true,
    // Functions that apps call come first.
    groupOrder: ["Functions", "Variables", "Classes", "*"],
    tsconfig: join(project, "site/tsconfig.api.json"),
    // `npm run check` has checked the types.
    skipErrorChecking: true,
    // Types of members that apps neither create nor read are not exported. TypeDoc only warns about links to them.
    validation: { notExported: false },
    disableSources: true,
    readme: "none",
    sluggerConfiguration: { lowercase: false },
    logLevel: "Warn",
    outputs: [{ name: "markdown", path: join(pages, "api") }],
  });
  const names = new Map(
    Array.from(entries, ([name, file]) => [file.replace(/^\.\/|\.ts$/g, ""), name]),
  );
  app.converter.on(Converter.EVENT_RESOLVE_END, ({ project: api }) => {
    for (const module of api.getReflectionsByKind(ReflectionKind.Module)) {
      module.name = names.get(module.name) ?? module.name;
    }
  });
  app.converter.on(Converter.EVENT_RESOLVE_BEGIN, ({ project: api }) => {
    // Each interface links to those that it extends, and they have the members.
    const members = api.getReflectionsByKind(ReflectionKind.Property | ReflectionKind.Method);
    for (const member of members as DeclarationReflection[]) {
      if (member.inheritedFrom !== undefined) api.removeReflection(member);
    }
  });
  const api = await app.convert();
  if (api === undefined) throw new Error("TypeDoc could not read the sources");
  app.validate(api);
  await app.generateOutputs(api);
  removeNumbers();
  const list = api.children ?? [];
  const rows = list.map(({ name, comment }) => {
    const summary = (comment?.summary ?? []).map(({ text }) => text).join("");
    return `- [${name}](${name}.md): ${summary.split("\n\n", 1)[0]}\n`;
  });
  writePage("api/index.md", `# API\n\n${INTRODUCTION}\n\n${rows.join("")}`);
  if (app.logger.hasErrors() || app.logger.hasWarnings()) {
    throw new Error("TypeDoc has reported the problems above");
  }
}
