/** `--wait` and the config's `wait`: requests wait for an upstream that restarts, and for the upstream of a new config. */
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { WebSocket, WebSocketServer } from "ws";
import { mebibyte } from "../helpers/large.ts";
import { type Program, startProgram } from "../helpers/program.ts";
import { findPort, listen } from "../helpers/serve.ts";
import { pause, within } from "../helpers/wait.ts";

const ends: (() => unknown)[] = [];
let folder = "";
beforeAll(() => void (folder = mkdtempSync(join(tmpdir(), "fetchway-"))));
afterEach(async () => {
  for (const end of ends.splice(0).toReversed()) await end();
});
afterAll(() => rmSync(folder, { recursive: true }));

/** Starts an upstream that answers with its name, the method, the path and the number of bytes of the body. */
async function startUpstream(name: string, port = 0): Promise<Server> {
  const server = createServer((req, res) => {
    const answer = (body: string): unknown =>
      res.end(`${name} ${req.method} ${req.url} ${body.length}`);
    text(req).then(answer, () => {});
  });
  await listen(server, port);
  ends.push(() => stop(server));
  return server;
}

function stop(server: Server): void {
  server.close().closeAllConnections();
}

function portOf(server: Server): number {
  return (server.address() as AddressInfo).port;
}

interface Front {
  readonly origin: string;
  readonly program: Program;
  readonly ask: (path: string, body?: string) => Promise<string>;
  /** Resolves to all metrics as soon as `count` requests wait for an upstream. */
  held(count: number): Promise<string>;
}

const ARGS: Readonly<Record<string, readonly string[]>> = {
  node: ["command/main.ts"],
  bun: ["command/main.ts"],
  deno: ["run", "-A", "command/main.ts"],
};

