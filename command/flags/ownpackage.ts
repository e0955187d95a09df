/**
 * The package's own package.json. The build copies the values that are used here into the compiled command, which does not read
 * the file.
 */
import manifest from "../../package.json" with { type: "json" };

export const VERSION: string = manifest.version;

/** Returns what is wrong with a version of Node; undefined if the package supports it. */
export function checkNode(version: string): string | undefined {
  const oldest = manifest.engines.node.replace(">=", "");
  const age = version.localeCompare(oldest, "en", { numeric: true });
  return age < 0 ? `Node ${version} is too old: use ${oldest} or newer` : undefined;
}
