/**
 * `--workers`: several processes that share one port. `npm test` sends few requests over few replacements,
 * `npm run test:load` many.
 */
import { once } from "node:events";
import { mkdirSync, mkdtempSync, renameSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { Agent, type IncomingMessage, request, type ServerResponse } from "node:http";
import { connect as connectHttp2 } from "node:http2";
import { connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { connect as connectTls, type TLSSocket } from "node:tls";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { WebSocket, WebSocketServer } from "ws";
import { shareLimits } from "../../command/limits/clientlimits.ts";
import { clientLimitSchema } from "../../command/flags/commandoptions.ts";
import { defaultsOf } from "../../src/schema/schema.ts";
import type { Condition } from "../../command/status/condition.ts";
import { Heartbeat } from "../../command/workers/heartbeat.ts";
import { makeCertificate } from "../helpers/certificate.ts";
import { Command, command, programs, upstream } from "./_command.ts";
import { listen } from "../helpers/serve.ts";
import { patience, pause, until, within } from "../helpers/wait.ts";

const isLarge = process.env["MODE"] === "load";
const REQUESTS = isLarge ? 10_000 : 1000;
const REPLACEMENTS = isLarge ? 20 : 3;

let folder = "";
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "fetchway-"));
});
afterAll(() => rmSync(folder, { recursive: true }));

/** Requests a URL, and resolves to the status, the body and `Connection`. */
async function ask(url: string, agent?: Agent, method = "GET"): Promise<string> {
  const sent = request(url, { agent: agent ?? false, method });
  sent.end(method === "POST" ? "body" : undefined);
  const [response] = (await once(sent, "response")) as [IncomingMessage];
  return `${response.statusCode} ${await text(response)} ${response.headers.connection}`;
}

/** Requests a URL on a new connection, and resolves when the response begins. */
async function begin(url: string): Promise<IncomingMessage> {
  const sent = request(url, { agent: false }).on("error", () => {});
  const [response] = (await once(sent.end(), "response")) as [IncomingMessage];
  return response;
}

