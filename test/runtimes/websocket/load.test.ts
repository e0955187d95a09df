/**
 * Many WebSockets, floods against peers that do not read, and the resources that remain afterwards. `npm test` runs few hosts
 * with small numbers, `npm run test:load` all hosts with large ones, and prints figures.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readdirSync } from "node:fs";
import type { Socket } from "node:net";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { WebSocket, WebSocketServer } from "ws";
import { type Host, type NodeHttpHost, startHost } from "../../hosts/_host.ts";
import type { HostName } from "../../hosts/_hosts.ts";
import { mebibyte } from "../../helpers/large.ts";
import { patience, settled, until, within } from "../../helpers/wait.ts";
import type { Holdings } from "../../hosts/leaks.ts";

type Name = HostName | NodeHttpHost;
/** What the hosts of `REPORTING` report: all report `heap` and `pool`, and some report the rest. */
type Report = Pick<Holdings, "heap" | "pool"> & Partial<Holdings>;

const isLarge = process.env["MODE"] === "load";
const FEW: readonly Name[] = ["node", "bun", "deno", "workerd"];
const HOSTS: readonly Name[] = isLarge
  ? [...FEW, "srvx", "h3", "hono", "nodehttp-bun", "nodehttp-deno"]
  : FEW;
const NODE = [process.execPath, "--expose-gc", "leaks.ts"];
const BUN = ["bun", "leaks.runtimes.ts"];
const DENO = [
  "deno",
  "run",
  "--allow-all",
  "--v8-flags=--expose-gc",
  // Without this flag, Deno warns that it aborts `request.signal` even of answered requests.
  "--unstable-no-legacy-abort",
  "leaks.runtimes.ts",
];

/** The command that starts a host which reports the size of its heap: a program, its arguments, and the kind of host. */
const REPORTING: Partial<Record<Name, [...program: string[], kind: string]>> = {
  node: [...NODE, "node"],
  srvx: [...NODE, "srvx"],
  h3: [...NODE, "h3"],
  hono: [...NODE, "hono"],
  bun: [...BUN, "bun"],
  deno: [...DENO, "deno"],
  "nodehttp-bun": [...BUN, "nodehttp"],
  "nodehttp-deno": [...DENO, "nodehttp"],
};

/** The number of WebSockets that are open at the same time. */
const OPEN = isLarge ? 1000 : 100;
/** The number of WebSockets that are opened and closed. */
const TURNS = isLarge ? 10_000 : 300;
/** The number of bytes of a flood, of which the kernel's buffers take some. */
const FLOOD = (isLarge ? 250 : 64) * mebibyte;
const MESSAGE = 65_536;
/** The number of descriptors that a runtime may open or close for itself. */
const OWN = 10;

function report(host: Name, text: string): void {
  if (isLarge) console.log(`${host}: ${text}`);
}

function echo(socket: WebSocket): void {
  socket.on("message", (data, isBinary) => socket.send(data, { binary: isBinary }));
}

const upstream = new WebSocketServer({ port: 0, host: "127.0.0.1", perMessageDeflate: false });
/** The function with which the upstream handles a WebSocket. */
let use = echo;
upstream.on("connection", (socket) => {
  socket.on("error", () => {});
  use(socket);
});
let target = "";
const clients: WebSocket[] = [];
beforeAll(async () => {
  if (upstream.address() === null) await once(upstream, "listening");
  target = `http://127.0.0.1:${(upstream.address() as { port: number }).port}`;
});
afterEach(() => {
  use = echo;
  for (const socket of [...clients.splice(0), ...upstream.clients]) socket.terminate();
});
afterAll(() => upstream.close());

async function open(port: number): Promise<WebSocket> {
  const socket = new WebSocket(`ws://127.0.0.1:${port}/`, { perMessageDeflate: false });
  clients.push(socket);
  socket.on("error", () => {});
  await within(once(socket, "open"), "the opening", 2 * patience);
  return socket;
}

async function end(socket: WebSocket): Promise<void> {
  const closed = once(socket, "close");
  socket.close(1000);
  await within(closed, "the end", 2 * patience);
}

/** Opens a WebSocket. @returns both of its ends; the upstream's does nothing by itself */
async function openBoth(port: number): Promise<{ client: WebSocket; server: WebSocket }> {
  const accepted = new Promise<WebSocket>((resolve) => (use = resolve));
  const client = await open(port);
  const server = await within(accepted, "the upstream's end");
  use = echo;
  return { client, server };
}

/** Runs a job `total` times, with up to `concurrency` runs at the same time. */
async function times(total: number, concurrency: number, job: () => Promise<void>): Promise<void> {
  let left = total;
  const work = async (): Promise<void> => {
    while (left-- > 0) await job();
  };
  await Promise.all(Array.from({ length: concurrency }, work));
}

