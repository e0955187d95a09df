/** Starts programs of other runtimes as processes of their own, and ends only those. */
import { spawn } from "node:child_process";
import { fileURLToPath } from "node:url";
import { until } from "./_wait.ts";

const ROOT = fileURLToPath(new URL("..", import.meta.url));

export interface Program {
  /** All that it has printed, on either channel. */
  output(): string;
  /** The code that it ended with, once it has. */
  code(): number | null | undefined;
  /** Waits for the first match in its output. */
  printed(pattern: RegExp): Promise<RegExpExecArray>;
  ended(): Promise<void>;
  /** Sends a signal to it and its children. */
  signal(name: NodeJS.Signals): void;
  [Symbol.asyncDispose](): Promise<void>;
}

/** Starts one of the pinned runtimes or tools of node_modules/.bin. */
export function startProgram(
  tool: string,
  args: string[],
  env: Record<string, string> = {},
): Program {
  const child = spawn(`${ROOT}node_modules/.bin/${tool}`, args, {
    cwd: ROOT,
    // A group of its own: some of these tools start others, which outlive them.
    detached: true,
    // srvx says nothing where TEST is set, as the test runner sets it.
    env: { ...process.env, TEST: undefined, NO_COLOR: "1", NODE_OPTIONS: "", ...env },
    stdio: ["ignore", "pipe", "pipe"],
  });
  let output = "";
  let code: number | null | undefined;
  const take = (data: string): void => void (output += data);
  child.stdout.setEncoding("utf8").on("data", take);
  child.stderr.setEncoding("utf8").on("data", take);
  child.on("exit", (status) => (code = status));
  const ended = (): Promise<void> => until(() => code !== undefined, `${tool} to end`, 60_000);
  return {
    output: () => output,
    code: () => code,
    ended,
    signal: (name) => void (child.pid !== undefined && process.kill(-child.pid, name)),
    async printed(pattern) {
      let match: RegExpExecArray | null = null;
      await until(
        () => (match = pattern.exec(output)) !== null || code !== undefined,
        `${tool} to print ${pattern}`,
        60_000,
      );
      if (match === null) throw new Error(`${tool} ended with ${code}:\n${output}`);
      return match;
    },
    async [Symbol.asyncDispose]() {
      if (code === undefined && child.pid !== undefined) process.kill(-child.pid, "SIGKILL");
      await ended();
    },
  };
}
