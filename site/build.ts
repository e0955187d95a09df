/**
 * Builds the site in the folder `dist` beside this file:
 *
 *     npm run docs [-- --base /fetchway/]
 *
 * `--base` is the path under which a server has the site.
 */
import { join } from "node:path";
import { parseArgs } from "node:util";
import { build } from "vitepress";
import { findBrokenLinks } from "./brokenlinks.ts";
import { generatePages } from "./generate.ts";

const { values } = parseArgs({ options: { base: { type: "string", default: "/" } } });

await generatePages();
await build(import.meta.dirname, { base: values.base });
const broken = findBrokenLinks(join(import.meta.dirname, "dist"), values.base);
for (const link of broken) console.error(`broken link: ${link}`);
if (broken.length > 0) process.exit(1);
