/**
 * Sends mixed traffic through the command for minutes, and checks that its memory and its descriptors stay flat.
 *
 *     npm run test:soak -- --minutes 10 --rate 100
 *
 * Each kind of fault is about 1 % of the traffic: errors and resets of upstreams, clients that disconnect, read slowly or
 * send garbage, and tunnels that end in all ways, over HTTP/1.1 and HTTP/2. The config file is changed every 10 s. Every
 * half minute, the run prints the memory after garbage collections and the number of descriptors (Linux). The first fifth
 * of the time is the warm-up.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { makeCertificate } from "../helpers/certificate.ts";
import { pause, until } from "../helpers/wait.ts";
import type { Memory } from "./_probe.ts";
import { Traffic } from "./_traffic.ts";
import { startUpstreams } from "./_upstreams.ts";

const SAMPLE_INTERVAL = 30_000;
const RELOAD_INTERVAL = 10_000;
const MEBIBYTE = 1024 * 1024;
/** The maximum number of actions of clients that run at the same time. */
const MAX_RUNNING = 300;
/**
 * The maximum growth from the first half after the warm-up to the second. `rss` rises in steps for minutes: the young
 * generation of V8 doubles, and the system's allocator keeps the memory that was freed after a burst of large bodies.
 */
const MAX_GROWTH = { heap: 4 * MEBIBYTE, external: 4 * MEBIBYTE, rss: 64 * MEBIBYTE, files: 30 };
/** The maximum number of additional descriptors when all clients have disconnected. */
const MAX_LEFT = 8;

type Sample = Memory & { readonly files: number };

const { values } = parseArgs({
  options: {
    minutes: { type: "string", default: "10" },
    rate: { type: "string", default: "100" },
  },
});
const minutes = Number(values.minutes);
const rate = Number(values.rate);
if (!(minutes > 0 && rate > 0)) throw new Error("--minutes and --rate: use numbers above 0");

const folder = mkdtempSync(join(tmpdir(), "fetchway-soak-"));
const config = join(folder, "fetchway.config.json");
const certificate = await makeCertificate();
writeFileSync(join(folder, "cert.pem"), certificate.cert);
writeFileSync(join(folder, "key.pem"), certificate.key);
const origins = await startUpstreams();

/** Writes the config file; each version makes new proxies. */
function writeConfig(version: number): void {
  const headers = { "x-version": String(version) };
  const routes = [
    { match: "/h2/", target: origins.http2[0], pool: { http2: true }, headers },
    // Faults have their own HTTP/2 upstream, because a lost connection fails all requests on it.
    { match: "/faults/", target: origins.http2[1], pool: { http2: true }, headers },
    // Without outlier detection, because the faults must not eject the upstreams.
    { match: "/", target: origins.http1, balance: { outliers: false }, headers },
  ];
  writeFileSync(config, JSON.stringify({ routes }));
}

writeConfig(0);
const command = startCommand();
let printed = "";
command.stdout?.setEncoding("utf8").on("data", (text: string) => (printed += text));
await until(() => /listens on https:\S+:(\d+)/.test(printed) || isOver(command), "the start");
const port = Number(/listens on https:\S+:(\d+)/.exec(printed)?.[1] ?? fail(printed));
const traffic = new Traffic(port, certificate.cert);
await traffic.act();
traffic.close();
const before = countFiles();

const samples: Sample[] = [];
const began = performance.now();
const end = began + minutes * 60_000;
let version = 0;
const reloads = setInterval(() => writeConfig(++version), RELOAD_INTERVAL);
const acts = setInterval(() => {
  // Only the last lines are of interest if the command fails.
  printed = printed.slice(-10_000);
  for (let i = 0; i < rate / 10 && traffic.running < MAX_RUNNING; i++) void traffic.act();
}, 100);
while (performance.now() < end && !isOver(command)) {
  await pause(Math.min(SAMPLE_INTERVAL, Math.max(1, end - performance.now())));
  if (!isOver(command)) samples.push(await takeSample());
  const sample = samples.at(-1);
  if (sample !== undefined) console.log(describe(sample));
}
clearInterval(reloads);
clearInterval(acts);
if (isOver(command)) fail(`the command has ended: ${printed}`);

