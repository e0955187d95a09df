/**
 * Compares what clients see of one failing upstream of three, through Fetchway on Node and through nginx, in the same run:
 * `npm run bench:upstreams` writes bench/upstreams.md. Needs `nginx` in the PATH.
 */
import { type ChildProcess, execFileSync, fork, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { Agent, createServer, request, type Server } from "node:http";
import { type AddressInfo, createServer as createSocketServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { hashOfCode, toStamp } from "./code.ts";
import { createProxy } from "../runtimes/node.ts";
import { balance } from "../src/upstreams/balance.ts";

const FAULTS = ["none", "killed", "hangs", "slow", "500", "flaps"] as const;
type Fault = (typeof FAULTS)[number];

/** The number of runs of each proxy with each fault, one proxy after the other. */
const ROUNDS = 3;
const CLIENTS = 16;
const BEFORE = 1_000;
const AFTER = 5_000;
const LAST = 2_000;
const ATTEMPT_TIMEOUT = 300;

interface Figures {
  failed: number;
  perSecond: number;
  p99: number;
  recovery: number;
}

/** One upstream in a process of its own. It takes its fault as a message. */
function serveUpstream(): void {
  let fault: Fault = "none";
  let requests = 0;
  const sockets = new Set<Socket>();
  const server = createServer((req, res) => {
    requests++;
    if (fault === "hangs") return;
    if (fault === "flaps" && requests % 2 === 0) return void req.socket.destroy();
    const respond = (): void =>
      void res.writeHead(fault === "500" ? 500 : 200).end("x".repeat(100));
    if (fault === "slow") setTimeout(respond, 2_000);
    else respond();
  });
  server.keepAliveTimeout = 60_000;
  server.on("connection", (socket) => {
    sockets.add(socket);
    socket.on("close", () => sockets.delete(socket)).on("error", () => {});
  });
  process.on("message", (next: Fault) => {
    fault = next;
    if (fault !== "killed") return;
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  tellPort(server);
}

/** Fetchway in a process of its own. */
function serveFetchway(urls: string[]): void {
  const target = balance(urls);
  const proxy = createProxy({
    target,
    attemptTimeout: ATTEMPT_TIMEOUT,
    retry: { statusCodes: [500] },
  });
  tellPort(createServer(proxy.nodeHandler));
}

function tellPort(server: Server): void {
  server.listen(0, "127.0.0.1", () => process.send?.((server.address() as AddressInfo).port));
}

async function start(...args: string[]): Promise<[ChildProcess, string]> {
  const child = fork(import.meta.filename, args);
  const [port] = (await once(child, "message")) as [number];
  return [child, `http://127.0.0.1:${port}`];
}

async function startNginx(urls: string[], directory: string): Promise<[ChildProcess, string]> {
  const holder = createSocketServer().listen(0, "127.0.0.1");
  await once(holder, "listening");
  const { port } = holder.address() as AddressInfo;
  holder.close();
  await once(holder, "close");
  const servers = urls.map((url) => `server ${url.slice(7)} max_fails=5 fail_timeout=30s;`);
  const config = join(directory, "nginx.conf");
  writeFileSync(
    config,
    `daemon off; master_process off; pid ${directory}/nginx.pid; error_log /dev/null;
events { worker_connections 1024; }
http {
  access_log off; client_body_temp_path ${directory}; proxy_temp_path ${directory};
  fastcgi_temp_path ${directory}; uwsgi_temp_path ${directory}; scgi_temp_path ${directory};
  upstream hosts { random two least_conn; zone hosts 64k; ${servers.join(" ")} keepalive 32; }
  server {
    listen 127.0.0.1:${port}; keepalive_requests 1000000;
    location / {
      proxy_pass http://hosts; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_read_timeout ${ATTEMPT_TIMEOUT}ms; proxy_next_upstream error timeout http_500;
      proxy_next_upstream_tries 2;
    }
  }
}`,
  );
  const child = spawn("nginx", ["-p", directory, "-c", config], { stdio: "inherit" });
  const url = `http://127.0.0.1:${port}`;
  const agent = new Agent();
  for (let tries = 0; tries < 200; tries++) {
    if ((await ask(url, agent)) === 200) break;
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  return [child, url];
}

function ask(url: string, agent: Agent): Promise<number> {
  return new Promise((resolve) => {
    request(url, { agent }, (response) => {
      response.on("end", () => resolve(response.statusCode ?? 0)).on("error", () => resolve(0));
      response.resume();
    })
      .on("error", () => resolve(0))
      .end();
  });
}

async function measure(contender: "fetchway" | "nginx", fault: Fault): Promise<Figures> {
  const directory = mkdtempSync(join(tmpdir(), "fetchway-bench-"));
  const hosts = await Promise.all([1, 2, 3].map(() => start("upstream")));
  const urls = hosts.map(([, url]) => url);
  const [proxy, url] =
    contender === "nginx" ? await startNginx(urls, directory) : await start("fetchway", ...urls);
  const agent = new Agent({ keepAlive: true, maxSockets: CLIENTS });
  const results: { status: number; took: number; at: number }[] = [];
  let sent = 0;
  let faultAt = 0;
  async function client(): Promise<void> {
    while (sent < BEFORE + AFTER) {
      const n = sent++;
      if (n === BEFORE) {
        hosts[0]?.[0].send(fault);
        faultAt = performance.now();
      }
      const begun = performance.now();
      const status = await ask(url, agent);
      const at = performance.now();
      results[n] = { status, took: at - begun, at };
    }
  }
  await Promise.all(Array.from({ length: CLIENTS }, client));
  const after = results.slice(BEFORE);
  const last = after.slice(-LAST);
  const sorted = last.map(({ took }) => took).toSorted((a, b) => a - b);
  const bad = after.filter(({ status, took }) => status !== 200 || took >= ATTEMPT_TIMEOUT);
  const figures: Figures = {
    failed: after.filter(({ status }) => status !== 200).length,
    perSecond: (1_000 * last.length) / ((last.at(-1)?.at ?? 0) - (last[0]?.at ?? 0)),
    p99: sorted[Math.floor(sorted.length * 0.99)] ?? 0,
    recovery: Math.max(0, ...bad.map(({ at }) => at - faultAt)),
  };
  agent.destroy();
  for (const [child] of [...hosts, [proxy] as const]) child.kill();
  rmSync(directory, { recursive: true });
  return figures;
}

/** Returns the medians of the rounds, and the sum of their failures. */
function combine(rounds: readonly Figures[]): Figures {
  const median = (of: (figures: Figures) => number): number =>
    rounds.map(of).toSorted((a, b) => a - b)[rounds.length >> 1] ?? NaN;
  return {
    failed: rounds.reduce((sum, each) => sum + each.failed, 0),
    perSecond: median((each) => each.perSecond),
    p99: median((each) => each.p99),
    recovery: median((each) => each.recovery),
  };
}

async function main(): Promise<void> {
  const found = spawnSync("nginx", ["-v"], { encoding: "utf8" }).stderr.trim().split("/")[1] ?? "";
  const rows: string[] = [];
  for (const fault of FAULTS) {
    const rounds: Record<"fetchway" | "nginx", Figures[]> = { fetchway: [], nginx: [] };
    for (let round = 0; round < ROUNDS; round++) {
      for (const contender of ["fetchway", "nginx"] as const) {
        rounds[contender].push(await measure(contender, fault));
      }
    }
    for (const contender of ["fetchway", "nginx"] as const) {
      const { failed, perSecond, p99, recovery } = combine(rounds[contender]);
      const cells = [
        fault,
        contender,
        failed,
        Math.round(perSecond),
        p99.toFixed(1),
        Math.round(recovery),
      ];
      rows.push(`| ${cells.join(" | ")} |`);
      console.log(rows.at(-1));
    }
  }
  writeFileSync(
    new URL("upstreams.md", import.meta.url),
    `# One failing upstream of three

Made by \`npm run bench:upstreams\` with the ${toStamp(hashOfCode())}: Fetchway on Node ${process.versions.node} and nginx ${found}, one process each, 2 cores;
clients, proxy and upstreams on one machine. ${CLIENTS} clients send GET requests; after ${BEFORE} of them, one upstream fails,
and ${AFTER} more follow. Both proxies leave an attempt after ${ATTEMPT_TIMEOUT} ms, try one other upstream, also after a 500,
and choose by two choices. Compare figures of one run only.

- *failed*: requests after the fault whose status was not 200, of ${ROUNDS} rounds together.
- *per second* and *p99*: of the last ${LAST} requests, the median of the rounds.
- *recovery*, also the median: milliseconds from the fault to the end of the last request that failed or took ${ATTEMPT_TIMEOUT} ms or more.

| fault | proxy | failed | per second | p99, ms | recovery, ms |
| ----- | ----- | -----: | ---------: | ------: | -----------: |
${rows.join("\n")}
`,
  );
  execFileSync(join(import.meta.dirname, "../node_modules/.bin/oxfmt"), ["bench/upstreams.md"], {
    cwd: join(import.meta.dirname, ".."),
  });
}

const [role, ...args] = process.argv.slice(2);
if (role === "upstream") serveUpstream();
else if (role === "fetchway") serveFetchway(args);
else await main();
