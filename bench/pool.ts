/**
 * Measures what connection reuse saves: agentkeepalive's benchmark, and HTTP and HTTPS one request after the other.
 *
 *     npm run bench:pool                       # a full run, which writes bench/pool.md
 *     npm run bench:pool -- --requests 100     # a quicker run, which only prints
 */
import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { loadavg } from "node:os";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { Pool } from "undici";
import { toStamp } from "./code.ts";
import { poolDefaults } from "../src/options/pooloptions.ts";
import type { PoolStats } from "../src/transport/stats.ts";
import { makeCertificate } from "../test/helpers/certificate.ts";
import type { Role, State } from "./pool-servers.ts";
import { sleep } from "./program.ts";
import { describeMachine } from "./report.ts";
import { MIB } from "./workloads.ts";

const SOCKETS = 50;
const CLIENTS = 60;
const DELAY = 5;

const { values } = parseArgs({
  options: {
    requests: { type: "string", default: "1000" },
    sequence: { type: "string" },
  },
});
const each = Number(values.requests);
const sequence = Number(values.sequence ?? 10 * each);

const children: ChildProcess[] = [];
process.on("exit", () => {
  for (const child of children) child.kill();
});

/** Starts a server in a separate process. */
async function start(role: Role): Promise<{ port: number; ask: () => Promise<State> }> {
  const file = fileURLToPath(new URL("pool-servers.ts", import.meta.url));
  const child = fork(file, [JSON.stringify(role)]);
  children.push(child);
  const [port] = (await once(child, "message")) as [number];
  return {
    port,
    async ask() {
      child.send("state");
      return ((await once(child, "message")) as [State])[0];
    },
  };
}

interface Run {
  /** The time of each request in milliseconds, sorted. */
  times: Float64Array;
  seconds: number;
  /** The number of received body bytes. */
  bytes: number;
  failed: number;
}

/** Runs clients at the same time, each of which sends `requests` requests on a connection of its own. */
async function load(port: number, clients: number, requests: number): Promise<Run> {
  const pool = new Pool(`http://127.0.0.1:${port}`, { connections: clients });
  const times = new Float64Array(clients * requests);
  let at = 0;
  let bytes = 0;
  let failed = 0;
  const work = async (): Promise<void> => {
    for (let count = 0; count < requests; count++) {
      const since = performance.now();
      try {
        const { statusCode, body } = await pool.request({ method: "GET", path: "/" });
        const { byteLength } = await body.arrayBuffer();
        bytes += byteLength;
        if (statusCode !== 200 || byteLength !== 1024) failed++;
      } catch {
        failed++;
      }
      times[at++] = performance.now() - since;
    }
  };
  const since = performance.now();
  await Promise.all(Array.from({ length: clients }, work));
  const seconds = (performance.now() - since) / 1000;
  await pool.close();
  return { times: times.toSorted(), seconds, bytes, failed };
}

/** Returns the counters as soon as every idle connection is closed, or after a time limit. */
async function statsAtRest(ask: () => Promise<State>): Promise<PoolStats> {
  const until = performance.now() + 2 * poolDefaults.freeSocketTimeout;
  for (;;) {
    const { stats } = await ask();
    const isEmpty = Object.values(stats.origins).every(({ inUse, free }) => inUse + free === 0);
    if (isEmpty || performance.now() > until) return stats;
    await sleep(100);
  }
}

function describeRest({ origins }: PoolStats): string {
  return Object.values(origins)
    .map(({ inUse, free, waiting }) => `${inUse}, ${free}, ${waiting}`)
    .join("; ");
}

const quantile = ({ times }: Run, part: number): number =>
  times[Math.min(times.length - 1, Math.floor(part * times.length))] ?? NaN;
const shortest = (run: Run): number => quantile(run, 0);
const longest = (run: Run): number => quantile(run, 1);
const sum = ({ times }: Run): number => times.reduce((total, time) => total + time, 0);
const mean = (run: Run): number => sum(run) / run.times.length;
const fixed = (value: number, digits = 2): string => value.toFixed(digits);
const percent = (part: number, whole: number, digits: number): string =>
  `${fixed((100 * part) / whole, digits)} %`;

