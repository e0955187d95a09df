/** WebSockets through real servers that hand out no connection: floods, many sockets, and the runtimes' own clients. */
import { once } from "node:events";
import { readdirSync } from "node:fs";
import type { Socket } from "node:net";
import { fileURLToPath } from "node:url";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { WebSocket, WebSocketServer } from "ws";
import { type Host, type HostName, startHost } from "./_host.ts";
import { startProgram } from "./_program.ts";
import { Upstream } from "./_upstream.ts";
import { settled, until, within } from "./_wait.ts";
import { accept } from "./_websocket.ts";

const mebibyte = 1024 * 1024;
const FLOOD = 250 * mebibyte;
const MESSAGE = 65_536;

const upstream = new Upstream();
const sockets: WebSocket[] = [];
beforeAll(() => upstream.listen());
afterEach(async () => {
  for (const socket of sockets.splice(0)) socket.terminate();
  await upstream.reset();
});
afterAll(() => upstream.stop());

async function open(host: Host, path = "/"): Promise<WebSocket> {
  const socket = new WebSocket(`ws://127.0.0.1:${host.port("default")}${path}`);
  sockets.push(socket);
  socket.on("error", () => {});
  await within(once(socket, "open"), "the WebSocket's opening");
  return socket;
}

/** Answers the next handshake, and resolves to the upstream's end of the WebSocket. */
function accepting(): Promise<WebSocket> {
  return new Promise((resolve) => {
    upstream.script = async (call) => resolve(await accept(call));
  });
}

function echo(): void {
  upstream.script = async (call) => {
    const socket = await accept(call);
    socket.on("message", (data, isBinary) => socket.send(data, { binary: isBinary }));
  };
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
      await new Promise((resolve) =>
        this.#socket.send(message, { compress: false }, () => resolve(undefined)),
      );
      this.sent += MESSAGE;
    }
  }
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

/** Tells how much more memory than now a host has used at most. */
function watchMemory(host: Host): { growth(): number } {
  const before = host.rss();
  let most = before;
  const timer = setInterval(() => (most = Math.max(most, host.rss())), 20);
  timer.unref();
  return {
    growth() {
      clearInterval(timer);
      return most - before;
    },
  };
}

function descriptorsOf({ pid }: Host): number {
  return readdirSync(`/proc/${pid}/fd`).length;
}

