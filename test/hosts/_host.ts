/** Starts a server that contains the proxy in a separate process. Stopping it ends that process and no other. */
import { execFileSync, spawn, type ChildProcess } from "node:child_process";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { hostFile, hostNode } from "./_node.ts";
import type { HostName } from "./_hosts.ts";
import type { SetupName } from "./_setups.ts";
import { within } from "../helpers/wait.ts";

/**
 * Servers of `node:http` on Bun and Deno. They have only the setup `default` and, on the port `routes`, an app whose routes get
 * the upgrades. The suite does not run on them.
 */
export type NodeHttpHost = "nodehttp-bun" | "nodehttp-deno";

export interface Host<Name extends HostName | NodeHttpHost = HostName> {
  name: Name;
  pid: number;
  port(setup: SetupName | "routes"): number;
  /** Resident memory in bytes. */
  rss(): number;
  /** Returns the faults since the last call: the exit of the process, or text on stderr; empty if there were none. */
  complaints(): string;
  exited(): boolean;
  stop(): Promise<void>;
}

function pathOf(relative: string): string {
  return fileURLToPath(new URL(relative, import.meta.url));
}

/** Options for starting a host. */
export interface HostOptions {
  /** Flags for Node. Hosts on other runtimes ignore them. */
  flags?: readonly string[];
  /** Options for all proxies of the host, as JSON. */
  options?: string | undefined;
}

function commandOf(
  host: HostName | NodeHttpHost,
  flags: readonly string[],
): [command: string, ...args: string[]] {
  const file = pathOf(`${host.startsWith("nodehttp") ? "nodehttp" : host}.ts`);
  if (host.endsWith("deno")) {
    // Without --unstable-no-legacy-abort, Deno warns that it aborts `request.signal` even of answered requests.
    const allowed = ["--allow-net", "--allow-env", "--unstable-no-legacy-abort"];
    return [pathOf("../../node_modules/.bin/deno"), "run", ...allowed, file];
  }
  if (host.endsWith("bun")) return [pathOf("../../node_modules/.bin/bun"), file];
  if (host === "workerd") return [process.execPath, file];
  return [hostNode, ...flags, hostFile(`hosts/${host}`)];
}

type Ports = Record<SetupName | "routes", number> & { pid?: number };

/** Reads the port of each setup from the first line that the host prints. */
function readPorts(child: ChildProcess): Promise<Ports> {
  return new Promise((resolve, reject) => {
    let text = "";
    child.stdout?.setEncoding("utf8").on("data", (data: string) => {
      text += data;
      const [line, rest] = text.split("\n", 2);
      if (rest !== undefined) resolve(JSON.parse(line ?? "") as Ports);
    });
    child.once("exit", (code) => reject(new Error(`exited with ${code} before it was ready`)));
  });
}

export async function startHost<Name extends HostName | NodeHttpHost>(
  name: Name,
  upstream: string,
  { flags = [], options = "" }: HostOptions = {},
): Promise<Host<Name>> {
  const [command, ...args] = commandOf(name, flags);
  // The host exits when its stdin closes, so it ends with this process even if this process crashes.
  const child = spawn(command, args, {
    env: { ...process.env, UPSTREAM: upstream, PROXY_OPTIONS: options, NODE_OPTIONS: "" },
    stdio: ["pipe", "pipe", "pipe"],
  });
  const exited = new Promise<void>((resolve) => child.once("exit", () => resolve()));
  let stderr = "";
  child.stderr.setEncoding("utf8").on("data", (data: string) => (stderr += data));
  const stop = async (): Promise<void> => {
    child.kill("SIGTERM");
    await within(exited, `${name}: exit on SIGTERM`).finally(() => child.kill("SIGKILL"));
  };
  const ports = await within(readPorts(child), `${name}: ready`, 60_000).catch(
    async (error: unknown) => {
      await stop();
      throw new Error(`${name}: ${String(error)}\n${stderr}`);
    },
  );
  // Some hosts run their server in a child process, and print its id.
  const pid = ports.pid ?? child.pid ?? 0;
  return {
    name,
    pid,
    port: (setup) => ports[setup],
    rss: () => residentBytes(pid),
    complaints() {
      const code = child.exitCode ?? child.signalCode;
      const text = (code === null ? "" : `exited with ${code}\n`) + stderr;
      stderr = "";
      return text;
    },
    exited: () => child.exitCode !== null || child.signalCode !== null,
    stop,
  };
}

/** The resident memory of a process in bytes. */
export function residentBytes(pid: number): number {
  const kibibytes =
    process.platform === "linux"
      ? /^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]
      : execFileSync("ps", ["-o", "rss=", "-p", String(pid)], { encoding: "utf8" });
  return Number(kibibytes) * 1024;
}