function isRunning(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

interface ShownTraffic {
  readonly name: string;
  readonly requests: number;
  readonly failed: number;
  readonly condition: Condition;
}

interface Shown {
  readonly overall: object;
  readonly routes: readonly ShownTraffic[];
  readonly total: { readonly requests: number };
  readonly requests: readonly { readonly path: string; readonly status: number }[];
  readonly upstreams: readonly (ShownTraffic & { readonly health?: string })[];
  readonly connections: { readonly created: number };
  readonly workers: {
    readonly running: number;
    readonly retired: number;
    readonly restarts: number;
    readonly pids: readonly number[];
  };
}

interface Started {
  readonly proxy: Command;
  readonly origin: string;
  readonly port: number;
  readonly admin: string;
  /** Returns the pids of the workers that take new connections. */
  readonly pids: () => Promise<readonly number[]>;
  readonly stats: () => Promise<Shown>;
  /** Replaces the workers once. */
  readonly replace: () => Promise<void>;
}

/** Starts the command with workers and a status page, and resolves when all workers are ready. */
async function startWorkers(flags: string, count = 2): Promise<Started> {
  const proxy = command(`${flags} --port 0 --workers ${count} --admin 0`);
  const origin = await proxy.origin();
  const [, admin = ""] = await proxy.says(/status page: (\S+)\//);
  const stats = async (): Promise<Shown> => (await (await fetch(`${admin}/stats`)).json()) as Shown;
  const countRounds = (): number => proxy.stdout.split("workers have been replaced").length;
  return {
    proxy,
    origin,
    port: Number(new URL(origin).port),
    admin,
    stats,
    pids: async () => (await stats()).workers.pids,
    replace: async () => {
      const before = countRounds();
      proxy.child.kill("SIGHUP");
      await until(() => countRounds() > before || proxy.exited, "the replacement");
    },
  };
}

/** The time limit of polls of the status page: it does not wait long for a busy worker, so its counters may be out of date. */
const limit = { timeout: patience };

test("new connections go to the workers in turn, and the counters are added up", async () => {
  upstream.handler = (_, res) => res.end("whole");
  const { proxy, origin, admin, stats } = await startWorkers(`${upstream.url} --log off`, 3);
  const answers = new Set(
    await Promise.all(Array.from({ length: 30 }, (_, i) => ask(`${origin}/${i}`))),
  );
  expect([...answers]).toEqual(["200 whole close"]);
  await expect.poll(async () => (await stats()).total.requests, limit).toBe(30);
  const { workers, requests, upstreams, connections } = await stats();
  expect(upstreams[0]?.requests).toBe(30);
  expect(requests.map(({ path }) => Number(path.slice(1))).toSorted((a, b) => a - b)).toEqual(
    Array.from({ length: 30 }, (_, i) => i),
  );
  expect(workers).toMatchObject({ running: 3, retired: 0, restarts: 0 });
  expect(new Set(workers.pids).size).toBe(3);
  expect(workers.pids).not.toContain(proxy.child.pid);
  // Each worker has its own connections to the upstream.
  expect(connections.created).toBeGreaterThanOrEqual(3);

  const metrics = await (await fetch(`${admin}/metrics`)).text();
  expect(metrics).toMatch(/^http_server_request_duration_seconds_count\{[^}]+\} 30$/m);
  expect(metrics).toContain('fetchway_workers{state="running"} 3\n');
  const { body } = await fetch(`${admin}/events`);
  const reader = (body as ReadableStream<Uint8Array>).getReader();
  const event = new TextDecoder().decode((await reader.read()).value);
  expect(JSON.parse(event.slice(6))).toMatchObject({ total: { requests: 30 }, ready: true });
  await reader.cancel();

  proxy.child.kill("SIGUSR1");
  await until(() => proxy.stderr.includes("requests: 30"), "the counters");
  proxy.child.kill("SIGTERM");
  expect(await within(proxy.exit, "the exit")).toBe(0);
});

test("SIGUSR1 during the start of a worker does not leave its counters out of what later signals print", async () => {
  upstream.handler = (req, res) => res.end(req.headers["x-pid"]);
  const flag = join(folder, "flag");
  const preload = join(folder, "preload.mjs");
  writeFileSync(
    preload,
    `import cluster from "node:cluster";
    import { existsSync } from "node:fs";
    const isHeld = () => cluster.isWorker && existsSync(${JSON.stringify(flag)});
    if (isHeld()) console.error("held");
    while (isHeld()) await new Promise((resolve) => setTimeout(resolve, 10));`,
  );
  const file = join(folder, "pid.mjs");
  const headers = '{ "x-pid": String(process.pid) }';
  writeFileSync(file, `export default { target: "${upstream.url}", headers: ${headers} };`);
  const line = `--config ${file} --log off --port 0 --workers 2`;
  const proxy = command(line, "--import", preload);
  const origin = await proxy.origin();
  const victim = await ask(origin);
  const other = await ask(origin);
  writeFileSync(flag, "");
  process.kill(Number(victim.split(" ")[1]), "SIGKILL");
  await until(() => proxy.stderr.includes("held"), "the new worker");
  // A busy worker may answer too late for the next lines.
  const print = (): string => {
    proxy.child.kill("SIGUSR1");
    return proxy.stderr;
  };
  await expect.poll(print, limit).toContain("requests: 1,");
  rmSync(flag);
  let count = 1;
  do count++;
  while ((await ask(origin)) === other);
  await expect.poll(print, limit).toContain(`requests: ${count},`);
});

test("the status page adds up the routes of all workers, and shows which route fails, why and since when", async () => {
  upstream.handler = (_, res) => res.end("whole");
  const before = Date.now();
  const { origin, admin, stats } = await startWorkers(
    `${upstream.url} --log off --route /api=http://127.0.0.1:1`,
  );
  const paths = Array.from({ length: 20 }, (_, i) => (i % 2 === 0 ? "/api/x" : "/y"));
  await Promise.all(paths.map((path) => ask(origin + path)));
  await expect.poll(async () => (await stats()).total.requests, limit).toBe(20);
  const { routes, overall } = await stats();
  const byName = Object.fromEntries(routes.map((each) => [each.name, each]));
  expect(byName["/"]).toMatchObject({ requests: 10, failed: 0, condition: { state: "up" } });
  const { requests, failed, condition } = byName["/api"] ?? {};
  expect({ requests, failed, state: condition?.state, reason: condition?.reason }).toEqual({
    requests: 10,
    failed: 10,
    state: "failing",
    reason: "100 % of the last minute failed, last: connection_refused (is it running?)",
  });
  expect(condition?.since).toBeGreaterThanOrEqual(before);
  expect(overall).toEqual({ state: "failing", reasons: ["50 % of the last minute are 5xx"] });
  const metrics = await (await fetch(`${admin}/metrics`)).text();
  const counts = metrics.match(/^http_server_request_duration_seconds_count\{.*$/gm)?.toSorted();
  expect(counts).toEqual([
    'http_server_request_duration_seconds_count{http_request_method="GET",http_route="/",http_response_status_code="200"} 10',
    'http_server_request_duration_seconds_count{http_request_method="GET",http_route="/api",http_response_status_code="502",error_type="connection_refused"} 10',
  ]);
});

test("the status page shows an upstream that the workers have ejected with the reason, and counts it as down", async () => {
  upstream.handler = (_, res) => res.end("whole");
  const dead = "http://127.0.0.1:1";
  const { origin, admin, stats } = await startWorkers(
    `${upstream.url} ${dead} --policy round_robin --log off`,
  );
  // Each worker gets half of the connections. Until it has ejected the dead upstream, it sends half of its requests there.
  for (let i = 0; i < 40; i++) expect(await ask(origin)).toBe("200 whole close");
  await expect.poll(async () => (await stats()).total.requests, limit).toBe(40);
  const { upstreams, overall } = await stats();
  expect(upstreams.find(({ name }) => name === dead)?.condition).toEqual({
    state: "ejected",
    reason: "5 failures in a row, last: connection_refused",
    since: expect.any(Number) as number,
  });
  expect(overall).toEqual({ state: "degraded", reasons: ["1 of 2 upstreams down"] });
  expect(await (await fetch(`${admin}/metrics`)).text()).toContain(
    `fetchway_upstream_up{upstream="${dead}"} 0\n`,
  );
});

test("no request fails while the workers are replaced", async () => {
  upstream.handler = (req, res) => req.resume().on("end", () => res.end("whole"));
  const { proxy, origin, replace, stats } = await startWorkers(`${upstream.url} --log off`);
  const answers = new Map<string, number>();
  let sent = 0;
  let isDone = false;
  /** Sends one request after the other. @param wait returns the milliseconds to wait before the next one */
  async function send(agent: Agent | undefined, method: string, wait: () => number): Promise<void> {
    while (!isDone) {
      sent++;
      const answer = await ask(origin, agent, method).catch((error: unknown) => String(error));
      answers.set(answer, (answers.get(answer) ?? 0) + 1);
      const ms = wait();
      if (ms > 0) await pause(ms);
    }
  }
  const keepAlive = (): Agent => new Agent({ keepAlive: true, maxSockets: 1 });
  const agents = Array.from({ length: 6 }, keepAlive);
  const never = (): number => 0;
  const clients = [
    // These clients send each request on a new connection.
    ...["GET", "POST", "GET"].map((method) => send(undefined, method, () => 1)),
    // These clients keep their connections, some without pauses, and some with pauses in which the connection is idle.
    ...["GET", "POST"].map((method, i) => send(agents[i], method, never)),
    ...["GET", "POST", "GET", "POST"].map((method, i) =>
      send(agents[i + 2], method, () => Math.random() * (isLarge ? 1500 : 300)),
    ),
  ];
  const part = REQUESTS / REPLACEMENTS;
  for (let round = 1; round <= REPLACEMENTS; round++) {
    await replace();
    await until(() => sent >= part * round, "the requests", 120_000);
  }
  isDone = true;
  await Promise.all(clients);
  for (const agent of agents) agent.destroy();
  if (isLarge) console.log(`${sent} requests over ${REPLACEMENTS} replacements:`, answers);
  // No connection was reset or refused, and each status was 200.
  expect([...answers.keys()].toSorted()).toEqual(["200 whole close", "200 whole keep-alive"]);
  expect(sent).toBeGreaterThanOrEqual(REQUESTS);
  await expect.poll(async () => (await stats()).total.requests, limit).toBe(sent);
  proxy.child.kill("SIGTERM");
  expect(await within(proxy.exit, "the exit")).toBe(0);
  expect(proxy.stderr).toBe("");
}, 180_000);

test("the status page shows the health of upstreams as the running workers see it, not as ended workers saw it", async () => {
  upstream.handler = (_, res) => res.end("whole");
  const targets = `${upstream.url} http://127.0.0.1:1 --policy round_robin --log off`;
  const { origin, replace, stats } = await startWorkers(targets);
  const healthOf = async (): Promise<(string | undefined)[]> => {
    const { upstreams } = await stats();
    return upstreams.toSorted((a, b) => a.name.length - b.name.length).map(({ health }) => health);
  };
  // Each worker detects by itself that one upstream is dead.
  let sent = 0;
  for (; sent < 60 && (await healthOf())[0] !== "ejected"; sent++) {
    expect(await ask(`${origin}/`)).toBe("200 whole close");
  }
  await expect.poll(async () => (await stats()).total.requests, limit).toBe(sent);
  expect(await healthOf()).toEqual(["ejected", "up"]);
  const attemptsOf = async (): Promise<
    (readonly [name: string, requests: number, failed: number])[]
  > =>
    (await stats()).upstreams.map(
      ({ name, requests, failed }) => [name, requests, failed] as const,
    );
  const before = await attemptsOf();
  const [, requests = 0, failed] = before.find(([name]) => name === "http://127.0.0.1:1") ?? [];
  // A worker ejects the dead upstream after five failed requests, and sends all later requests to the other upstream.
  expect(requests).toBeGreaterThanOrEqual(5);
  expect(failed).toBe(requests);
  await replace();
  while ((await stats()).workers.retired > 0);
  await expect.poll(healthOf, limit).toEqual(["up", "up"]);
  expect(new Set(await attemptsOf())).toEqual(new Set(before));
});

test("a connection that is idle when its worker retires gets one more response", async () => {
  upstream.handler = (_, res) => res.end("whole");
  const { proxy, origin, port, replace, stats } = await startWorkers(`${upstream.url} --log off`);
  const agents = Array.from({ length: 4 }, () => new Agent({ keepAlive: true }));
  for (const agent of agents) expect(await ask(origin, agent)).toBe("200 whole keep-alive");
  // Open a connection on which the worker receives no byte before it retires.
  const silent = connect(port, "127.0.0.1");
  await once(silent, "connect");
  await replace();
  expect((await stats()).workers).toMatchObject({ running: 2, retired: 2 });
  // Wait longer than an idle connection stays open when the whole command stops.
  await pause(700);
  for (const agent of agents) expect(await ask(origin, agent)).toBe("200 whole close");
  silent.write("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
  expect(await within(text(silent), "the answer")).toMatch(
    /^HTTP\/1\.1 200 [^]*\r\nconnection: close/i,
  );
  // A retired worker ends when its last connection is closed.
  while ((await stats()).workers.retired > 0);
  for (const agent of agents) agent.destroy();
  expect(proxy.stderr).toBe("");
});

test("a slow response and a WebSocket survive replacements, and the command waits for their end when it stops", async () => {
  let held: ServerResponse | undefined;
  upstream.handler = (_, res) => (held = res).write("begun, ");
  const sockets = new WebSocketServer({ port: 0, host: "127.0.0.1" });
  sockets.on("connection", (socket) => socket.on("message", (data) => socket.send(data)));
  if (sockets.address() === null) await once(sockets, "listening");
  const socketTarget = (sockets.address() as { port: number }).port;
  const { proxy, origin, port, admin, replace } = await startWorkers(
    `${upstream.url} --route /socket=${socketTarget}`,
  );
  const answer = ask(origin);
  const socket = new WebSocket(`ws://127.0.0.1:${port}/socket`);
  await once(socket, "open");
  await until(() => held !== undefined, "the request at the upstream");
  await replace();
  await replace();
  const echo = async (): Promise<string> => {
    const answered = once(socket, "message");
    socket.send("hello");
    return String(((await within(answered, "the echo")) as [Buffer])[0]);
  };
  expect(await echo()).toBe("hello");
  expect((await fetch(`${admin}/readyz`)).status).toBe(200);
  proxy.child.kill("SIGTERM");
  await proxy.says(/stopping: 1 request and 1 tunnel still running/);
  expect((await fetch(`${admin}/readyz`)).status).toBe(503);
  expect(await echo()).toBe("hello");
  held?.end("whole");
  expect(await answer).toBe("200 begun, whole close");
  socket.close();
  expect(await within(proxy.exit, "the exit")).toBe(0);
  sockets.close();
});

test("the requests that all workers cut at the deadline are added up, and change the exit code", async () => {
  upstream.handler = (_, res) => res.write("begun");
  const { proxy, origin } = await startWorkers(`${upstream.url} --log off --stop-timeout 300`);
  // At the deadline, a response that has not begun would become 503.
  const begun = await Promise.all(Array.from({ length: 4 }, () => begin(origin)));
  const answers = Promise.allSettled(begun.map((response) => text(response)));
  proxy.child.kill("SIGTERM");
  expect(await within(proxy.exit, "the exit")).toBe(1);
  expect(proxy.stderr).toBe(
    "fetchway: stopped after 300 ms: 4 requests cut off; a longer --stop-timeout gives them more time\n",
  );
  expect((await answers).map(({ status }) => status)).toEqual(Array(4).fill("rejected"));
});

test("a second signal ends all workers immediately", async () => {
  let running = 0;
  upstream.handler = (_, res) => res.write(`${++running}`);
  const { proxy, origin, pids } = await startWorkers(
    `${upstream.url} --log off --stop-timeout=60000`,
  );
  const workers = await pids();
  const answers = Promise.allSettled([ask(origin), ask(origin)]);
  await until(() => running === 2, "the requests at the upstream");
  proxy.child.kill("SIGTERM");
  await proxy.says(/stopping: 2 requests/);
  await until(() => proxy.exited || !proxy.child.kill("SIGINT"), "the exit");
  expect(await proxy.exit).toBe(130);
  expect(proxy.stderr).toMatch(/^fetchway: stopped after \d+ ms: 2 requests cut off; .+\n$/);
  for (const pid of workers) expect(() => process.kill(pid, 0)).toThrow("ESRCH");
  await answers;
});

test("a worker that does not answer is killed after the deadline", async () => {
  const file = join(folder, "hangs.mjs");
  const hook = 'onRequest() { console.error("hangs"); for (;;); }';
  writeFileSync(file, `export default { target: "${upstream.url}", ${hook} };`);
  const { proxy, origin, pids } = await startWorkers(
    `--config ${file} --log off --stop-timeout 100`,
  );
  const workers = await pids();
  const answer = ask(origin).catch(() => "lost");
  await until(() => proxy.stderr.includes("hangs"), "the request");
  proxy.child.kill("SIGTERM");
  expect(await within(proxy.exit, "the exit")).toBe(1);
  expect(proxy.stderr).toBe(
    "hangs\nfetchway: workers that did not answer were killed with all their connections\n",
  );
  expect(await answer).toBe("lost");
  expect(workers.filter(isRunning)).toEqual([]);
});

test("the workers end if their parent process ends", async () => {
  const { proxy, pids } = await startWorkers(`${upstream.url} --log off`);
  const workers = await pids();
  expect(workers.filter(isRunning)).toHaveLength(2);
  await proxy.kill();
  await until(() => workers.filter(isRunning).length === 0, "the end of the workers");
});

test("if too many replaced workers still run, --stop-timeout applies to the oldest of them", async () => {
  let running = 0;
  upstream.handler = (_, res) => res.write(`${++running}`);
  const { proxy, origin, replace, stats } = await startWorkers(
    `${upstream.url} --log off --stop-timeout 0`,
  );
  const ends: string[] = [];
  for (let round = 1; round <= 3; round++) {
    // On each of the two workers, begin a response that does not end.
    for (let i = 0; i < 2; i++) {
      void ask(origin).then(
        () => ends.push("complete"),
        () => ends.push("cut"),
      );
    }
    await until(() => running === 2 * round, "the requests at the upstream");
    expect(ends).toEqual([]);
    await replace();
  }
  await until(() => ends.length === 2, "the cut responses");
  await until(() => proxy.stderr.split("\n").length === 3, "the notices");
  expect(new Set(proxy.stderr.trimEnd().split("\n"))).toEqual(
    new Set([
      "fetchway: 1 request of a replaced worker cut off: too many replaced workers were still running",
    ]),
  );
  expect(ends).toEqual(["cut", "cut"]);
  const expected = { running: 2, retired: 4 };
  await expect.poll(async () => (await stats()).workers, limit).toMatchObject(expected);
});

test("a killed worker is replaced, and the others serve meanwhile", async () => {
  upstream.handler = (_, res) => res.end("whole");
  const { proxy, origin, stats, pids } = await startWorkers(`${upstream.url} --log off`);
  const [first = 0, second = 0] = await pids();
  const answers = new Set<string>();
  for (const victim of [first, second]) {
    process.kill(victim, "SIGKILL");
    await until(() => proxy.stderr.includes(`worker ${victim} has ended (SIGKILL)`), "the report");
    let state = (await stats()).workers;
    while (state.running < 2) {
      answers.add(await ask(origin));
      state = (await stats()).workers;
    }
    expect(state.pids).not.toContain(victim);
  }
  for (let i = 0; i < 10; i++) answers.add(await ask(origin));
  expect([...answers]).toEqual(["200 whole close"]);
  // The counters of the killed workers may be missing.
  const countRequests = async (): Promise<number> => (await stats()).total.requests;
  await expect.poll(countRequests, limit).toBeGreaterThanOrEqual(10);
  const { workers } = await stats();
  expect(workers).toMatchObject({ running: 2, restarts: 2 });
  expect(new Set([...workers.pids, first, second]).size).toBe(4);
  // Each of the two workers died once, so its replacement starts immediately or after the first, shortest delay.
  await expect
    .poll(() => proxy.stderr.match(/another one starts (?:now|in 100 ms)\n/g))
    .toHaveLength(2);
});

test("a worker that dies repeatedly is restarted after growing delays, also if it does not start", async () => {
  upstream.handler = (_, res) => res.end("whole");
  const flag = join(folder, "flag");
  const file = join(folder, "dies.mjs");
  writeFileSync(
    file,
    `import { existsSync } from "node:fs";
    if (existsSync(${JSON.stringify(flag)})) throw new Error("not now");
    export default { target: "${upstream.url}" };`,
  );
  const { proxy, origin, pids } = await startWorkers(`--config ${file} --log off`);
  const [stable] = await pids();
  const killOther = async (): Promise<void> => {
    let found: readonly number[] = [];
    while (found.length < 2) found = await pids();
    process.kill(found.find((pid) => pid !== stable) ?? NaN, "SIGKILL");
  };
  for (const delay of [100, 200]) {
    await killOther();
    const line = `has ended (SIGKILL); another one starts in ${delay} ms\n`;
    await until(() => proxy.stderr.includes(line), line);
  }
  let found: readonly number[] = [];
  while (found.length < 2) found = await pids();
  writeFileSync(flag, "");
  await killOther();
  await until(() => proxy.stderr.includes("the next try is in 800 ms"), "the failed start");
  expect(await ask(origin)).toBe("200 whole close");
  rmSync(flag);
  do found = await pids();
  while (found.length < 2);
  await proxy.warns(
    /another one starts in 400 ms\nfetchway: dies\.mjs:2: not now\nfetchway: a worker did not start; the next try is in 800 ms\n/,
  );
});

describe("a config file", () => {
  const write = (name: string, revision: string, more = ""): string => {
    const file = join(folder, name);
    const headers = `headers: { "x-revision": "${revision}" }`;
    writeFileSync(file, `export default { target: "${upstream.url}", ${headers}, ${more} };`);
    return file;
  };

  test("when it changes, new workers read it; if it has become invalid, the old workers stay", async () => {
    upstream.handler = (req, res) => res.end(req.headers["x-revision"]);
    const file = write("reload.mjs", "1");
    const { proxy, origin, pids } = await startWorkers(`--config ${file} --log off`);
    expect(await ask(origin)).toBe("200 1 close");
    const before = await pids();
    write("reload.mjs", "2", "timeout: -1");
    await until(() => proxy.stderr.includes("did not start"), "the refusal");
    expect(proxy.stderr).toBe(
      'fetchway: reload.mjs:1: timeout: use whole milliseconds or a text such as "10s", 0 for no limit\n' +
        "fetchway: the new worker did not start: the workers stay as they are\n",
    );
    expect(await pids()).toEqual(before);
    expect(await ask(origin)).toBe("200 1 close");

    write("reload.mjs", "3", "server: { stopTimeout: 5, workerTimeout: 9000, maxConnections: 9 }");
    await proxy.says(/2 workers have been replaced: reload\.mjs has changed\n/);
    for (let i = 0; i < 4; i++) expect(await ask(origin)).toBe("200 3 close");
    await expect
      .poll(() => proxy.stderr.split("\n").slice(2))
      .toEqual([
        'fetchway: reload.mjs: server.stopTimeout: 5 is 5 ms; for seconds write "5s"',
        "fetchway: reload.mjs: server.workerTimeout has changed: restart the command for that",
        "fetchway: reload.mjs: server.stopTimeout has changed: restart the command for that",
        "",
      ]);
  });

  test("causes one warning about a doubtful value, also if it gets the value later", async () => {
    const doubt = (option: string): string => `${option}: 10 is 10 ms; for seconds write "10s"`;
    const file = write("doubt.mjs", "1", "idleTimeout: 10");
    const { proxy } = await startWorkers(`--config ${file} --log off`);
    write("doubt.mjs", "2", "idleTimeout: 10, timeout: 10");
    await proxy.warns(/ timeout: 10 is 10 ms/);
    expect(proxy.stderr.split("\n")).toEqual([
      `fetchway: doubt.mjs: ${doubt("idleTimeout")}`,
      `fetchway: doubt.mjs: ${doubt("timeout")}`,
      "",
    ]);
  });

  test("a change of its `stopTimeout` applies to no worker before a restart of the command", async () => {
    let running = 0;
    upstream.handler = (_, res) => res.write(`${++running}`);
    const file = write("stop.mjs", "1", "server: { stopTimeout: 1 }");
    const { proxy, origin } = await startWorkers(`--config ${file} --log off`);
    write("stop.mjs", "2", "server: { stopTimeout: 60_000 }");
    await proxy.says(/2 workers have been replaced/);
    const answer = ask(origin).catch(() => {});
    await until(() => running === 1, "the request at the upstream");
    proxy.child.kill("SIGTERM");
    expect(await within(proxy.exit, "the exit")).toBe(1);
    await answer;
    expect(proxy.stderr).toContain("stopped after 1 ms: 1 request cut off");
    expect(proxy.stderr).not.toContain("killed");
  });

  test("a change of its `admin` does not stop the counts on the status page", async () => {
    upstream.handler = (_, res) => res.end("whole");
    const file = write("admin.mjs", "1", "server: { workers: 2, port: 0, admin: 0 }");
    const proxy = command(`--config ${file} --log off`);
    const origin = await proxy.origin();
    const [, admin = ""] = await proxy.says(/status page: (\S+)\//);
    write("admin.mjs", "2", "server: { workers: 2, port: 0 }");
    await proxy.warns(/server\.admin has changed: restart the command for that\n/);
    expect(await ask(origin)).toBe("200 whole close");
    const countRequests = async (): Promise<number> =>
      ((await (await fetch(`${admin}/stats`)).json()) as Shown).total.requests;
    await expect.poll(countRequests, limit).toBe(1);
  });

  test("can set the number of workers", async () => {
    upstream.handler = (_, res) => res.end("whole");
    const file = write("count.mjs", "1", 'server: { workers: 2, port: 0, log: "off" }');
    const proxy = command(`--config ${file}`);
    await proxy.says(/^ {2}2 workers\n/m);
    expect(await ask(await proxy.origin())).toBe("200 whole close");
  });

  test("an invalid file ends the command with one error", async () => {
    const file = write("wrong.mjs", "1", "import.meta.nothing.at.all");
    const stderr = await command(`--config ${file} --workers 2`).refusal();
    expect(stderr.trimEnd().split("\n")).toHaveLength(1);
  });

  test("a file that fails only in a worker ends the command", async () => {
    const file = join(folder, "inworker.mjs");
    writeFileSync(
      file,
      `import cluster from "node:cluster";
      if (cluster.isWorker) throw new Error("not here");
      export default { target: "${upstream.url}" };`,
    );
    expect(await command(`--config ${file} --workers 2`).refusal()).toBe(
      "fetchway: inworker.mjs:2: not here\n",
    );
  });
});

test("messages that the code of a config file sends to the parent process end neither a worker nor the parent", async () => {
  upstream.handler = (_, res) => res.end("whole");
  const file = join(folder, "sends.mjs");
  const sent = [null, "ready", 1, { type: "report" }, { type: "cut" }, { type: "closed" }];
  writeFileSync(
    file,
    `if (process.send) for (const each of ${JSON.stringify(sent)}) process.send(each);
    export default { target: "${upstream.url}" };`,
  );
  const { proxy, origin, stats } = await startWorkers(`--config ${file} --log off`);
  expect(await ask(origin)).toBe("200 whole close");
  expect((await stats()).workers).toMatchObject({ running: 2, retired: 0, restarts: 0 });
  proxy.child.kill("SIGTERM");
  expect(await within(proxy.exit, "the exit")).toBe(0);
  expect(proxy.stderr).toBe("");
});

test("a worker that has just ended does not prevent the end of the command", async () => {
  const file = join(folder, "ends.mjs");
  // The parent process calls this listener before its own listener for SIGTERM. The listener here kills the workers and blocks,
  // so that the parent stops before it has noticed that they are dead.
  writeFileSync(
    file,
    `import cluster from "node:cluster";
    if (cluster.isPrimary) process.on("SIGTERM", () => {
      for (const worker of Object.values(cluster.workers)) worker.process.kill("SIGKILL");
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 200);
    });
    export default { target: "${upstream.url}" };`,
  );
  const { proxy } = await startWorkers(`--config ${file} --log off`);
  proxy.child.kill("SIGTERM");
  expect(await within(proxy.exit, "the exit")).toBe(0);
  expect(proxy.stderr).toBe("");
});

test("a replaced worker that does not answer is killed", async () => {
  const file = join(folder, "hangs.mjs");
  const hook = 'onRequest() { console.error("hangs"); for (;;); }';
  writeFileSync(file, `export default { target: "${upstream.url}", ${hook} };`);
  const { proxy, origin, pids, replace, stats } = await startWorkers(
    `--config ${file} --log off --stop-timeout 0`,
  );
  const before = await pids();
  const answer = ask(origin).catch(String);
  await until(() => proxy.stderr.includes("hangs"), "the request");
  await replace();
  expect(await within(answer, "the end of the connection")).toMatch("socket hang up");
  await until(() => proxy.stderr.includes("which was replaced"), "the notice");
  const [, killed] = /worker (\d+), which was replaced, does not answer/.exec(proxy.stderr) ?? [];
  expect(before).toContain(Number(killed));
  await until(() => !isRunning(Number(killed)), "the end of the process");
  await expect
    .poll(async () => (await stats()).workers, limit)
    .toMatchObject({ running: 2, retired: 0, restarts: 0 });
});

test("a worker that hangs is replaced, and killed if it still hangs later", async () => {
  const file = join(folder, "hangs.mjs");
  const hook = 'onRequest({ path }) { if (path === "/hang") for (;;); }';
  writeFileSync(file, `export default { target: "${upstream.url}", ${hook} };`);
  const { proxy, origin, pids, stats } = await startWorkers(
    `--config ${file} --log off --stop-timeout 0 --worker-timeout 2000`,
  );
  const before = await pids();
  const answer = ask(`${origin}/hang`).catch(String);
  await until(() => proxy.stderr.includes("another one takes its place"), "the notice");
  const [, silent] = /worker (\d+) does not answer/.exec(proxy.stderr) ?? [];
  expect(before).toContain(Number(silent));
  while ((await stats()).workers.restarts === 0) await pause(20);
  expect(await pids()).toHaveLength(2);
  expect(await pids()).not.toContain(Number(silent));
  expect(await within(answer, "the end of the connection")).toMatch("socket hang up");
  await until(() => !isRunning(Number(silent)), "the end of the process");
  expect(await ask(origin)).toMatch(/^200/);
});

test("a worker that hangs for a while is replaced also if a new one does not start at first", async () => {
  upstream.handler = (_, res) => res.write("begun");
  const flag = join(folder, "flag");
  const file = join(folder, "hangs.mjs");
  writeFileSync(
    file,
    `import { existsSync } from "node:fs";
    const isSet = () => existsSync(${JSON.stringify(flag)});
    if (isSet()) throw new Error("not now");
    export default { target: "${upstream.url}", onRequest() { while (isSet()); } };`,
  );
  const { proxy, origin, pids, stats } = await startWorkers(
    `--config ${file} --log off --stop-timeout 60000 --worker-timeout 2000`,
  );
  writeFileSync(flag, "");
  const response = begin(origin);
  await proxy.warns(/a worker did not start; the next try is in 100 ms\n/);
  const [, silent] = /worker (\d+) does not answer/.exec(proxy.stderr) ?? [];
  rmSync(flag);
  await within(response, "the response");
  // The other worker also counts as hung if the machine is so busy that its event loop does not run.
  const isReplaced = async (): Promise<boolean> => {
    const { running, restarts } = (await stats()).workers;
    return running === 2 && restarts > 0;
  };
  await expect.poll(isReplaced, limit).toBe(true);
  expect(await pids()).not.toContain(Number(silent));
});

test("an early death does not delay the replacement of a later worker that ran stably and then hangs", async () => {
  const flag = join(folder, "stable");
  const file = join(folder, "stable.mjs");
  // With the flag, the parent's clock is past the time within which a death is early.
  writeFileSync(
    file,
    `import cluster from "node:cluster";
    import { existsSync } from "node:fs";
    const isSet = () => existsSync(${JSON.stringify(flag)});
    if (cluster.isWorker && isSet()) throw new Error("not now");
    const now = performance.now.bind(performance);
    if (cluster.isPrimary) performance.now = () => now() + (isSet() ? 60_000 : 0);
    export default { target: "${upstream.url}", onRequest() { while (isSet()); } };`,
  );
  const { proxy, origin, pids, stats } = await startWorkers(
    `--config ${file} --log off --worker-timeout 2000`,
  );
  const [victim = 0] = await pids();
  process.kill(victim, "SIGKILL");
  await expect
    .poll(async () => (await stats()).workers, limit)
    .toMatchObject({ running: 2, restarts: 1 });
  writeFileSync(flag, "");
  // New connections go to the workers in turn, so both of them hang.
  for (let i = 0; i < 2; i++) ask(origin).catch(() => {});
  const first = "the next try is in 100 ms\n";
  await until(
    () => proxy.stderr.split(first).length === 3,
    "the first try for each of the workers",
  );
});

test("a worker that hangs ends soon after its parent", async () => {
  const file = join(folder, "hangs.mjs");
  const hook = 'onRequest() { console.error("hangs"); for (;;); }';
  writeFileSync(file, `export default { target: "${upstream.url}", ${hook} };`);
  const { proxy, origin, pids } = await startWorkers(`--config ${file} --log off`);
  const workers = await pids();
  ask(origin).catch(() => {});
  await until(() => proxy.stderr.includes("hangs"), "the request");
  await proxy.kill();
  await until(() => workers.filter(isRunning).length === 0, "the end of the workers");
});

test("a worker's silence counts only while the parent's event loop runs on time", () => {
  const silent: string[] = [];
  const heartbeat = new Heartbeat<string>(3000, (key) => silent.push(key));
  heartbeat.beat("hung");
  heartbeat.beat("busy");
  let now = performance.now();
  const look = (after: number): void => heartbeat.check((now += after));
  look(1000);
  look(1000);
  look(1000);
  // The timer fires late, as after a suspension of the machine.
  look(60_000);
  for (let i = 0; i < 2; i++) look(1000);
  heartbeat.beat("busy");
  expect(silent).toEqual([]);
  look(1000);
  look(1000);
  expect(silent).toEqual(["hung"]);
  heartbeat.forget("busy");
});

test("even with a short --worker-timeout, a heartbeat may come just after a check", () => {
  const silent: string[] = [];
  const heartbeat = new Heartbeat<string>(100, (key) => silent.push(key));
  heartbeat.beat("hung");
  heartbeat.beat("late");
  let now = performance.now();
  const look = (): void => heartbeat.check((now += 1000));
  look();
  look();
  expect(silent).toEqual([]);
  heartbeat.beat("late");
  look();
  expect(silent).toEqual(["hung"]);
  heartbeat.forget("late");
});

test("a port that is in use ends the command with one error", async () => {
  const other = createServer();
  const port = await listen(other);
  const stderr = await command(`${upstream.url} --port ${port} --workers 3`).refusal();
  expect(stderr).toBe(
    `fetchway: port ${port} is in use: use --port with another, or 0 for a free one\n`,
  );
  other.close();
});

test("without --workers and with --workers 1, there is no worker", async () => {
  upstream.handler = (_, res) => res.end("whole");
  for (const flag of ["", "--workers 1"]) {
    const proxy = command(`${upstream.url} --log off --port 0 --admin 0 ${flag}`);
    expect(await ask(await proxy.origin())).toBe("200 whole close");
    const [, admin = ""] = await proxy.says(/status page: (\S+)\//);
    expect(await (await fetch(`${admin}/stats`)).json()).not.toHaveProperty("workers");
    expect(proxy.stdout).not.toContain("workers");
  }
});

test.each(["0", "many", "1025"])("--workers=%s is refused", async (count) => {
  expect(await command(`${upstream.url} --workers=${count}`).refusal()).toBe(
    `fetchway: --workers ${JSON.stringify(count)}: use a whole number from 1 to 1024, or auto for one for each core\n`,
  );
});

test.each([
  [
    "bun",
    /^fetchway: --workers 2 does not work on Bun: its workers do not share one listening socket, .+; run this on Node, or use --workers 1\n$/,
  ],
  [
    "deno",
    /^fetchway: --workers 2 does not work on Deno: Deno\.serve takes no connections from a parent process; run this on Node, or use --workers 1\n$/,
  ],
] as const)(
  "on %s, a number of workers above 1 is refused with the reason, and auto means 1",
  async (runtime, expected) => {
    const proxy = new Command(`${upstream.url} --workers 2`, [], programs[runtime]);
    expect(await proxy.refusal()).toMatch(expected);
    upstream.handler = (_, res) => res.end("whole");
    const auto = new Command(`${upstream.url} --workers auto --port 0`, [], programs[runtime]);
    expect(await ask(await auto.origin())).toMatch(/^200 whole/);
    await auto.kill();
  },
);

test("HTTPS and HTTP/2 work with workers, another worker resumes a TLS session, and SIGHUP loads a new certificate", async () => {
  upstream.handler = (_, res) => res.end("whole");
  const write = async (): Promise<string> => {
    const { cert, key } = await makeCertificate();
    writeFileSync(join(folder, "cert.pem"), cert);
    writeFileSync(join(folder, "key.pem"), key);
    return cert;
  };
  let ca = await write();
  const { origin, port, replace } = await startWorkers(
    `${upstream.url} --log off --cert ${folder}/cert.pem --key ${folder}/key.pem`,
  );
  const askSecure = async (): Promise<string> => {
    const session = connectHttp2(origin, { ca });
    const body = await within(text(session.request({ ":path": "/" })), "the answer");
    session.close();
    return body;
  };
  expect(await Promise.all([askSecure(), askSecure(), askSecure()])).toEqual(
    Array(3).fill("whole"),
  );

  let ticket: Buffer | undefined;
  /** Sends a request on a new TLS connection, and resolves to whether the connection has resumed the session. */
  const resume = async (): Promise<boolean> => {
    const socket: TLSSocket = connectTls({ port, host: "127.0.0.1", ca, session: ticket });
    socket.on("session", (next: Buffer) => (ticket = next));
    socket.write("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    await within(once(socket, "secureConnect"), "the handshake");
    const isReused = socket.isSessionReused();
    expect(await within(text(socket), "the answer")).toContain("whole");
    return isReused;
  };
  // New connections go to the two workers in turn.
  expect([await resume(), await resume(), await resume()]).toEqual([false, true, true]);

  // From here, the client accepts only the new certificate.
  ca = await write();
  await replace();
  expect(await askSecure()).toBe("whole");
});

test("a changed certificate reaches all workers, and so does another certificate that the config file names later", async () => {
  upstream.handler = (_, res) => res.end("whole");
  const [first, second, third] = await Promise.all([1, 2, 3].map(() => makeCertificate()));
  const save = (name: string, content = ""): string => {
    writeFileSync(join(folder, name), content);
    return join(folder, name);
  };
  const config = (name: string): string => {
    const server = { cert: join(folder, `${name}.crt`), key: join(folder, `${name}.key`) };
    return save("tls.json", JSON.stringify({ target: upstream.url, server }));
  };
  save("one.crt", first?.cert);
  save("one.key", first?.key);
  const { proxy, port } = await startWorkers(`--config ${config("one")} --log off`);
  const rounds = (): number => proxy.stdout.split("2 workers have been replaced").length - 1;
  /** Expects that each of the two workers, which take connections in turn, has a certificate. */
  async function expectAll({ cert } = { cert: "" }): Promise<void> {
    for (let i = 0; i < 2; i++) {
      const socket = connectTls({ port, host: "127.0.0.1", ca: cert });
      await within(once(socket, "secureConnect"), "the handshake");
      socket.destroy();
    }
  }
  await expectAll(first);

  // Save only the new certificate. It must not be used before its key is saved as well.
  save("one.crt", second?.cert);
  await until(() => proxy.stderr !== "", "the message");
  expect(proxy.stderr).toMatch(/^fetchway: the certificate stays as it is: server\.key .+\n$/);
  await expectAll(first);
  expect(rounds()).toBe(0);
  save("one.key", second?.key);
  await until(() => rounds() === 1, "the second certificate");
  await expectAll(second);

  // The config file names another pair, which is watched from now on.
  save("two.crt", third?.cert);
  save("two.key", third?.key);
  config("two");
  await until(() => rounds() === 2, "the third certificate");
  await expectAll(third);
  save("two.crt", first?.cert);
  save("two.key", first?.key);
  await until(() => rounds() === 3, "the first certificate again");
  await expectAll(first);
  proxy.child.kill("SIGTERM");
  expect(await within(proxy.exit, "the exit")).toBe(0);
  expect(proxy.stderr.split("\n")).toHaveLength(2);
});

test("a config file replaced through a link reaches all workers, and a stop during a replacement ends them", async () => {
  const answers = new Set<string | undefined>();
  upstream.handler = (req, res) => {
    answers.add(req.headers["x-revision"]?.toString());
    res.end("whole");
  };
  const release = (revision: number): void => {
    const at = join(folder, `release${revision}`);
    mkdirSync(at);
    const headers = { "x-revision": String(revision) };
    writeFileSync(join(at, "f.json"), JSON.stringify({ target: upstream.url, headers }));
    symlinkSync(at, join(folder, "current.new"));
    renameSync(join(folder, "current.new"), join(folder, "current"));
  };
  release(1);
  const { proxy, origin } = await startWorkers(`--config ${folder}/current/f.json --log off`);
  release(2);
  await proxy.says(/2 workers have been replaced: f\.json has changed\n/);
  for (let i = 0; i < 2; i++) await ask(origin);
  expect([...answers]).toEqual(["2"]);
  proxy.child.kill("SIGHUP");
  proxy.child.kill("SIGTERM");
  expect(await within(proxy.exit, "the exit")).toBe(0);
  expect(proxy.stderr).toBe("");
});

test("the log lines of all workers reach stdout whole, not mixed with each other", async () => {
  upstream.handler = (_, res) => res.end("whole");
  const { proxy, origin } = await startWorkers(`${upstream.url} --log common`);
  // Each line is longer than what one write to a pipe keeps together (4096 bytes on Linux).
  const path = "x".repeat(6000);
  const count = 300;
  const agent = new Agent({ keepAlive: true, maxSockets: 20 });
  await Promise.all(Array.from({ length: count }, (_, i) => ask(`${origin}/${i}/${path}`, agent)));
  agent.destroy();
  const linesOf = (): string[] =>
    proxy.stdout.split("\n").filter((line) => line.startsWith("127.0.0.1"));
  await until(() => linesOf().length >= count, "the lines");
  proxy.child.kill("SIGTERM");
  expect(await within(proxy.exit, "the exit")).toBe(0);
  const lines = linesOf();
  expect(lines).toHaveLength(count);
  const line = new RegExp(`^127\\.0\\.0\\.1 - - \\[.+\\] "GET /\\d+/${path} HTTP/1\\.1" 200 5$`);
  expect(lines.filter((each) => !line.test(each))).toEqual([]);
});

test("each worker has its share of the limits for connections", () => {
  const limits = {
    ...defaultsOf(clientLimitSchema),
    maxConnections: 1000,
    maxPerAddress: Infinity,
  };
  expect(shareLimits(limits, 3)).toEqual({ ...limits, maxConnections: 334 });
  expect(shareLimits(limits)).toEqual(limits);
});

test.each([
  [256, 1, 108],
  [1024, 1, 616],
  [1024, 4, 616],
  [20_000, 1, 14_704],
  [65_536, 1, 16_384],
  [20_000, 4, 4096],
  [64, 1, 1],
  [Infinity, 1, 16_384],
])(
  "with a limit of %s open files, each of %s workers may have %s connections",
  (files, workers, expected) => {
    const limits = defaultsOf(clientLimitSchema);
    const { maxConnections, openFiles } = shareLimits(limits, workers, files);
    expect(maxConnections).toBe(expected);
    expect(openFiles).toBe(expected === 16_384 / workers ? undefined : files);
  },
);