const BOUNDS = [5, 7, 10, 15, 20, 30, 50, 100, Infinity];

function histogram(run: Run): string[] {
  let below = 0;
  return BOUNDS.map((bound) => {
    const until = run.times.findIndex((time) => time >= bound);
    const count = (until < 0 ? run.times.length : until) - below;
    below += count;
    return percent(count, run.times.length, 1);
  });
}

function table(head: string[], rows: string[][]): string {
  const widths = head.map((_, index) =>
    Math.max(3, ...[head, ...rows].map((cells) => cells[index]?.length ?? 0)),
  );
  // Pad the cells like oxfmt.
  const pad = (cell: string, index: number): string =>
    index === 0 ? cell.padEnd(widths[0] ?? 0) : cell.padStart(widths[index] ?? 0);
  const line = widths.map((width, index) =>
    index === 0 ? "-".repeat(width) : `${"-".repeat(width - 1)}:`,
  );
  return [head.map(pad), line, ...rows.map((cells) => cells.map(pad))]
    .map((cells) => `| ${cells.join(" | ")} |`)
    .join("\n");
}

/** The benchmark of agentkeepalive: 60 clients share 50 sockets to an upstream that takes 5 ms. */
async function compareConcurrent(): Promise<string> {
  const target = `http://127.0.0.1:${(await start({ role: "target", delay: DELAY })).port}`;
  const runs: { run: Run; stats: PoolStats; cpu: number }[] = [];
  for (const keepAlive of [true, false]) {
    const proxy = await start({ role: "proxy", target, keepAlive, maxSockets: SOCKETS });
    // Warm up first, so that the compilation of the code is not measured.
    await load(proxy.port, CLIENTS, Math.min(100, each));
    const before = await proxy.ask();
    const run = await load(proxy.port, CLIENTS, each);
    const { cpu } = await proxy.ask();
    runs.push({ run, cpu: cpu - before.cpu, stats: await statsAtRest(proxy.ask) });
  }
  const columns = (name: string, of: (each: (typeof runs)[number]) => string): string[] => [
    name,
    ...runs.map(of),
  ];
  const rows = [
    columns("transactions", ({ run }) => String(run.times.length)),
    columns("successful transactions", ({ run }) => String(run.times.length - run.failed)),
    columns("failed transactions", ({ run }) => String(run.failed)),
    columns("availability", ({ run: { times, failed } }) =>
      percent(times.length - failed, times.length, 2),
    ),
    columns("elapsed, s", ({ run }) => fixed(run.seconds)),
    columns("data transferred, MiB", ({ run }) => fixed(run.bytes / MIB)),
    columns("throughput, MiB/s", ({ run }) => fixed(run.bytes / MIB / run.seconds)),
    columns("concurrency", ({ run }) => fixed(sum(run) / 1000 / run.seconds)),
    columns("transactions per second", ({ run }) => fixed(run.times.length / run.seconds, 0)),
    columns("CPU of the proxy, s", ({ cpu }) => fixed(cpu)),
    columns("CPU of the proxy per transaction, µs", ({ run, cpu }) =>
      fixed((cpu / run.times.length) * 1e6, 0),
    ),
    columns("latency, mean, ms", ({ run }) => fixed(mean(run))),
    columns("p50", ({ run }) => fixed(quantile(run, 0.5))),
    columns("p95", ({ run }) => fixed(quantile(run, 0.95))),
    columns("p99", ({ run }) => fixed(quantile(run, 0.99))),
    columns("longest", ({ run }) => fixed(longest(run))),
    columns("shortest", ({ run }) => fixed(shortest(run))),
    columns("sockets created, warm-up included", ({ stats }) => String(stats.created)),
    columns("requests per socket", ({ stats }) => fixed(stats.requestsPerSocket, 1)),
    columns("sockets closed", ({ stats }) => String(stats.closed)),
    columns("of these by timeout", ({ stats }) => String(stats.timedOut)),
    columns("at rest: in use, free, waiting", ({ stats }) => describeRest(stats)),
  ];
  const [kept = [], not = []] = runs.map(({ run }) => histogram(run));
  const buckets = BOUNDS.map((bound, index) => {
    const name = bound === Infinity ? "longer" : `below ${bound} ms`;
    return [name, kept[index] ?? "", not[index] ?? ""];
  });
  const head = ["", "kept", "not kept"];
  return `## ${CLIENTS} clients, ${SOCKETS} sockets, ${each} requests each, a target that takes ${DELAY} ms

${table(head, rows)}

${table(["latency", "kept", "not kept"], buckets)}`;
}

