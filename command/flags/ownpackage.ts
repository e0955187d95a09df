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
  for (let up = "../"; up.length < 15; up += "../") {
    const found = readJSON(new URL(`${up}package.json`, import.meta.url)) as Manifest | undefined;
    if (found?.name === "fetchway" && found.version !== undefined) return found;
  }
  throw new Error("the package.json of fetchway is missing");
}

function readJSON(url: URL): unknown {
  try {
    return JSON.parse(readFileSync(url, "utf8"));
  } catch {
    return undefined;
  }
}
