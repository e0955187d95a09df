/** Starts workerd with a socket and a service for each setup, and ends it with this process. */
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Readable } from "node:stream";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";
import { toCapnp } from "../helpers/capnp.ts";
import { setups } from "./_setups.ts";

const upstream = process.env["UPSTREAM"];
if (!upstream) throw new Error("UPSTREAM is not set");
const names = Object.keys(setups);
const directory = mkdtempSync(join(tmpdir(), "fetchway-workerd-"));

await build({
  entryPoints: [fileURLToPath(new URL("workerd.worker.ts", import.meta.url))],
  outfile: join(directory, "worker.js"),
  bundle: true,
  format: "esm",
  target: "es2023",
  conditions: ["workerd"],
});

const config = toCapnp({
  sockets: Object.fromEntries(names.map((name) => [name, 0])),
  vars: (name) => ({
    SETUP: name,
    UPSTREAM: upstream,
    PROXY_OPTIONS: process.env["PROXY_OPTIONS"] ?? "",
  }),
});
writeFileSync(join(directory, "config.capnp"), config);

const binary = fileURLToPath(new URL("../../node_modules/.bin/workerd", import.meta.url));
const child = spawn(binary, ["serve", join(directory, "config.capnp"), "--control-fd=3"], {
  stdio: ["ignore", 2, "pipe", "pipe"],
  // The command may be a wrapper around workerd: a process group lets a signal end both.
  detached: true,
});

function end(code: number): never {
  rmSync(directory, { recursive: true, force: true });
  try {
    if (child.pid !== undefined) process.kill(-child.pid, "SIGKILL");
  } catch {
    // The process has already ended.
  }
  process.exit(code);
}

// Messages of workerd that do not indicate a fault of the host: why a response body failed, and that a CONNECT request came.
const ordinary: RegExp =
  / Uncaught exception: .*remote\.jsg\.(?:Error: (?:ProxyError: |Handler does not export a connect\(\))|TypeError: FixedLengthStream did not see )|^Received a connect event/;
let stderr = "";
(child.stdio[2] as Readable).setEncoding("utf8").on("data", (data: string) => {
  const lines = (stderr += data).split("\n");
  stderr = lines.pop() ?? "";
  for (const line of lines) {
    if (!ordinary.test(line)) console.error(line);
  }
});

child.on("exit", (code) => end(code ?? 1));
process.on("SIGTERM", () => end(0));
// The parent holds stdin open, so this process ends when its parent ends.
process.stdin.resume().on("end", () => end(0));

/** workerd prints one line of JSON for each socket that it listens on. */
let ports: Record<string, number> = {};
let text = "";
(child.stdio[3] as Readable).setEncoding("utf8").on("data", (data: string) => {
  const lines = (text += data).split("\n");
  text = lines.pop() ?? "";
  for (const line of lines) {
    const { event, socket, port } = JSON.parse(line) as Record<string, string>;
    if (event === "listen" && socket !== undefined) ports[socket] = Number(port);
  }
  if (Object.keys(ports).length < names.length) return;
  console.log(JSON.stringify({ ...ports, pid: child.pid }));
  ports = {};
});