function descriptorsOf(pid: number): number {
  return readdirSync(`/proc/${pid}/fd`).length;
}

function rawOf(socket: WebSocket): Socket {
  return (socket as unknown as { _socket: Socket })._socket;
}

/** Counts the bytes of the messages that a WebSocket receives. */
function count(socket: WebSocket): { bytes: number } {
  const received = { bytes: 0 };
  socket.on("message", (data: Buffer) => (received.bytes += data.byteLength));
  return received;
}

/** Sends messages as fast as the other side takes them. */
class Flood {
  sent = 0;
  readonly #socket: WebSocket;

  constructor(socket: WebSocket) {
    this.#socket = socket;
  }

  async run(): Promise<void> {
    const message = Buffer.alloc(MESSAGE, 7);
    while (this.sent < FLOOD && this.#socket.readyState === WebSocket.OPEN) {
      await new Promise((resolve) => this.#socket.send(message, () => resolve(undefined)));
      this.sent += MESSAGE;
    }
  }
}

/** Measures the highest growth of a host's memory from now on, in MiB. */
function watchMemory(host: Host<Name>): Disposable & { growth(): number } {
  const before = host.rss();
  let most = before;
  const timer = setInterval(() => (most = Math.max(most, host.rss())), 20);
  return {
    growth: () => (most - before) / mebibyte,
    [Symbol.dispose]: () => clearInterval(timer),
  };
}

// Only Linux shows the descriptors of a process (/proc).
describe.runIf(process.platform === "linux").each(HOSTS)("on %s", (name) => {
  let host: Host<Name>;
  let port = 0;
  beforeAll(async () => {
    host = await startHost(name, target);
    port = host.port("default");
  });
  afterAll(() => host.stop());
  afterEach(() => expect(host.complaints()).toBe(""));

  test(`${OPEN} WebSockets at the same time echo all messages, and leave no file descriptor open`, async () => {
    const before = descriptorsOf(host.pid);
    const sockets: WebSocket[] = [];
    await times(OPEN, 50, async () => void sockets.push(await open(port)));
    expect(descriptorsOf(host.pid)).toBeGreaterThan(before + 2 * OPEN - OWN);
    const received = sockets.map((): string[] => []);
    for (const [at, socket] of sockets.entries()) {
      socket.on("message", (data: Buffer) => received[at]?.push(data.toString()));
    }
    const rounds = Array.from({ length: 20 }, (_, round) => round);
    for (const round of rounds) sockets.forEach((each, at) => each.send(`${at}: ${round}`));
    await until(() => received.every(({ length }) => length >= 20), "all echoes", 4 * patience);
    for (const [at, each] of received.entries()) {
      expect(each).toEqual(rounds.map((round) => `${at}: ${round}`));
    }
    await Promise.all(sockets.map(end));
    await until(() => upstream.clients.size === 0, "the end of the upstream's connections");
    await until(() => descriptorsOf(host.pid) < before + OWN, "the end of the descriptors");
    report(name, `${OPEN} × 20 echoes, ${descriptorsOf(host.pid) - before} descriptors more`);
  }, 120_000);

  // workerd does not report its heap. Its resident memory grows by 7 KiB for each WebSocket, also without a proxy.
  test.runIf(isLarge && !(name in REPORTING))(
    `${TURNS} WebSockets that are opened and closed leave no file descriptor open`,
    async () => {
      await turn(port, 2000);
      const [memory, descriptors] = [host.rss(), descriptorsOf(host.pid)];
      await turn(port, TURNS);
      await until(() => descriptorsOf(host.pid) <= descriptors, "the end of the descriptors");
      report(name, `${TURNS} turns, ${(host.rss() - memory) / mebibyte} MiB of memory more`);
    },
    240_000,
  );

  /** Sends messages in both directions, so that the runtime has its usual size before memory is measured. */
  async function warmUp(): Promise<void> {
    const { client, server } = await openBoth(port);
    const [up, down] = [count(server), count(client)];
    const message = Buffer.alloc(MESSAGE, 7);
    for (let i = 1; i <= (isLarge ? 50 : 10); i++) {
      for (let n = 0; n < 10; n++) for (const socket of [client, server]) socket.send(message);
      await until(() => Math.min(up.bytes, down.bytes) === 10 * i * MESSAGE, "the messages");
    }
    await end(client);
  }

  test("if a client does not read, the upstream has to wait, and the proxy's memory grows by less than 32 MiB", async () => {
    await warmUp();
    const { client, server } = await openBoth(port);
    const received = count(client);
    rawOf(client).pause();
    using memory = watchMemory(host);
    const flood = new Flood(server);
    const running = flood.run();
    const sent = await settled(() => flood.sent, 2 * patience);
    expect(sent).toBeLessThan(FLOOD / 2);
    const growth = memory.growth();
    expect(growth, "MiB").toBeLessThan(32);
    rawOf(client).resume();
    await within(running, "the end of the flood", 4 * patience);
    await until(() => received.bytes === FLOOD, "the rest of the flood", 4 * patience);
    report(name, `flood at a client: stopped at ${sent / mebibyte} MiB, ${growth} MiB of memory`);
  }, 120_000);

  // Run this only with large numbers, because the shared suite in test/suite has a smaller flood.
  test.runIf(isLarge)(
    "if an upstream does not read, the client has to wait, or its WebSocket ends",
    async () => {
      await warmUp();
      const { client, server } = await openBoth(port);
      const received = count(server);
      let code: number | undefined;
      client.on("close", (closed) => (code = closed));
      rawOf(server).pause();
      using memory = watchMemory(host);
      const flood = new Flood(client);
      const running = flood.run();
      const sent = await settled(() => flood.sent, 2 * patience);
      expect(sent).toBeLessThan(FLOOD / 2);
      const growth = memory.growth();
      // Deno cannot stop reading from a client. The relay keeps 16 MiB of messages, and their frames.
      expect(growth, "MiB").toBeLessThan(name === "deno" ? 96 : 32);
      rawOf(server).resume();
      report(
        name,
        `flood at an upstream: stopped at ${sent / mebibyte} MiB, ${growth} MiB of memory`,
      );
      if (name === "deno") {
        await until(() => code !== undefined, "the end of the WebSocket", 2 * patience);
        // If a client continues to send, Deno closes the connection with a reset, which may overtake the close frame.
        expect([1006, 1013]).toContain(code);
        return;
      }
      await within(running, "the end of the flood", 4 * patience);
      await until(() => received.bytes === FLOOD, "the rest of the flood", 4 * patience);
    },
    120_000,
  );
});

const pathOf = (relative: string): string => fileURLToPath(new URL(relative, import.meta.url));

/** Opens WebSockets, sends a message on each, and closes them. */
async function turn(port: number, turns: number): Promise<void> {
  await times(turns, 20, async () => {
    const socket = await open(port);
    const answered = once(socket, "message");
    socket.send("x");
    await within(answered, "the answer", 2 * patience);
    await end(socket);
    clients.splice(clients.indexOf(socket), 1);
  });
  await until(() => upstream.clients.size === 0, "the end of the upstream's connections");
}

describe.each(HOSTS.filter((name) => name in REPORTING))("on %s", (name) => {
  test(`${TURNS} WebSockets that are opened and closed leave no memory, socket, timer or listener behind`, async () => {
    const [program = "", ...args] = (REPORTING[name] ?? []).map((word) =>
      word.startsWith("leaks.") ? pathOf(`../../hosts/${word}`) : word,
    );
    const isNode = program === process.execPath;
    const child = spawn(isNode ? program : pathOf(`../../../node_modules/.bin/${program}`), args, {
      env: { ...process.env, UPSTREAM: target, NODE_OPTIONS: "" },
      stdio: ["pipe", "pipe", "inherit"],
    });
    const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
    const next = async <T>(): Promise<T> =>
      JSON.parse((await within(lines.next(), "an answer", 2 * patience)).value as string) as T;
    const measure = async (): Promise<Report> => {
      child.stdin.write("\n");
      return next<Report>();
    };
    try {
      const { port } = await next<{ port: number }>();
      const measureAfter = async (turns: number): Promise<Report> => {
        await turn(port, turns);
        let now = await measure();
        const isAtRest = ({ pool, resources }: Report): boolean =>
          pool.tunnels === 0 && resources?.["TCPSocketWrap"] === undefined;
        await expect
          .poll(async () => isAtRest((now = await measure())), { timeout: patience })
          .toBe(true);
        return now;
      };
      // Memory that was allocated at the start is freed only after some collections.
      await measureAfter(isLarge ? 2000 : 100);
      const before = await measureAfter(isLarge ? 1000 : 100);
      const after = await measureAfter(TURNS);
      const growth = after.heap - before.heap;
      report(name, `${TURNS} turns, ${growth} bytes of heap more`);
      const { resources, listeners } = before;
      expect(after).toMatchObject({
        ...(resources && { resources }),
        ...(listeners && { listeners }),
      });
      expect(growth, "bytes").toBeLessThan(0.25 * mebibyte + 50 * TURNS);
    } finally {
      child.kill("SIGKILL");
    }
  }, 240_000);
});
