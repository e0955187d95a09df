/** Behaviour of WebSockets that only the relays of Bun and Deno have, and the runtimes' own WebSocket clients. */
import { once } from "node:events";
import type { Socket } from "node:net";
import { fileURLToPath } from "node:url";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { WebSocket, WebSocketServer } from "ws";
import { type Host, startHost } from "../../hosts/_host.ts";
import type { HostName } from "../../hosts/_hosts.ts";
import { mebibyte } from "../../helpers/large.ts";
import { startProgram } from "../../helpers/program.ts";
import { Upstream } from "../../helpers/upstream.ts";
import { settled, until, within } from "../../helpers/wait.ts";
import { accept } from "../../helpers/websocket.ts";

const LIMIT = 16 * mebibyte;

const upstream = new Upstream();
beforeAll(() => upstream.listen());
afterEach(() => upstream.reset());
afterAll(() => upstream.stop());

/** One end of a WebSocket, and the code with which it was closed. */
interface End {
  readonly socket: WebSocket;
  code?: number;
}

function watch(socket: WebSocket): End {
  const end: End = { socket };
  socket.on("error", () => {}).on("close", (code) => (end.code = code));
  return end;
}

async function codesOf(...ends: End[]): Promise<(number | undefined)[]> {
  await until(() => ends.every(({ code }) => code !== undefined), "both ends");
  return ends.map(({ code }) => code);
}

function rawOf({ socket }: End): Socket {
  return (socket as unknown as { _socket: Socket })._socket;
}

describe.each<HostName>(["bun", "deno"])("a relay on %s", (name) => {
  let host: Host;
  beforeAll(async () => {
    host = await startHost(name, upstream.url);
  });
  afterAll(() => host.stop());
  afterEach(() => expect(host.complaints()).toBe(""));

  /** Opens a WebSocket through the proxy. @returns its ends at the client and at the upstream */
  async function open(): Promise<[client: End, server: End]> {
    const accepted = new Promise<WebSocket>((resolve) => {
      upstream.script = async (call) => resolve(await accept(call));
    });
    const client = watch(new WebSocket(`ws://127.0.0.1:${host.port("default")}/`));
    await within(once(client.socket, "open"), "the opening");
    return [client, watch(await accepted)];
  }

  test("a message of 16 MiB passes in both directions", async () => {
    const [client, server] = await open();
    for (const [from, to, message] of [
      [client, server, "\u00e9".repeat(LIMIT / 2)],
      [server, client, Buffer.alloc(LIMIT, "0123456789")],
    ] as const) {
      const received = once(to.socket, "message") as Promise<[Buffer, boolean]>;
      from.socket.send(message, { compress: false });
      const [data, isBinary] = await within(received, "the message");
      expect(data.equals(Buffer.from(message))).toBe(true);
      expect(isBinary).toBe(typeof message !== "string");
    }
    client.socket.close();
  });

  test("no message is lost while the client does not read, and the upstream has to wait", async () => {
    const [client, server] = await open();
    // Send more than the system's buffers of both connections hold, which may be up to 32 MiB.
    const count = 6;
    let received = 0;
    client.socket.on("message", (data: Buffer) => (received += data.byteLength));
    rawOf(client).pause();
    for (let i = 0; i < count; i++) {
      server.socket.send(Buffer.alloc(LIMIT), { compress: false });
    }
    await settled(() => server.socket.bufferedAmount);
    expect(server.socket.bufferedAmount).toBeGreaterThan(0);
    rawOf(client).resume();
    await until(() => received === count * LIMIT, "all of them");
    client.socket.close();
  });

  test("a client's message of more than 16 MiB is refused with 1009", async () => {
    const [client, server] = await open();
    client.socket.send(Buffer.alloc(LIMIT + 1), { compress: false });
    // Bun's server refuses the message, and reports a WebSocket that broke off.
    expect(await codesOf(client, server)).toEqual([1009, name === "bun" ? 1006 : 1001]);
  });

  test("an upstream's message of more than 16 MiB is refused with 1009, and the client gets 1014", async () => {
    const [client, server] = await open();
    server.socket.send(Buffer.alloc(LIMIT + 1), { compress: false });
    expect(await codesOf(client, server)).toEqual([1014, 1009]);
  });

  test("an upstream that breaks the protocol gets 1002, and the client gets 1014", async () => {
    const [client, server] = await open();
    // A text frame with a reserved bit.
    rawOf(server).write(Buffer.of(0xc1, 0));
    expect(await codesOf(client, server)).toEqual([1014, 1002]);
  });

  // On Bun, the relay stops reading from the client instead.
  test.runIf(name === "deno")(
    "both sides are closed with 1013 when too many bytes wait for an upstream that does not read",
    async () => {
      const [client, server] = await open();
      rawOf(server).pause();
      const message = Buffer.alloc(65_536);
      let [sent, pongs] = [0, 0];
      client.socket.on("pong", () => pongs++);
      // The pong shows that Deno has read the message, and that the relay has it. If the client sent more meanwhile, Deno would
      // close the connection with a reset, which may overtake the close frame.
      while (client.code === undefined) {
        client.socket.send(message, { compress: false });
        client.socket.ping();
        sent++;
        await until(() => pongs === sent || client.code !== undefined, "the pong");
      }
      rawOf(server).resume();
      expect(await codesOf(client, server)).toEqual([1013, 1013]);
    },
  );
});

describe("WebSocket clients of the runtimes", () => {
  const client = fileURLToPath(new URL("_client.ts", import.meta.url));

  test.each(["bun", "deno"] as const)(
    "the runtime's own client gets its messages and its close code through a proxy on %s",
    async (name) => {
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
    },
  );
});
