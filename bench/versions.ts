/** Finds the versions of the packages and commands that are measured. */
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { hasCommand } from "./commands.ts";

/** The argument with which a command prints its version. */
const COMMANDS: Readonly<Record<string, string>> = { go: "version", nginx: "-v" };

/** Returns the version of a package or a command, or undefined for a command that is not installed. */
export function versionOf(tool: string): string | undefined {
  const flag = COMMANDS[tool];
  if (flag === undefined) {
    const manifest = new URL(`../node_modules/${tool}/package.json`, import.meta.url);
    return (JSON.parse(readFileSync(manifest, "utf8")) as { version: string }).version;
  }
  if (!hasCommand(tool)) return undefined;
  const { stdout, stderr } = spawnSync(tool, [flag], { encoding: "utf8" });
  return /\d+(\.\d+)+/.exec(stdout + stderr)?.[0];
}
