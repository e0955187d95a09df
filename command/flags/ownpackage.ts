/** The package's own package.json. */
import { readFileSync } from "node:fs";

interface Manifest {
  readonly name: string;
  readonly version: string;
  readonly engines: { readonly node: string };
}

/** Reads the package's version. */
export function readVersion(): string {
  return readManifest().version;
}

/** Returns what is wrong with a version of Node; undefined if the package supports it. */
export function checkNode(version: string): string | undefined {
  const oldest = readManifest().engines.node.replace(">=", "");
  const age = version.localeCompare(oldest, "en", { numeric: true });
  return age < 0 ? `Node ${version} is too old: use ${oldest} or newer` : undefined;
}

/** Finds package.json above this file, whether it runs from the sources or from dist. */
function readManifest(): Manifest {
  let url = new URL("../package.json", import.meta.url);
  for (let above = url; ; url = above) {
    const found = readJSON(url) as Manifest | undefined;
    if (found?.name === "fetchway" && found.version !== undefined) return found;
    above = new URL("../package.json", url);
    if (above.href === url.href) throw new Error("the package.json of fetchway is missing");
  }
}

function readJSON(url: URL): unknown {
  try {
    return JSON.parse(readFileSync(url, "utf8"));
  } catch {
    return undefined;
  }
}
