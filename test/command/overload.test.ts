/** The command while it is offered more than it can answer: a hook that blocks the event loop makes requests expensive. */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { connect, createServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, expect, test, vi } from "vitest";
import { Overload } from "../../command/limits/overload.ts";
import { canSharePort } from "../../command/serve/listeners.ts";
import { listen } from "../helpers/serve.ts";
import { patience, until } from "../helpers/wait.ts";
import { type Command, command, upstream } from "./_command.ts";

const folder = mkdtempSync(join(tmpdir(), "fetchway-"));
afterAll(() => rmSync(folder, { recursive: true }));

/** The config file of the tests. A request blocks the event loop for as many milliseconds as its query says. */
const config = join(folder, "fetchway.config.mjs");
writeFileSync(
  config,
  `export default { onRequest({ path }) {
    const end = performance.now() + Number(path.split("?")[1] ?? 0);
    while (performance.now() < end);
  } };`,
);

const OVERLOADED = "fetchway_overloaded_processes";
/** The number of clients that keep the event loop busy. */
const CLIENTS = 150;
let isBusy = false;
/** The number of connections that failed before any byte of a response. */
let refused = 0;
afterEach(() => void (isBusy = false));

/** A client that sends one request after another, and opens a new connection when its connection is closed. */
function keepBusy(port: number): void {
  const socket = connect(port, "127.0.0.1");
  const askAgain = (): void => void (isBusy ? socket.write(head("/?10")) : socket.destroy());
  socket.on("connect", askAgain).on("data", askAgain);
  socket.on("error", () => socket.bytesRead === 0 && refused++);
  socket.on("close", () => isBusy && setTimeout(keepBusy, 100, port));
}

const head = (path: string): string => `GET ${path} HTTP/1.1\r\nHost: a\r\n\r\n`;

interface Client {
  readonly socket: Socket;
  received: string;
  isClosed: boolean;
}

function open(port: number, path: string): Client {
  const socket = connect(port, "127.0.0.1");
  const client: Client = { socket, received: "", isClosed: false };
  socket.write(head(path));
  socket.on("error", () => {});
  socket.on("close", () => (client.isClosed = true));
  socket.on("data", (data: Buffer) => (client.received += data.toString("latin1")));
  return client;
}

/** Sends a request on a new connection, and returns the response. */
async function ask(port: number): Promise<string> {
  const client = open(port, "/");
  await until(() => client.received.endsWith("answered") || client.isClosed, "an answer");
  client.socket.destroy();
  return client.received;
}

async function start(line: string): Promise<[proxy: Command, port: number, status: string]> {
  const proxy = command(`${upstream.url} --config ${config} --port 0 --admin 0 --log off ${line}`);
  const port = Number(new URL(await proxy.origin()).port);
  const [, status = ""] = await proxy.says(/status page: (\S+)\//);
  return [proxy, port, status];
}

/** Keeps the event loop busy until the command reports that it refuses clients. */
async function overload(proxy: Command, port: number): Promise<void> {
  isBusy = true;
  refused = 0;
  for (let n = 0; n < CLIENTS; n++) keepBusy(port);
  await until(() => proxy.stderr.includes("are refused"), "the report");
  await until(() => refused > 0, "a refusal");
}

async function readMetric(status: string, name: string): Promise<number> {
  const metrics = await (await fetch(`${status}/metrics`)).text();
  return Number(new RegExp(`^${name} (.*)$`, "m").exec(metrics)?.[1]);
}

test.runIf(canSharePort)(
  "an overloaded process refuses new clients and closes idle connections, but ends no event stream",
  async () => {
    upstream.handler = (req, res) => {
      if (req.url !== "/events") return void res.end("answered");
      const timer = setInterval(() => res.write("data: 1\n\n"), 50);
      res.writeHead(200, { "content-type": "text/event-stream" }).on("close", () => {
        clearInterval(timer);
      });
    };
    const [proxy, port, status] = await start("");
    const events = open(port, "/events");
    const idle = open(port, "/");
    await until(() => events.received.includes("data"), "an event");
    await until(() => idle.received.endsWith("answered"), "the response");

    await overload(proxy, port);
    const limit = { timeout: patience };
    await expect.poll(async () => readMetric(status, OVERLOADED), limit).toBe(1);
    expect((await fetch(`${status}/healthz`)).status).toBe(200);
    expect((await fetch(`${status}/readyz`)).status).toBe(200);
    await until(() => idle.isClosed, "the end of the idle connection");
    const { length } = events.received;
    await until(() => events.received.length > length, "another event");
    expect(proxy.stderr.match(/^.*are refused.*$/gm)).toEqual([
      expect.stringMatching(/^fetchway: connections are refused: the process is overloaded; /),
    ]);

    isBusy = false;
    await expect.poll(async () => readMetric(status, OVERLOADED), limit).toBe(0);
    expect(await ask(port)).toContain("answered");
    expect(events.isClosed).toBe(false);
    events.socket.destroy();
  },
);

test.runIf(canSharePort)(
  "a process that stops during an overload does not listen again",
  async () => {
    upstream.handler = (_, res) => void res.end("answered");
    const [proxy, port] = await start("--stop-timeout 20s");
    await overload(proxy, port);
    proxy.child.kill("SIGTERM");
    await until(() => proxy.exited, "the exit");
    expect(proxy.child.exitCode).toBe(0);
  },
);

test("clients are refused after long waits during which requests begin, but not after waits without new requests", async () => {
  let probes = 0;
  let begun = 0;
  const close = vi.fn();
  const server = createServer((socket) => {
    const end = performance.now() + 400;
    while (performance.now() < end);
    for (let n = 0; n < begun; n++) overloaded.noteRequest();
    probes++;
    expect(overloaded.acceptProbe(socket)).toBe(true);
  });
  const port = await listen(server);
  const overloaded = new Overload("127.0.0.1", port, {
    countRunning: () => 100,
    shed: () => {},
    close,
    reopen: async () => {},
    report: () => {},
  });
  overloaded.noteRequest();
  await until(() => probes === 4, "the probes");
  expect(close).not.toHaveBeenCalled();
  begun = 100;
  await until(() => close.mock.calls.length > 0, "the refusal");
  expect(overloaded.isActive).toBe(true);
  overloaded.stop();
  server.close();
});

test("if --max-connections is a number, an overloaded process accepts new clients up to that limit", async () => {
  upstream.handler = (_, res) => void res.end("answered");
  const [proxy, port] = await start("--max-connections 1000");
  isBusy = true;
  for (let n = 0; n < CLIENTS; n++) keepBusy(port);
  const begin = performance.now();
  while (performance.now() - begin < 4000) expect(await ask(port)).toContain("answered");
  expect(proxy.stderr).not.toContain("refused");
});
