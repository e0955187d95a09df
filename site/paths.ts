/** The files of the site, and the addresses of its pages. */
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";

export const project: string = join(import.meta.dirname, "..");

/**
 * The folder of all pages: copies of the project's documents under the paths that they have in the project, so that their
 * relative links hold, and generated pages for the examples, the license and the API.
 */
export const pages: string = join(import.meta.dirname, "pages");

export function readProjectFile(file: string): string {
  return readFileSync(join(project, file), "utf8");
}

/** Writes a page, whose path is relative to the folder of all pages. */
export function writePage(page: string, text: string): void {
  const path = join(pages, page);
  mkdirSync(dirname(path), { recursive: true });
  writeFileSync(path, text);
}

/** Returns the path of a page in the site: `options.md` for `docs/options.md`. */
export function toAddress(page: string): string {
  return (
    page
      .replace(/^api\/fetchway\//, "api/")
      // docs/security.md has the shorter address.
      .replace(/^SECURITY\.md$/, "security-policy.md")
      .replace(/^[A-Z]+\.md$/, (name) => name.toLowerCase())
      .replace(/(?:^|(?<=\/))README\.md$/i, "index.md")
      .replace(/^docs\//, "")
  );
}

/** Returns the page that shows a file or folder of the project; both paths are relative to the project. */
export function findPage(target: string): string {
  if (target === "LICENSE") return "LICENSE.md";
  const example = /^examples\/([^/.]+)(?:\/|$)/.exec(target)?.[1];
  // A folder of examples is one page.
  if (example !== undefined) return `examples/${example}.md`;
  return target.endsWith(".md") ? target : join(target, "README.md");
}

/**
 * Returns the address of a relative link, which is written for the project: `/log.md#json` for `../docs/log.md#json`.
 * @param file the absolute path of the page with the link
 * @throws Error for a link to a file that is no page
 */
export function resolveLink(file: string, href: string): string {
  const [path = "", anchor] = href.split("#");
  const page = findPage(relative(pages, join(file, "..", path)));
  if (!existsSync(join(pages, page))) {
    throw new Error(`${relative(pages, file)} links to ${href}, which is no page of the site`);
  }
  return `/${toAddress(page)}${anchor === undefined ? "" : `#${anchor}`}`;
}
