/** The oldest Node that can run it, as `engines` says: `process.getBuiltinModule` came with it. */
export const OLDEST_NODE = "22.3.0";

/** What is wrong with a version of Node. Bun and Deno pass themselves off as newer ones. */
export function checkNode(version: string): string | undefined {
  const age = version.localeCompare(OLDEST_NODE, "en", { numeric: true });
  return age < 0 ? `Node ${version} is too old: use ${OLDEST_NODE} or newer` : undefined;
}
