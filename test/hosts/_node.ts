/**
 * The Node that runs the hosts. The matrix selects another version by two variables: `HOST_NODE` is the path of the binary.
 * `HOST_FILES` is the folder that has the hosts as JavaScript, for versions of Node that cannot strip types.
 */
import { execFileSync } from "node:child_process";
import { createServer, ServerResponse } from "node:http";
import { fileURLToPath } from "node:url";

const { HOST_NODE, HOST_FILES } = process.env;

export const hostNode: string = HOST_NODE ?? process.execPath;

/**
 * Returns the path of a host's file.
 * @param name the file in `test/` without its extension, such as `hosts/node`
 */
export function hostFile(name: string): string {
  return HOST_FILES === undefined
    ? fileURLToPath(new URL(`../${name}.ts`, import.meta.url))
    : `${HOST_FILES}/${name}.js`;
}

/** Versions of Node: `from` and later, but only those before `below`. */
export interface NodeRange {
  from?: string;
  below?: string;
}

/** Compares two versions, and returns -1, 0 or 1 as for sorting. A missing part of a version counts as 0. */
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

/** Runs the Node that `HOST_NODE` selects, and returns its output; undefined if the variable is not set. */
function runHostNode(...args: string[]): string | undefined {
  return HOST_NODE && execFileSync(HOST_NODE, args, { encoding: "utf8" }).trim();
}

/** The version of Node that runs the hosts. */
export const hostVersion: string = runHostNode("--version")?.slice(1) ?? process.versions.node;

/**
 * Whether the Node of the hosts lets the proxy choose which requests are handed over as upgrades. Other versions hand over
 * all of them. Of those that the proxy does not take, some go back to the app, and the others get 501.
 */
export const choosesUpgrades: boolean =
  (runHostNode("-p", `"shouldUpgradeCallback" in http.createServer()`) ??
    String("shouldUpgradeCallback" in createServer())) === "true";

/** Whether the HTTP/2 server of the Node of the hosts ends sessions that break the protocol, and reports them. */
export const endsBrokenSessions: boolean =
  isInRange(hostVersion, { from: "22.22.2", below: "23" }) ||
  isInRange(hostVersion, { from: "24.14.1" });

const METHOD = "writeInformation";

/** Whether the Node of the hosts can send a field of an interim response several times. Other versions join the lines. */
export const repeatsInterimFields: boolean =
  (runHostNode("-p", `"${METHOD}" in http.ServerResponse.prototype`) ??
    String(METHOD in ServerResponse.prototype)) === "true";
