/** Runs the `fetchway` command in a separate process, and provides an upstream for it. */
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import {
  type Agent,
  createServer,
  get,
  type IncomingMessage,
  type ServerResponse,
} from "node:http";
import { fileURLToPath } from "node:url";
import { afterAll, afterEach, beforeAll, expect } from "vitest";
import { listen } from "../helpers/serve.ts";
import { until, within } from "../helpers/wait.ts";

export const root: URL = new URL("../../", import.meta.url);
const script = fileURLToPath(new URL("command/main.ts", root));
/** The file of the command. When other versions of Node are tested, it is the file that was compiled for them. */
const compiled = process.env["HOST_COMMAND"] ?? script;
const node = process.env["HOST_NODE"] ?? process.execPath;
// The command must ignore the variables that other servers read, so they are set to wrong values.
const env = { ...process.env, NODE_OPTIONS: "", PORT: "1", HOST: "no.such.host", CI: "1" };

export class Command {
  stdout = "";
  stderr = "";
  /** Whether the process has ended, and its output has arrived. */
  isClosed = false;
  readonly child: ChildProcess;
  readonly exit: Promise<number | null>;

  /**
   * @param line the arguments of the command as typed in a shell
   * @param flags flags for Node itself
   * @param program the runtime with its arguments
   * @param file the file of the command; empty if `program` names it
   */
  constructor(
    line: string,
    flags: string[] = [],
    program: readonly string[] = [node],
    file: string = program[0] === node ? compiled : script,
    variables: NodeJS.ProcessEnv = {},
  ) {
    const args = ["-c", `exec "$0" "$@" ${line}`, ...program, ...flags];
    if (file !== "") args.push(file);
    this.child = spawn("sh", args, { env: { ...env, ...variables } });
    this.child.stdout?.setEncoding("utf8").on("data", (data: string) => (this.stdout += data));
    this.child.stderr?.setEncoding("utf8").on("data", (data: string) => (this.stderr += data));
    this.child.on("close", () => (this.isClosed = true));
    this.exit = once(this.child, "close").then(([code]) => code as number | null);
  }

  get exited(): boolean {
    return this.child.exitCode !== null || this.child.signalCode !== null;
  }

  async says(what: RegExp): Promise<RegExpExecArray> {
    await until(() => what.test(this.stdout) || this.isClosed, String(what));
    const found = what.exec(this.stdout);
    if (found === null) throw new Error(`no ${what} in: ${this.stdout}${this.stderr}`);
    return found;
  }

  /** Waits until stderr has `what`. Text on stderr may arrive later than text written after it to stdout or to a socket. */
  async warns(what: RegExp): Promise<void> {
    await until(() => what.test(this.stderr) || this.isClosed, String(what));
    expect(this.stderr).toMatch(what);
  }

  /** Reads the address from the output. */
  async origin(): Promise<string> {
    const [, origin = ""] = await this.says(/^fetchway listens on (https?:\S+) .*\n/);
    return origin;
  }

  /** Kills the process. */
  async kill(): Promise<void> {
    this.child.kill("SIGKILL");
    await this.exit;
  }

  /** Expects that the command refuses its arguments, and returns its stderr. */
  async refusal(): Promise<string> {
    expect(await within(this.exit, "the exit")).toBe(2);
    expect(this.stdout).toBe("");
    return this.stderr;
  }
}

/** The program and arguments with which each runtime runs a file. */
export const programs: Readonly<Record<"node" | "bun" | "deno", readonly string[]>> = {
  node: [node],
  bun: [bin("bun")],
  deno: [bin("deno"), "run", "-A"],
};

function bin(name: string): string {
  return fileURLToPath(new URL(`node_modules/.bin/${name}`, root));
}

const commands: Command[] = [];
/** Starts the command. Its process is ended after the test. */
export function command(line: string, ...flags: string[]): Command {
  const started = new Command(line, flags);
  commands.push(started);
  return started;
}

/** Starts a proxy on a free port, without a log unless `line` asks for one, and reads the address from its output. */
export async function listening(line: string): Promise<{ proxy: Command; origin: string }> {
  const proxy = command(`--log off ${line} --port 0`);
  return { proxy, origin: await proxy.origin() };
}

type Handler = (req: IncomingMessage, res: ServerResponse) => unknown;

/** The upstream of the tests. Each test sets its own handler. */
export const upstream: { handler: Handler; url: string } = { handler: () => {}, url: "" };
const server = createServer((req, res) => void upstream.handler(req, res));

beforeAll(async () => {
  upstream.url = `http://127.0.0.1:${await listen(server)}`;
});
afterAll(() => server.close().closeAllConnections());

afterEach(async () => {
  for (const { child } of commands) child.kill("SIGKILL");
  await Promise.all(commands.splice(0).map(({ exit }) => exit));
});

/** Requests a URL, and returns the response and its body without decoding. */
export async function getRaw(url: string, agent?: Agent): Promise<[IncomingMessage, Buffer]> {
  const [message] = (await once(get(url, { agent }), "response")) as [IncomingMessage];
  return [message, Buffer.concat((await message.toArray()) as Buffer[])];
}
