/** The real command as a process of its own, and an upstream for it. */
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
import { listen } from "./_serve.ts";
import { until, within } from "./_wait.ts";

export const root: URL = new URL("../", import.meta.url);
const script = fileURLToPath(new URL("runtimes/cli.ts", root));
// What servers read from the environment is not to matter.
const env = { ...process.env, NODE_OPTIONS: "", PORT: "1", HOST: "no.such.host", CI: "1" };

export class Command {
  stdout = "";
  stderr = "";
  readonly child: ChildProcess;
  readonly exit: Promise<number | null>;

  /**
   * @param line arguments as one types them in a shell
   * @param flags Node's own
   */
  constructor(line: string, flags: string[]) {
    const args = ["-c", `exec "$0" "$@" ${line}`, process.execPath, ...flags, script];
    this.child = spawn("sh", args, { env });
    this.child.stdout?.setEncoding("utf8").on("data", (data: string) => (this.stdout += data));
    this.child.stderr?.setEncoding("utf8").on("data", (data: string) => (this.stderr += data));
    this.exit = once(this.child, "close").then(([code]) => code as number | null);
  }

  get exited(): boolean {
    return this.child.exitCode !== null || this.child.signalCode !== null;
  }

  async says(what: RegExp): Promise<RegExpExecArray> {
    await until(() => what.test(this.stdout) || this.exited, String(what));
    const found = what.exec(this.stdout);
    if (found === null) throw new Error(`no ${what} in: ${this.stdout}${this.stderr}`);
    return found;
  }

  /** Runs a command that must refuse its arguments, and returns its stderr. */
  async refusal(): Promise<string> {
    expect(await within(this.exit, "the exit")).toBe(2);
    expect(this.stdout).toBe("");
    return this.stderr;
  }
}

const commands: Command[] = [];
/** Starts the command; it is ended after the test. */
export function command(line: string, ...flags: string[]): Command {
  const started = new Command(line, flags);
  commands.push(started);
  return started;
}

/** Starts a proxy on a free port; the address is read from what it prints. */
export async function listening(line: string): Promise<{ proxy: Command; origin: string }> {
  const proxy = command(`${line} --port 0`);
  const [, origin = ""] = await proxy.says(/^fetchway listens on (http:\S+) .*\n/);
  return { proxy, origin };
}

type Handler = (req: IncomingMessage, res: ServerResponse) => unknown;

/** An upstream; every test sets its own handler. */
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

/** A response and its body as they came. */
export async function getRaw(url: string, agent?: Agent): Promise<[IncomingMessage, Buffer]> {
  const [message] = (await once(get(url, { agent }), "response")) as [IncomingMessage];
  return [message, Buffer.concat((await message.toArray()) as Buffer[])];
}