/** Compares requests in sequence, with and without kept connections. */
async function compareSequence(scheme: "http" | "https"): Promise<string> {
  const certificate = scheme === "https" ? await makeCertificate() : undefined;
  const { port } = await start({ role: "target", delay: 0, ...certificate });
  const target = `${scheme}://localhost:${port}`;
  const ca = certificate && { ca: certificate.cert };
  const proxies = await Promise.all(
    [true, false].map((keepAlive) =>
      start({ role: "proxy", target, keepAlive, maxSockets: SOCKETS, ...ca }),
    ),
  );
  // Alternate between the two, so that a change of the machine's speed affects both.
  const rounds = 10;
  const times: number[][] = [[], []];
  const cpu = [0, 0];
  for (let round = -1; round < rounds; round++) {
    for (const [index, proxy] of proxies.entries()) {
      const before = await proxy.ask();
      const run = await load(proxy.port, 1, Math.ceil(sequence / rounds));
      const after = await proxy.ask();
      if (run.failed > 0) throw new Error(`${run.failed} requests failed`);
      if (round < 0) continue;
      times[index]?.push(...run.times);
      cpu[index] = (cpu[index] ?? 0) + after.cpu - before.cpu;
    }
  }
  const runs = times.map((all): Run => ({
    times: Float64Array.from(all).toSorted(),
    seconds: 0,
    bytes: 0,
    failed: 0,
  }));
  const [kept, not] = runs as [Run, Run];
  const row = (name: string, of: (run: Run) => number): string[] => [
    name,
    fixed(of(kept), 3),
    fixed(of(not), 3),
    fixed(of(not) / of(kept)),
  ];
  const rows = [
    row("mean, ms", mean),
    row("min", shortest),
    row("p50", (run) => quantile(run, 0.5)),
    row("p95", (run) => quantile(run, 0.95)),
    row("max", longest),
  ];
  const [keptCpu, notCpu] = cpu.map((seconds) => (seconds / kept.times.length) * 1e6) as [
    number,
    number,
  ];
  rows.push(["CPU of the proxy, µs", fixed(keptCpu, 0), fixed(notCpu, 0), fixed(notCpu / keptCpu)]);
  return `## ${scheme.toUpperCase()}, ${sequence} requests one after the other

${table(["", "kept", "not kept", "ratio"], rows)}`;
}

const machine = describeMachine([]);
const busy = loadavg()[0] ?? 0;
const report = `# What connection reuse saves

Made by \`npm run bench:pool\` on ${machine.date} with the ${toStamp(machine.code)}: Fetchway on Node ${machine.versions["node"]}, client, proxy and target on one
machine with ${machine.cpu}, whose load average was ${fixed(busy, 1)} before the run; kept connections compared with \`keepAlive: false\`. Compare figures of one run only.

${await compareConcurrent()}

${await compareSequence("http")}

${await compareSequence("https")}

In these two measurements, the target responds immediately. With a slower target, the handshake is a smaller part of the time.
`;
console.log(report);
const whole = each === 1000 && values.sequence === undefined;
if (whole) writeFileSync(new URL("pool.md", import.meta.url), report);
process.exit(0);
