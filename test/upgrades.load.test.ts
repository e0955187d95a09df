/** Many WebSockets, a flood against a client that does not read, and what is left when all is over. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { readdirSync } from "node:fs";
import { connect, createServer, type Socket } from "node:net";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { WebSocket, WebSocketServer } from "ws";
import { type Host, startHost } from "./_host.ts";
import { handshake } from "./_handshake.ts";
import { listen } from "./_serve.ts";
import { settled, until, within } from "./_wait.ts";
import { request } from "./_wire.ts";
import type { Holdings } from "./hosts/leaks.ts";

const MIB = 1024 * 1024;
const LEAKS = fileURLToPath(new URL("hosts/leaks.ts", import.meta.url));

/** An upstream that echoes messages, and floods a socket on `/flood`. */
const echo = new WebSocketServer({ port: 0, host: "127.0.0.1" });
echo.on("connection", (socket) => {
  socket.on("message", (data, isBinary) => socket.send(data, { binary: isBinary }));
  socket.on("error", () => {});
});

let host: Host;
let port = 0;
let target = "";
beforeAll(async () => {
  if (echo.address() === null) await once(echo, "listening");
  target = `http://127.0.0.1:${(echo.address() as { port: number }).port}`;
  host = await startHost("node", target);
  port = host.port("default");
});
afterAll(async () => {
  echo.close();
  await host.stop();
});

/** The number of file descriptors that the host has open. */
function descriptors(): number {
  return readdirSync(`/proc/${host.pid}/fd`).length;
}

async function open(to = port): Promise<WebSocket> {
  const socket = new WebSocket(`ws://127.0.0.1:${to}/`, { perMessageDeflate: false });
  socket.on("error", () => {});
  await within(once(socket, "open"), "the opening", 30_000);
  return socket;
}

/** Runs a job for each of some numbers, some at a time. */
async function times(count: number, atOnce: number, job: () => Promise<void>): Promise<void> {
  let left = count;
  const work = async (): Promise<void> => {
    while (left-- > 0) await job();
  };
  await Promise.all(Array.from({ length: atOnce }, work));
}

async function end(socket: WebSocket): Promise<void> {
  const closed = once(socket, "close");
  socket.close();
  await within(closed, "the end", 30_000);
}

// The file descriptors of a process can be counted on Linux.
describe.runIf(process.platform === "linux")("many WebSockets", () => {
  test("1000 sockets echo 20 messages each without loss", { timeout: 120_000 }, async () => {
    const before = descriptors();
    const sockets: WebSocket[] = [];
    await times(1000, 50, async () => void sockets.push(await open()));
    expect(descriptors()).toBeGreaterThanOrEqual(before + 2000);
    const received = sockets.map((): string[] => []);
    for (const [at, socket] of sockets.entries()) {
      socket.on("message", (data: Buffer) => received[at]?.push(data.toString()));
    }
    const messages = Array.from({ length: 20 }, (_, at) => `message ${at}`);
    for (const message of messages) for (const socket of sockets) socket.send(message);
    await until(() => received.every(({ length }) => length === 20), "all messages", 60_000);
    for (const each of received) expect(each).toEqual(messages);
    await Promise.all(sockets.map(end));
    await until(() => descriptors() <= before, "the end of all connections");
  });

  test(
    "10 000 sockets that are opened and closed leave nothing",
    { timeout: 240_000 },
    async () => {
      const count = 10_000;
      const child = spawn(process.execPath, ["--expose-gc", LEAKS], {
        env: { ...process.env, UPSTREAM: target, NODE_OPTIONS: "" },
        stdio: ["pipe", "pipe", "inherit"],
      });
      const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
      const next = async <T>(): Promise<T> =>
        JSON.parse((await within(lines.next(), "an answer")).value as string) as T;
      const measure = async (): Promise<Holdings> => {
        child.stdin.write("\n");
        return next<Holdings>();
      };
      try {
        const { port: own } = await next<{ port: number }>();
        const use = async (often: number): Promise<Holdings> => {
          await times(often, 20, async () => {
            const socket = await open(own);
            socket.send("x");
            await within(once(socket, "message"), "the answer");
            await end(socket);
          });
          let now = await measure();
          await expect.poll(async () => (now = await measure()).pool.tunnels).toBe(0);
          await expect
            .poll(async () => (now = await measure()).resources["TCPSocketWrap"])
            .toBe(undefined);
          return now;
        };
        await use(1000);
        const before = await use(1000);
        const after = await use(count);
        expect(after.resources).toEqual(before.resources);
        expect(after.listeners).toBe(before.listeners);
        // Fifty bytes for each.
        expect((after.heap - before.heap) / MIB, "MiB of growth").toBeLessThan(0.5);
      } finally {
        child.kill("SIGKILL");
      }
    },
  );
});

test(
  "a flood of 250 MB against a client that does not read stays out of memory",
  { timeout: 60_000 },
  async () => {
    const sockets: Socket[] = [];
    let sent = 0;
    const flood = createServer((socket) => {
      sockets.push(socket);
      socket
        .on("error", () => {})
        .once("data", () => {
          const head =
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
          socket.write(head);
          const chunk = Buffer.alloc(65_536, "x");
          const push = (): void => {
            while (sent < 250e6 && socket.write(chunk)) sent += chunk.length;
            sent += chunk.length;
            if (sent >= 250e6) socket.off("drain", push).end();
          };
          socket.on("drain", push);
          push();
        });
    });
    const flooding = await listen(flood);
    const own = await startHost("node", `http://127.0.0.1:${flooding}`);
    const client = connect({ port: own.port("default"), host: "127.0.0.1" });
    client.on("error", () => {}).write(request("GET", "/", handshake));
    await within(once(client, "readable"), "the first bytes");
    const before = own.rss();
    let most = 0;
    const watch = setInterval(() => (most = Math.max(most, own.rss())), 20);
    // The upstream stops when the buffers of the kernel are full.
    await settled(() => sent);
    expect(sent).toBeLessThan(64 * MIB);
    expect(most - before).toBeLessThan(32 * MIB);
    let received = 0;
    client.on("data", (data: Buffer) => (received += data.length));
    await within(once(client, "end"), "the end of the flood", 30_000);
    clearInterval(watch);
    expect(received).toBeGreaterThan(250e6);
    // Garbage of the reads, which comes faster than its collection: it does not grow with the flood.
    expect(most - before).toBeLessThan(128 * MIB);
    client.destroy();
    flood.close();
    for (const socket of sockets) socket.destroy();
    await own.stop();
  },
);