describe.each<HostName>(["bun", "deno", "workerd"])("on %s", (name) => {
  let host: Host;
  beforeAll(async () => {
    host = await startHost(name, upstream.url);
  }, 30_000);
  afterAll(() => host.stop());
  afterEach(() => expect(host.complaints()).toBe(""));

  /** Memory is measured after the runtime has grown to its usual size. */
  async function warmUp(): Promise<void> {
    echo();
    const socket = await open(host);
    const received = count(socket);
    const message = Buffer.alloc(MESSAGE, 7);
    for (let i = 0; i < 500; i++) {
      socket.send(message);
      if (i % 10 === 9) await until(() => received.bytes === (i + 1) * MESSAGE, "the echoes");
    }
    socket.terminate();
    await upstream.reset();
  }

  test("a client that does not read makes the upstream wait, and misses nothing", async () => {
    await warmUp();
    const accepted = accepting();
    const client = await open(host);
    const received = count(client);
    rawOf(client).pause();
    const flood = new Flood(await accepted);
    const memory = watchMemory(host);
    const running = flood.run();
    expect(await settled(() => flood.sent, 30_000)).toBeLessThan(FLOOD / 2);
    expect(memory.growth()).toBeLessThan(32 * mebibyte);
    rawOf(client).resume();
    await within(running, "the end of the flood", 30_000);
    await until(() => received.bytes === FLOOD, "the rest of the flood", 30_000);
  }, 90_000);

  test("an upstream that does not read makes the client wait, or ends its WebSocket", async () => {
    await warmUp();
    const accepted = accepting();
    const client = await open(host);
    const server = await accepted;
    const received = count(server);
    let code: number | undefined;
    client.on("close", (closed) => (code = closed));
    rawOf(server).pause();
    const memory = watchMemory(host);
    const flood = new Flood(client);
    const running = flood.run();
    expect(await settled(() => flood.sent, 30_000)).toBeLessThan(FLOOD / 2);
    // Deno cannot stop reading from a client. It keeps 16 MiB of messages, and their frames.
    expect(memory.growth()).toBeLessThan((name === "deno" ? 96 : 32) * mebibyte);
    rawOf(server).resume();
    if (name === "deno") {
      await until(() => code !== undefined, "the end of the WebSocket", 30_000);
      // Deno closes the connection while the client still sends: the reset may overtake the close frame with 1013.
      expect([1006, 1013]).toContain(code);
      return;
    }
    await within(running, "the end of the flood", 30_000);
    await until(() => received.bytes === FLOOD, "the rest of the flood", 30_000);
  }, 90_000);

  test("1 000 WebSockets echo without loss, and leave nothing open", async () => {
    echo();
    const before = descriptorsOf(host);
    const clients: WebSocket[] = [];
    for (let i = 0; i < 20; i++) {
      clients.push(...(await Promise.all(Array.from({ length: 50 }, () => open(host)))));
    }
    const seen = clients.map(() => 0);
    clients.forEach((client, i) =>
      client.on("message", (data: Buffer) => {
        expect(data.toString()).toBe(`${i}: ${seen[i]}`);
        seen[i] = (seen[i] as number) + 1;
      }),
    );
    for (let round = 0; round < 20; round++) {
      clients.forEach((client, i) => client.send(`${i}: ${round}`));
    }
    await until(() => seen.every((each) => each === 20), "all echoes", 60_000);
    expect(upstream.openLinks).toBe(1000);
    for (const client of clients) client.close(1000);
    await until(() => upstream.openLinks === 0, "the end of the upstream's connections", 30_000);
    await until(() => descriptorsOf(host) <= before + 20, "the end of the descriptors", 30_000);
  }, 120_000);

  test("a message of 1 MiB passes in both directions, as text and as bytes", async () => {
    echo();
    const client = await open(host);
    for (const message of ["\u00e9".repeat(mebibyte / 2), Buffer.alloc(mebibyte, "0123456789")]) {
      const answer = once(client, "message") as Promise<[Buffer, boolean]>;
      client.send(message);
      const [data, isBinary] = await within(answer, "the echo");
      expect(data.equals(Buffer.from(message))).toBe(true);
      expect(isBinary).toBe(typeof message !== "string");
    }
  });
});

describe("the runtime's own WebSocket", () => {
  const client = fileURLToPath(new URL("_websocket.client.ts", import.meta.url));

  test.each(["bun", "deno"] as const)("of %s gets its messages and close code", async (name) => {
    const server = new WebSocketServer({ port: 0, host: "127.0.0.1" });
    await once(server, "listening");
    server.on("connection", (socket) => {
      socket.on("message", (data, isBinary) => socket.send(data, { binary: isBinary }));
      socket.on("close", (code, reason) => (closed = [code, reason.toString()]));
    });
    let closed: [number, string] | undefined;
    const { port } = server.address() as { port: number };
    const host = await startHost(name, `http://127.0.0.1:${port}`);
    try {
      const url = `ws://127.0.0.1:${host.port("default")}/`;
      const args = name === "deno" ? ["run", "-A", client, url] : [client, url];
      await using program = startProgram(name, args);
      await program.ended();
      expect(program.output().trim().split("\n")).toEqual([
        'open "b"',
        'message "h\u00e9llo"',
        "message 0,128,255",
        'close 4001 "bye"',
      ]);
      await until(() => closed !== undefined, "the close at the upstream");
      expect(closed).toEqual([4001, "bye"]);
    } finally {
      await host.stop();
      server.close();
    }
  });
});
