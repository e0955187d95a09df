import { existsSync, globSync, readFileSync } from "node:fs";
import { join } from "node:path";

/**
 * Finds the links of built pages that lead to no page or to no heading. VitePress itself checks neither headings nor the
 * links of the navigation.
 * @param folder the folder of the site
 * @param base the path under which a server has it, which ends in a slash
 */
export function findBrokenLinks(folder: string, base: string): string[] {
  const files = globSync("**/*.html", { cwd: folder });
  const pages = new Map(files.map((file) => [file, readFileSync(join(folder, file), "utf8")]));
  const ids = new Map(
    Array.from(pages, ([file, html]) => [
      file,
      new Set(Array.from(html.matchAll(/\sid="([^"]+)"/g), ([, id]) => id)),
    ]),
  );
  const broken = new Set<string>();
  for (const [file, html] of pages) {
    for (const [, href = ""] of html.matchAll(/<a\s[^>]*?href="(?!\w+:)([^"]+)"/g)) {
      const { pathname, hash } = new URL(href, `http://site${base}${file}`);
      const path = pathname.replace(base, "").replace(/(?:^|(?<=\/))$/, "index.html");
      const isThere =
        pathname.startsWith(base) &&
        (path.endsWith(".html") ? pages.has(path) : existsSync(join(folder, path)));
      const isHeadingThere = hash === "" || ids.get(path)?.has(decodeURIComponent(hash.slice(1)));
      if (!isThere || isHeadingThere !== true) broken.add(`${file} → ${href}`);
    }
  }
  return [...broken];
}
