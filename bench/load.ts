/** The load: wrk where it is on the path, else the generator of npm, which costs more itself. */
import { execFile } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { type Command, hasCommand } from "./commands.ts";
import { pin } from "./program.ts";
import type { Workload } from "./workloads.ts";

/** What one run of load saw. */
export interface LoadResult {
  readonly requests: number;
  /** Seconds that it took. */
  readonly duration: number;
  /** Bytes that were received, heads included. */
  readonly bytes: number;
  /** Latency in ms. */
  readonly mean: number;
  readonly p50: number;
  readonly p99: number;
  /** Connections that failed or broke, requests that were not answered in time, statuses over 399. */
  readonly errors: number;
}

export const generator: "wrk" | "autocannon" = hasCommand("wrk") ? "wrk" : "autocannon";

/** The connection timeout of both load generators; no response takes as long. */
const TIMEOUT = 10;

const execute = promisify(execFile);
const fileOf = (name: string): string => fileURLToPath(new URL(name, import.meta.url));

/**
 * Sends one workload to a port for some seconds.
 * @throws Error that says what went wrong with it
 */
export async function runLoad(
  workload: Workload,
  port: number,
  seconds: number,
  connections: number,
): Promise<LoadResult> {
  const url = `http://127.0.0.1:${port}${workload.path}`;
  const directory = mkdtempSync(join(tmpdir(), "fetchway-load-"));
  try {
    const body = join(directory, "body");
    if (workload.body !== undefined) writeFileSync(body, workload.body);
    const env = {
      ...process.env,
      NODE_OPTIONS: "",
      LOAD_METHOD: workload.method,
      LOAD_TYPE: workload.type,
      LOAD_BODY: workload.body === undefined ? "" : body,
    };
    const command = pin(commandOf(url, seconds, connections), "others");
    const [file, ...args] = command;
    const { stdout } = await execute(file, args, { env, timeout: (seconds + 30) * 1000 });
    return check(JSON.parse(stdout.slice(stdout.indexOf("{"))) as LoadResult, workload);
  } finally {
    rmSync(directory, { recursive: true });
  }
}

function commandOf(url: string, seconds: number, connections: number): Command {
  const numbers = [`-c${connections}`, `-d${seconds}s`];
  if (generator === "wrk") {
    return ["wrk", "-t1", ...numbers, `--timeout=${TIMEOUT}s`, `-s${fileOf("load.lua")}`, url];
  }
  const settings = { url, connections, duration: seconds, timeout: TIMEOUT };
  return [process.execPath, fileOf("load-autocannon.ts"), JSON.stringify(settings)];
}

/** A proxy that answers something else quickly is not fast. */
function check(result: LoadResult, { answer }: Workload): LoadResult {
  const { requests, bytes, errors } = result;
  if (errors > 0) throw new Error(`${errors} of ${requests} requests failed`);
  if (requests === 0) throw new Error("no request was answered");
  // What was cut off at the end has come in part.
  if (bytes < requests * answer.length * 0.95) {
    throw new Error(`${bytes} bytes for ${requests} responses of ${answer.length} bytes`);
  }
  return result;
}
