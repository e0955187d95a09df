/** Builds and runs the load generator of `npm run bench:tail`. */
import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { fileURLToPath } from "node:url";
import { buildGo, type Command, hasCommand } from "../commands.ts";
import { pin, type Pins } from "../program.ts";
import type { Pace, PaceSettings } from "./latency.ts";

export type Generator = "go" | "node";

/** Node's generator keeps a core busy at any rate; Go's needs a fifth of one at 5,000 requests a second. */
export const bestGenerator: Generator = hasCommand("go") ? "go" : "node";

const execute = promisify(execFile);

/** @param directory where the program of Go is built */
export function commandOf(generator: Generator, directory: string): Command {
  if (generator === "go") {
    return [buildGo(fileURLToPath(new URL("pacer", import.meta.url)), directory)];
  }
  return [process.execPath, fileURLToPath(new URL("pacer.ts", import.meta.url))];
}

/**
 * Sends GET requests at a fixed rate.
 * @throws Error that says what went wrong
 */
export async function runPace(
  command: Command,
  settings: PaceSettings,
  pins: Pins = "others",
): Promise<Pace> {
  const { lead, seconds, patience } = settings;
  const [file, ...args] = pin([...command, JSON.stringify(settings)], pins);
  const { stdout } = await execute(file, args, {
    env: { ...process.env, NODE_OPTIONS: "" },
    maxBuffer: 64 * 1024 * 1024,
    timeout: (lead + seconds + patience + 20) * 1000,
  });
  const pace = JSON.parse(stdout) as Pace;
  if (pace.failure !== "") throw new Error(`a response failed: ${pace.failure}`);
  return pace;
}