await until(() => traffic.running === 0, "the end of all requests", 60_000);
traffic.close();
await until(() => countFiles() <= before + MAX_LEFT, "the end of all connections", 60_000).catch(
  () => {},
);
const left = countFiles() - before;
const last = await takeSample();
console.log(`${describe(last)}, without clients; ${left} more descriptors than at the start`);
for (const [outcome, count] of [...traffic.outcomes].toSorted(([one], [other]) =>
  one < other ? -1 : 1,
))
  console.log(`  ${count} ${outcome}`);
console.log(`${traffic.ordinary} ordinary requests, ${traffic.unexpected} not answered by 200`);
const faults = findFaults(left);
for (const fault of faults) console.log(`FAULT: ${fault}`);
if (faults.length === 0) console.log("memory and descriptors are flat");
else process.exitCode = 1;
command.kill("SIGKILL");
rmSync(folder, { recursive: true });
process.exit();

function startCommand(): ChildProcess {
  const script = fileURLToPath(new URL("../../command/main.ts", import.meta.url));
  const probe = new URL("_probe.ts", import.meta.url).href;
  const flags = ["--config", config, "--port", "0", "--log", "json"];
  const tls = ["--cert", join(folder, "cert.pem"), "--key", join(folder, "key.pem")];
  return spawn(
    process.execPath,
    ["--expose-gc", "--import", probe, script, ...flags, ...tls, "--host", "127.0.0.1"],
    { stdio: ["ignore", "ignore", "pipe", "ipc"] },
  );
}

function isOver({ exitCode, signalCode }: ChildProcess): boolean {
  return exitCode !== null || signalCode !== null;
}

/** Returns the number of open descriptors of the command; 0 where the system does not show them. */
function countFiles(): number {
  const path = `/proc/${command.pid}/fd`;
  return existsSync(path) ? readdirSync(path).length : 0;
}

async function takeSample(): Promise<Sample> {
  const answered = once(command, "message");
  command.send("memory");
  const [memory] = (await answered) as [Memory];
  return { ...memory, files: countFiles() };
}

function describe({ heap, external, rss, files }: Sample): string {
  const [a, b, c] = [heap, external, rss].map((bytes) => (bytes / MEBIBYTE).toFixed(1));
  const time = ((performance.now() - began) / 60_000).toFixed(1);
  return `${time} min: heap ${a} MiB, buffers ${b} MiB, rss ${c} MiB, ${files} descriptors, ${traffic.ordinary} requests`;
}

/** Compares the two halves of the samples after the warm-up. */
function findFaults(remaining: number): string[] {
  const found: string[] = [];
  const warm = samples.slice(Math.floor(samples.length / 5));
  const middle = Math.floor(warm.length / 2);
  const [first, second] = [warm.slice(0, middle), warm.slice(middle)];
  for (const name of ["heap", "external", "rss", "files"] as const) {
    const growth =
      medianOf(second.map((each) => each[name])) - medianOf(first.map((each) => each[name]));
    if (growth > MAX_GROWTH[name]) found.push(`${name} grows by ${growth} from half to half`);
  }
  if (remaining > MAX_LEFT) found.push(`${remaining} descriptors are left`);
  if (traffic.unexpected > traffic.ordinary / 1000) {
    found.push(`${traffic.unexpected} ordinary requests failed`);
  }
  return found;
}

function medianOf(numbers: number[]): number {
  return numbers.toSorted((one, other) => one - other)[Math.floor(numbers.length / 2)] ?? 0;
}

function fail(reason: string): never {
  console.log(`FAULT: ${reason}`);
  command.kill("SIGKILL");
  process.exit(1);
}
