/**
 * The Node that hosts run on. The matrix sets it to other versions by two variables: `HOST_NODE` is the
 * binary, `HOST_FILES` the folder of the hosts as JavaScript, which versions need that strip no types.
 */
import { execFileSync } from "node:child_process";
import { fileURLToPath } from "node:url";

const { HOST_NODE, HOST_FILES } = process.env;

export const hostNode: string = HOST_NODE ?? process.execPath;

/** @param name a file of this folder without its ending, such as `hosts/node` */
export function hostFile(name: string): string {
  return HOST_FILES === undefined
    ? fileURLToPath(new URL(`${name}.ts`, import.meta.url))
    : `${HOST_FILES}/${name}.js`;
}

/** Versions of Node: from the one on, and below the other. */
export interface NodeRange {
  from?: string;
  below?: string;
}

/** Returns -1, 0 or 1, as for sorting; missing parts of a version are 0. */
export function compareVersions(a: string, b: string): number {
  const [left, right] = [a, b].map((version) => version.split(".").map(Number));
  for (let part = 0; part < 3; part++) {
    const difference = (left?.[part] ?? 0) - (right?.[part] ?? 0);
    if (difference !== 0) return Math.sign(difference);
  }
  return 0;
}

export function isInRange(version: string, { from = "0", below }: NodeRange): boolean {
  return (
    compareVersions(version, from) >= 0 &&
    (below === undefined || compareVersions(version, below) < 0)
  );
}

/** Of the Node that hosts run on. */
export const hostVersion: string =
  HOST_NODE === undefined
    ? process.versions.node
    : execFileSync(HOST_NODE, ["--version"], { encoding: "utf8" }).trim().slice(1);
