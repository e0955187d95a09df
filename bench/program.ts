/** Starts programs for benchmarks, pinned to CPU cores, and ends their process groups and no other process. */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { get } from "node:http";
import { get as getSecurely } from "node:https";
import { connect, createServer, type AddressInfo } from "node:net";
import { availableParallelism, tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { type Command, hasCommand } from "./commands.ts";

const cores = availableParallelism();

/**
 * The cores of each part: the proxy has its own core, and the load generator and the upstream share the others. With `all`,
 * the operating system may use any core.
 */
const PINS: Readonly<Record<"proxy" | "others" | "all", string>> = {
  all: `0-${cores - 1}`,
  proxy: `${cores - 1}`,
  others: cores > 2 ? `0-${cores - 2}` : "0",
};

export const pinned: boolean = cores > 1 && process.platform === "linux" && hasCommand("taskset");

export type Pins = keyof typeof PINS;

/** Pins a command to its cores if the system supports it. */
export function pin(command: Command, pins: Pins): Command {
  return pinned ? ["taskset", "-c", PINS[pins], ...command] : command;
}

/** The sign that a program is ready: it answers with a status below 500, with or without TLS, or it accepts connections. */
export type Sign = "http" | "https" | "tcp";

const running = new Set<Program>();

process.on("exit", () => {
  for (const program of running) program.kill("SIGKILL");
});
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) {
  process.on(signal, () => process.exit(130));
}

export class Program {
  readonly pid: number;
  readonly port: number;
  readonly #child: ChildProcess;
  #output = "";

  private constructor(command: Command, port: number, env: Record<string, string>) {
    const [file, ...args] = command;
    this.#child = spawn(file, args, {
      // Some commands start child processes that outlive them: a process group lets a signal reach all of them.
      detached: true,
      env: {
        ...process.env,
        NODE_ENV: "production",
        NODE_OPTIONS: "",
        NO_COLOR: "1",
        PORT: `${port}`,
        ...env,
      },
      // The upstreams and most contestants exit when stdin closes, so they end with the benchmark.
      stdio: ["pipe", "pipe", "pipe"],
    });
    this.#child.on("error", (error) => (this.#output += String(error)));
    const take = (data: string): void => void (this.#output = (this.#output + data).slice(-4000));
    this.#child.stdout?.setEncoding("utf8").on("data", take);
    this.#child.stderr?.setEncoding("utf8").on("data", take);
    this.pid = this.#child.pid ?? 0;
    this.port = port;
    running.add(this);
  }

  /** Starts a program and waits until it is ready. */
  static async start(
    command: Command,
    port: number,
    env: Record<string, string> = {},
    sign: Sign = "http",
    patience = 20_000,
  ): Promise<Program> {
    const program = new Program(command, port, env);
    const deadline = performance.now() + patience;
    while (!(await (sign === "tcp" ? accepts(port) : answers(port, sign === "https")))) {
      if (!program.alive || performance.now() > deadline) {
        await program.stop();
        throw new Error(`it did not start: ${program.output.trim().slice(-400)}`);
      }
      await sleep(20);
    }
    return program;
  }

  get alive(): boolean {
    return this.#child.exitCode === null && this.#child.signalCode === null && this.pid > 0;
  }

  /** The last 4000 characters of the program's output. */
  get output(): string {
    return this.#output;
  }

  kill(signal: NodeJS.Signals): void {
    try {
      if (this.pid > 0) process.kill(-this.pid, signal);
    } catch {
      // The process group has already ended.
    }
  }

  async stop(): Promise<void> {
    const exited = this.alive ? once(this.#child, "exit") : undefined;
    this.kill("SIGTERM");
    const late = setTimeout(() => this.kill("SIGKILL"), 2000);
    await exited;
    clearTimeout(late);
    // End child processes that have survived the program.
    this.kill("SIGKILL");
    running.delete(this);
  }
}

/** Starts a script on Node, such as an upstream, on a free port. */
export async function startScript(
  script: URL,
  {
    pins = "others",
    certificate,
    args = [],
  }: { pins?: Pins; certificate?: string | undefined; args?: readonly string[] } = {},
): Promise<Program> {
  const command = pin([process.execPath, fileURLToPath(script), ...args], pins);
  const port = await freePort();
  if (certificate === undefined) return Program.start(command, port);
  return Program.start(command, port, { CERTIFICATE: certificate }, "https");
}

/** Makes a directory for files of this run. It is removed at the end of this process. */
export function makeDirectory(): string {
  const directory = mkdtempSync(join(tmpdir(), "fetchway-bench-"));
  process.on("exit", () => rmSync(directory, { recursive: true, force: true }));
  return directory;
}

/** Prints a line of progress on stderr, because stdout has the figures. */
export function say(line: string): void {
  process.stderr.write(`${line}\n`);
}

/** Returns the first line of an error's message: the reason why there are no figures. */
export function reasonOf(error: unknown): string {
  return (error as Error).message.split("\n", 1)[0] ?? "";
}

export function sleep(milliseconds: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}

function accepts(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, "127.0.0.1", () => resolve(true));
    socket.on("connect", () => socket.destroy()).on("error", () => resolve(false));
  });
}

function answers(port: number, secure: boolean): Promise<boolean> {
  return new Promise((resolve) => {
    const options = { host: "127.0.0.1", port, path: "/", agent: false, rejectUnauthorized: false };
    const request = (secure ? getSecurely : get)(options, (response) => {
      response.resume().on("error", () => {});
      resolve((response.statusCode ?? 500) < 500);
    });
    request.on("error", () => resolve(false));
    request.setTimeout(2000, () => request.destroy());
  });
}

/** Returns a port that is free now. Another process may take it before it is used. */
export async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, "close");
  return port;
}