async function start(flags: readonly string[], tool = "node"): Promise<Front> {
  const args = [...(ARGS[tool] ?? []), "--port=0", "--admin=0", ...flags];
  const program = startProgram(tool, args);
  ends.push(() => program[Symbol.asyncDispose]());
  const [, origin = ""] = await program.printed(/listens on (http:[^ "]+)/);
  const [, admin = ""] = await program.printed(/status page: (http:[^ "]+)\//);
  const poll = async (pattern: RegExp): Promise<string> => {
    for (;;) {
      const metrics = await (await fetch(`${admin}/metrics`)).text();
      if (pattern.test(metrics)) return metrics;
      await pause(10);
    }
  };
  return {
    origin,
    program,
    held: (count) =>
      within(poll(new RegExp(`^fetchway_requests_held ${count}$`, "m")), `${count} to wait`),
    async ask(path, body) {
      const response = await fetch(
        origin + path,
        body === undefined ? {} : { method: "POST", body },
      );
      const answer = await response.text();
      // Each upstream of this test sends a body. If there is none, the header fields show who has answered.
      return `${response.status} ${answer || JSON.stringify([...response.headers])}`;
    },
  };
}

/** Sends a GET, a short POST and a long one, and returns their answers. */
function sendAll({ ask }: Front): Promise<string[]> {
  return Promise.all([ask("/get"), ask("/short", "12345"), ask("/long", "x".repeat(mebibyte))]);
}

function answersOf(name: string): string[] {
  const posts = [
    ["short", 5],
    ["long", mebibyte],
  ].map(([path, n]) => `POST /${path} ${n}`);
  return ["GET /get 0", ...posts].map((answer) => `200 ${name} ${answer}`);
}

function writeConfig(name: string, port: number): string {
  const path = join(folder, `${name}.config.json`);
  const route = { match: "/", target: `http://127.0.0.1:${port}`, wait: "20s" };
  writeFileSync(path, JSON.stringify({ routes: [route] }));
  return path;
}

describe.each(Object.keys(ARGS))("on %s", (tool) => {
  test("a changed config moves waiting requests to its new upstream", async () => {
    const before = await findPort();
    const config = writeConfig(tool, before);
    const front = await start([`--config=${config}`], tool);
    const answers = sendAll(front);
    await front.held(3);
    const after = await startUpstream("after");
    writeConfig(tool, portOf(after));
    expect(await within(answers, "the answers")).toEqual(answersOf("after"));
    await front.held(0);
    await front.program.printed(
      new RegExp(`no request waits for http://127.0.0.1:${before} any longer .*; 3 requests have`),
    );
    expect(await front.ask("/later")).toBe("200 after GET /later 0");
  });

  test("a WebSocket waits, and opens at the upstream of the new config", async () => {
    const config = writeConfig(`${tool}-sockets`, await findPort());
    const front = await start([`--config=${config}`], tool);
    const socket = new WebSocket(front.origin.replace("http:", "ws:"));
    const opened = once(socket, "open");
    await front.held(1);
    const after = await startUpstream("after");
    const sockets = new WebSocketServer({ server: after });
    sockets.on("connection", (each) => each.send("hello"));
    const greeted = once(socket, "message");
    writeConfig(`${tool}-sockets`, portOf(after));
    await within(opened, "the opening");
    expect(String((await within(greeted, "the message"))[0])).toBe("hello");
    socket.terminate();
  });

  test("a stop ends waiting requests with 503 within --stop-timeout", async () => {
    const port = await findPort();
    const target = `http://127.0.0.1:${port}`;
    const front = await start([target, "--wait=60s", "--stop-timeout=300"], tool);
    const answers = Promise.all([front.ask("/get"), front.ask("/post", "12345")]);
    await front.held(2);
    front.program.signal("SIGTERM");
    const refusal = "503 Service Unavailable: destination_unavailable\n";
    expect(await within(answers, "the answers")).toEqual([refusal, refusal]);
    await front.program.ended();
    expect(front.program.code()).toBe(1);
  });
});

test("--wait: requests wait for an upstream that restarts, and the log and the metrics show them", async () => {
  const port = await findPort();
  const upstream = await startUpstream("before", port);
  const front = await start([`http://127.0.0.1:${port}`, "--wait", "15s", "--log", "pretty"]);
  expect(await front.ask("/first")).toBe("200 before GET /first 0");
  stop(upstream);
  const answers = sendAll(front);
  await front.held(3);
  await front.program.printed(
    new RegExp(` requests wait for http://127.0.0.1:${port} \\(connection refused\\)\n`),
  );
  await startUpstream("again", port);
  expect(await within(answers, "the answers")).toEqual(answersOf("again"));
  await front.program.printed(
    new RegExp(` http://127.0.0.1:${port} is back after [\\d.]+ s; 3 requests have waited\n`),
  );
  await front.program.printed(/POST \/long → 127.0.0.1:\d+ 200 [\d.]+ m?s [\d.]+ B.*, held \d/);
  const metrics = await front.held(0);
  expect(metrics).toMatch(/^fetchway_held_requests_total 3$/m);
  // Requests that find out whether the upstream is back (looks) are no retries. One request may have been sent again, because
  // the kept connection was stale.
  expect(metrics).toMatch(/^fetchway_retries_total [01]$/m);
  expect(metrics).toMatch(/^fetchway_held_seconds_total 0?\.?\d/m);
  expect(front.program.output().match(/requests wait for/g)).toHaveLength(1);
});

test("with --log json, the lines about waiting requests are JSON", async () => {
  const port = await findPort();
  const target = `http://127.0.0.1:${port}`;
  const front = await start([target, "--wait", "15s", "--log", "json"]);
  const answer = front.ask("/get");
  await front.held(1);
  await startUpstream("again", port);
  expect(await within(answer, "the answer")).toBe("200 again GET /get 0");
  await front.program.printed(/"state":"back"/);
  await front.program.printed(/"path":"\/get",.*"status":200,.*"heldMs":\d/);
  const lines = front.program.output().split("\n");
  const changes = lines.flatMap((line) =>
    line.includes('"state"') ? [JSON.parse(line) as Record<string, unknown>] : [],
  );
  const common = { upstream: target, reason: "connection refused" };
  expect(changes).toMatchObject([
    { level: "warn", ...common, state: "waiting", held: 0 },
    { level: "info", ...common, state: "back", held: 1 },
  ]);
});

test("a worker that is replaced moves its waiting requests to the upstream of the new config", async () => {
  const config = writeConfig("workers", await findPort());
  const front = await start([`--config=${config}`, "--workers=2"]);
  const answers = sendAll(front);
  await front.held(3);
  const after = await startUpstream("after");
  writeConfig("workers", portOf(after));
  expect(await within(answers, "the answers")).toEqual(answersOf("after"));
});

test("a worker that is replaced lets its requests continue to wait if their upstream has not changed", async () => {
  const port = await findPort();
  const front = await start([`http://127.0.0.1:${port}`, "--wait=20s", "--workers=2"]);
  const answers = sendAll(front);
  await front.held(3);
  front.program.signal("SIGHUP");
  await front.program.printed(/workers have been replaced/);
  await startUpstream("again", port);
  expect(await within(answers, "the answers")).toEqual(answersOf("again"));
});

test("a stop ends the waiting requests of all workers with 503", async () => {
  const target = `http://127.0.0.1:${await findPort()}`;
  const front = await start([target, "--wait=60s", "--stop-timeout=300", "--workers=2"]);
  const answers = sendAll(front);
  await front.held(3);
  front.program.signal("SIGTERM");
  const refusal = "503 Service Unavailable: destination_unavailable\n";
  expect(await within(answers, "the answers")).toEqual([refusal, refusal, refusal]);
  await front.program.ended();
});

test("--inspect explains a request of a route with `wait`", async () => {
  const args = ["command/main.ts", "http://127.0.0.1:1", "--wait", "1m", "--inspect", "/a"];
  await using program = startProgram("node", args);
  await program.printed(/GET \/a HTTP\/1.1/);
});
