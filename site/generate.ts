/** Writes the pages of the site: the project's documents, its examples and license, and the API. */
import { cpSync, globSync, rmSync } from "node:fs";
import { basename, extname, join } from "node:path";
import { generateApi } from "./api.ts";
import { pages, project, readProjectFile, writePage } from "./paths.ts";
import { sidebar } from "./sidebar.ts";
import { toTabs } from "./tabs.ts";

/** Writes the documents, and copies the images that they show. */
function copyDocuments(): void {
  const listed = Object.values(sidebar).flatMap((group) => Object.values(group));
  const documents = [...listed, ...globSync("docs/scoreboard/*.md", { cwd: project })];
  for (const file of documents) writePage(file, toTabs(readProjectFile(file)));
  for (const file of globSync("{docs,bench}/*.{svg,png}", { cwd: project })) {
    cpSync(join(project, file), join(pages, file));
  }
}

/** Generates a page for each folder of examples, with a tab for each of its files. */
function generateExamples(): void {
  // Tests write folders there whose names begin with "_".
  for (const folder of globSync("examples/[!_]*/", { cwd: project })) {
    const files = globSync(`${folder}/*`, { cwd: project }).filter(
      (file) => !file.endsWith("node_modules"),
    );
    const tabs = files.toSorted(byImportance).map((file) => {
      const language = LANGUAGES[extname(file)] ?? extname(file).slice(1);
      return `\`\`\`${language} [${basename(file)}]\n${readProjectFile(file)}\`\`\`\n\n`;
    });
    const group = `::: code-group\n\n${tabs.join("")}:::`;
    const all = "[All examples](README.md), and how to run them.";
    writePage(`${folder}.md`, `# Example: ${basename(folder)}\n\n${group}\n\n${all}\n`);
  }
}

/** The languages of files whose name does not end with one. */
const LANGUAGES: Readonly<Record<string, string>> = { "": "dockerfile" };

const isMain = (file: string): boolean => /\/(?:index\.ts|deployment\.yaml)$/.test(file);

/** Sorts the program's file before its settings. */
function byImportance(a: string, b: string): number {
  return Number(isMain(b)) - Number(isMain(a)) || a.localeCompare(b);
}

/** Writes all pages anew. */
export async function generatePages(): Promise<void> {
  rmSync(pages, { recursive: true, force: true });
  copyDocuments();
  generateExamples();
  writePage("LICENSE.md", `# License\n\n\`\`\`text\n${readProjectFile("LICENSE")}\`\`\`\n`);
  await generateApi();
}
