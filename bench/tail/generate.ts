/** Builds and runs the load generator that sends at a fixed rate, whose source is in pacer/. */
import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { buildGo } from "../commands.ts";
import { pin, type Pins } from "../program.ts";
import type { Pace, PaceSettings } from "./latency.ts";

const execute = promisify(execFile);

/**
 * Sends GET requests at a fixed rate.
 * @param directory where the generator is built
 * @throws Error that says what went wrong
 */
export async function runPace(
  directory: string,
  settings: PaceSettings,
  pins: Pins = "others",
): Promise<Pace> {
  const { lead, seconds, patience } = settings;
  const generator = buildGo(fileURLToPath(new URL("pacer", import.meta.url)), directory);
  const [file, ...args] = pin([generator, JSON.stringify(settings)], pins);
  const { stdout } = await execute(file, args, {
    maxBuffer: 64 * 1024 * 1024,
    timeout: (lead + seconds + patience + 20) * 1000,
  });
  const pace = JSON.parse(stdout) as Pace;
  if (pace.failure !== "") throw new Error(`a response failed: ${pace.failure}`);
  return pace;
}
