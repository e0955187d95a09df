/** Starts contestants as processes, and finds their versions. */
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { Command } from "../../../bench/commands.ts";
import { Program } from "../../../bench/program.ts";
import type { Running } from "../contestant.ts";

export const root: string = join(import.meta.dirname, "../../..");

/** The folder of programs that are compiled here. */
export const CACHE: string = join(root, "node_modules/.cache/compare");

/** The hardenings of a contestant, by label: a setting in the contestant's own syntax, and its effect. */
export type Hardenings<Setting> = Readonly<
  Record<string, readonly [setting: Setting, effect: string]>
>;

export function effectsOf(hardenings: Hardenings<unknown>): Record<string, string> {
  return Object.fromEntries(
    Object.entries(hardenings).map(([label, [, effect]]) => [label, effect]),
  );
}

/** Starts a program, and waits until it accepts connections on this port. */
export async function launch(
  command: Command,
  port: number,
  env: Record<string, string> = {},
): Promise<Pick<Running, "port" | "stop">> {
  const program = await Program.start(command, port, env, "tcp");
  return { port, stop: () => program.stop() };
}

/**
 * Returns the version that a program prints.
 * @param install how the program is installed
 * @throws if the program is missing
 */
export function versionOf([program, ...args]: Command, install: string): string {
  const { error, stdout, stderr } = spawnSync(program, args, { encoding: "utf8" });
  if (error) throw new Error(`${program} is missing: ${install}`, { cause: error });
  return /\d+\.\d\S*/.exec(stdout + stderr)?.[0] ?? "unknown";
}

/** Returns the version of a Debian package, with Debian's revision, because revisions contain fixes of advisories. */
export function debianVersionOf(program: string, print: string): string {
  const printed = versionOf([program, print], `apt-get install ${program}`);
  const { stdout } = spawnSync("dpkg-query", ["-Wf", "${Version}", program], { encoding: "utf8" });
  return stdout || printed;
}

/** @throws if the npm package is missing */
export function packageVersionOf(name: string): string {
  try {
    const text = readFileSync(join(root, "node_modules", name, "package.json"), "utf8");
    return (JSON.parse(text) as { version: string }).version;
  } catch (error) {
    throw new Error(`${name} is missing: npm ci`, { cause: error });
  }
}
