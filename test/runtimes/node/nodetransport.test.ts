/**
 * Small request bodies that arrive with their head or later, and connections that read into one buffer of the process: no
 * byte of one connection may reach another.
 */
import { once } from "node:events";
import { createServer } from "node:http";
import { connect, Socket } from "node:net";
import { expect, test, vi } from "vitest";
import { countUnsent } from "../../../command/limits/writequeue.ts";
import { createProxy } from "../../../runtimes/node.ts";
import { takeShared } from "../../../runtimes/node/nodetransport.ts";
import { useApps } from "../../helpers/apps.ts";
import type { Client } from "../../helpers/client.ts";
import { offer } from "../../helpers/handshake.ts";
import { pause, settled, until } from "../../helpers/wait.ts";
import { request } from "../../helpers/wire.ts";

const apps = useApps();
const { upstream } = apps;
const MIB = 1024 * 1024;

const BODY = "x".repeat(1000);

test("a request body that arrives with its head is sent in one write with the head", async () => {
  const proxy = createProxy({ target: upstream.url });
  const { port } = upstream;
  const front = await apps.serve("node", proxy.nodeHandler);
  const client = await apps.connect(front);
  // The first request only opens the upstream connection, because its body would arrive while it waits for the
  // connection.
  await ask(client);
  const write = vi.spyOn(Socket.prototype, "write");
  try {
    await ask(client);
    const sockets = write.mock.contexts as readonly Socket[];
    const heads = write.mock.calls.filter((_, at) => sockets[at]?.remotePort === port);
    expect(heads.map(([bytes]) => Buffer.from(bytes).toString().endsWith(BODY))).toEqual([true]);
  } finally {
    write.mockRestore();
  }
  await proxy.close();
});

async function ask(client: Client): Promise<void> {
  client.send(request("POST", "/", [], BODY));
  expect((await client.read()).text).toBe(BODY);
}

test("a request body that arrives later than its head reaches the upstream completely", async () => {
  const proxy = createProxy({ target: upstream.url });
  const port = await apps.serve("node", proxy.nodeHandler);
  const client = await apps.connect(port);
  client.send(request("POST", "/", [["Content-Length", "2000"]]));
  await until(() => upstream.calls.length === 1, "the head at the upstream");
  client.send(BODY);
  await pause(20);
  client.send(BODY);
  expect((await client.read()).length).toBe(2000);
  expect(apps.only().text).toBe(BODY + BODY);
  await proxy.close();
});

test("connections share one read buffer on Node, but not on Deno or on Windows", () => {
  expect(takeShared()).toBe(takeShared());
  vi.stubGlobal("Deno", {});
  expect(takeShared()).toBeUndefined();
  vi.unstubAllGlobals();
  expect(takeShared()).toBeDefined();
  const { platform } = process;
  Object.defineProperty(process, "platform", { value: "win32" });
  expect(takeShared()).toBeUndefined();
  Object.defineProperty(process, "platform", { value: platform });
});

/** Returns bytes that differ at each place from those for another `number`. */
function makeBytes(length: number, number: number): Buffer {
  return Buffer.from(Uint8Array.from({ length }, (_, i) => i * 7 + (i >> 8) + number));
}

test("concurrent tunnels with slow readers on both sides carry only their own bytes", async () => {
  const COUNT = 4;
  upstream.script = (call) => {
    const { socket } = call.link.takeOver();
    socket.write("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n");
    socket.removeAllListeners("data");
    // The upstream echoes, and stops reading while its writes wait.
    socket.pipe(socket);
  };
  const proxy = createProxy({ target: upstream.url, upgrades: ["tcp"] });
  const server = createServer(proxy.nodeHandler);
  proxy.attach(server);
  const port = await apps.listen(server);
  const carry = async (number: number): Promise<void> => {
    const sent = makeBytes(3 * MIB + number, number);
    const client = connect(port, "127.0.0.1");
    client.write(request("GET", "/", offer("tcp")));
    const [head] = (await once(client, "data")) as [Buffer];
    expect(head.toString("latin1")).toMatch(/^HTTP\/1.1 101 .*\r\n\r\n$/s);
    client.pause();
    // The parts differ in size, and the client does not read before the tunnel is full in both directions.
    for (let at = 0, i = number; at < sent.length; i++) {
      const size = [20, 3_000, 66_000, 700_000][i % 4] as number;
      client.write(sent.subarray(at, at + size));
      at += size;
    }
    await settled(() => countUnsent(client));
    const received: Buffer[] = [];
    let length = 0;
    for await (const bytes of client) {
      received.push(bytes as Buffer);
      length += (bytes as Buffer).length;
      if (length >= sent.length) break;
      await new Promise(setImmediate);
    }
    expect(Buffer.concat(received).equals(sent)).toBe(true);
  };
  await Promise.all(Array.from({ length: COUNT }, (_, number) => carry(number)));
  await proxy.close(0);
});
