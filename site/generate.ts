/** Writes the pages of the site: the project's documents, its examples and license, and the API. */
import { cpSync, globSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { generateApi } from "./api.ts";
import { pages, project, readProjectFile, writePage } from "./paths.ts";
import { sidebar } from "./sidebar.ts";

/** Copies the documents, and the images that they show. */
function copyDocuments(): void {
  const documents = Object.values(sidebar).flatMap((group) => Object.values(group));
  for (const file of [...documents, ...globSync("{docs,bench}/*.{svg,png}", { cwd: project })]) {
    cpSync(join(project, file), join(pages, file));
  }
}

function generateExamples(): void {
  for (const file of globSync("examples/*/index.ts", { cwd: project })) {
    const example = dirname(file);
    writePage(
      `${example}.md`,
      `# Example: ${example.replace("examples/", "")}

::: code-group

\`\`\`ts [index.ts]
${readProjectFile(file)}\`\`\`

\`\`\`json [package.json]
${readProjectFile(`${example}/package.json`)}\`\`\`

:::

[All examples](README.md), and how to run them.
`,
    );
  }
}

/** Writes all pages anew. */
export async function generatePages(): Promise<void> {
  rmSync(pages, { recursive: true, force: true });
  copyDocuments();
  generateExamples();
  writePage("LICENSE.md", `# License\n\n\`\`\`text\n${readProjectFile("LICENSE")}\`\`\`\n`);
  await generateApi();
}
