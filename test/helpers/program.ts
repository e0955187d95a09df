/** Starts programs of other runtimes in separate processes, and ends only these processes. */
import { spawn } from "node:child_process";
import { fileURLToPath } from "node:url";
import { until } from "./wait.ts";

const ROOT = fileURLToPath(new URL("../..", import.meta.url));

/** The arguments with which each runtime runs a module that is given as text. The text is the next argument. */
export const EVALUATE: Readonly<Record<"node" | "bun" | "deno", readonly string[]>> = {
  node: ["--input-type=module", "--eval"],
  bun: ["--eval"],
  deno: ["eval", "--quiet"],
};

export interface Program {
  /** Returns all that the program has printed to stdout and stderr. */
  output(): string;
  /** Returns the exit code: null if a signal has ended the program, undefined while it runs. */
  code(): number | null | undefined;
  /** Waits until the output matches. */
  printed(pattern: RegExp): Promise<RegExpExecArray>;
  /** Waits until the program has ended. The limit is in milliseconds. */
  ended(limit?: number): Promise<void>;
  /** Sends a signal to the program and its children. */
  signal(name: NodeJS.Signals): void;
  [Symbol.asyncDispose](): Promise<void>;
}

/** Starts one of the pinned runtimes or tools of node_modules/.bin. */
export function startProgram(
  tool: string,
  args: string[],
  env: Record<string, string | undefined> = {},
  cwd: string = ROOT,
): Program {
  const child = spawn(`${ROOT}node_modules/.bin/${tool}`, args, {
    cwd,
    // Some of these tools start child processes that outlive them: a process group lets a signal reach all of them.
    detached: true,
    // The test runner sets TEST. While TEST is set, srvx does not print its address.
    env: { ...process.env, TEST: undefined, NO_COLOR: "1", NODE_OPTIONS: "", ...env },
    stdio: ["ignore", "pipe", "pipe"],
  });
  let output = "";
  let code: number | null | undefined;
  const take = (data: string): void => void (output += data);
  child.stdout.setEncoding("utf8").on("data", take);
  child.stderr.setEncoding("utf8").on("data", take);
  child.on("exit", (status) => (code = status));
  // `printed` fails only after `close`, because the last output may arrive after the exit.
  let isClosed = false;
  child.on("close", () => (isClosed = true));
  const exited = (limit = 60_000): Promise<void> =>
    until(() => code !== undefined, `${tool} to end`, limit).catch((cause: unknown) => {
      throw new Error(`${tool} has not ended. It has printed:\n${output}`, { cause });
    });
  /** Also waits for the last output, but not for long: a child that outlives the program may hold the pipes open. */
  const ended = async (limit?: number): Promise<void> => {
    await exited(limit);
    await until(() => isClosed, `the last output of ${tool}`, 5000).catch(() => {});
  };
  return {
    output: () => output,
    code: () => code,
    ended,
    signal: (name) => void (child.pid !== undefined && process.kill(-child.pid, name)),
    async printed(pattern) {
      let match: RegExpExecArray | null = null;
      await until(
        () => (match = pattern.exec(output)) !== null || isClosed,
        `${tool} to print ${pattern}`,
        60_000,
      );
      if (match === null) throw new Error(`${tool} ended with ${code}:\n${output}`);
      return match;
    },
    async [Symbol.asyncDispose]() {
      if (code === undefined && child.pid !== undefined) process.kill(-child.pid, "SIGKILL");
      await exited();
    },
  };
}
