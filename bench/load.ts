/** Generates load with wrk if it is installed, and otherwise with autocannon, which itself uses more CPU time than wrk. */
import { execFile } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { type Command, hasCommand } from "./commands.ts";
import { pin, type Pins } from "./program.ts";
import { KIB, type Workload } from "./workloads.ts";

/** The result of a run of the load generator. */
interface LoadResult {
  readonly requests: number;
  /** The length of the run in seconds. */
  readonly duration: number;
  /** The number of received bytes, including header sections. */
  readonly bytes: number;
  /** The mean latency in ms. `p50` and `p99` are percentiles of the latency, also in ms. */
  readonly mean: number;
  readonly p50: number;
  readonly p99: number;
  /** The number of failed or dropped connections, of requests that timed out, and of responses with another status than 200. */
  readonly errors: number;
}

export const generator: "wrk" | "autocannon" = hasCommand("wrk") ? "wrk" : "autocannon";

/** The timeout of both load generators in seconds, much longer than any response takes. */
const TIMEOUT = 10;

/**
 * If a response body has more than this many bytes, wrk does not check the status. To check it, wrk would copy each response,
 * which takes 1 µs for 1 KB, 10 µs for 64 KB, and 150 µs for 1 MB. Missing bytes reveal a wrong response instead.
 */
const LARGE = 64 * KIB;

const execute = promisify(execFile);
const fileOf = (name: string): string => fileURLToPath(new URL(name, import.meta.url));

interface LoadOptions {
  /** The CPU cores of the load generator. */
  readonly pins?: Pins | undefined;
  readonly secure?: boolean | undefined;
}

/**
 * Sends the requests of a workload to a port for some seconds.
 * @throws Error that says what went wrong
 */
export async function runLoad(
  workload: Workload,
  port: number,
  seconds: number,
  connections: number,
  { pins = "others", secure = false }: LoadOptions = {},
): Promise<LoadResult> {
  const url = `${secure ? "https" : "http"}://127.0.0.1:${port}${workload.path}`;
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
      LOAD_STATUS: workload.answer.length > LARGE ? "" : "200",
    };
    const command = pin(commandOf(url, seconds, connections), pins);
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

/** Checks that the responses were complete and successful, because quick errors would look like a fast proxy. */
function check(result: LoadResult, { answer }: Workload): LoadResult {
  const { requests, bytes, errors } = result;
  if (errors > 0) throw new Error(`${errors} of ${requests} requests failed`);
  if (requests === 0) throw new Error("no request was answered");
  if (bytes < requests * answer.length) {
    throw new Error(`${bytes} bytes for ${requests} responses of ${answer.length} bytes`);
  }
  return result;
}
