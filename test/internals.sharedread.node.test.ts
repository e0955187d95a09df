/** Sockets read into one buffer of the process: no byte of one connection may reach another. */
import { once } from "node:events";
import { createServer as createHttpServer } from "node:http";
import { connect, createServer, type Socket } from "node:net";
import { expect, test, vi } from "vitest";
import { createProxy } from "../runtimes/node.ts";
import { countUnsent } from "../command/limits/writequeue.ts";
import { takeShared, readIntoShared } from "../runtimes/node/internals/sharedread.ts";
import { watchReads } from "../runtimes/node/internals/wrapped.ts";
import { useApps } from "./_apps.ts";
import { offer } from "./_handshake.ts";
import { settled, until } from "./_wait.ts";
import { request } from "./_wire.ts";

const apps = useApps();
const MIB = 1024 * 1024;

/** Opens a connection, and returns both of its ends. */
async function connectPair(): Promise<[client: Socket, served: Socket]> {
  const server = createServer({ pauseOnConnect: true });
  const port = await apps.listen(server);
  const client = connect(port, "127.0.0.1");
  const [served] = (await once(server, "connection")) as [Socket];
  return [client, served];
}

/** Returns bytes that differ from those of every other number at each place. */
function makeBytes(length: number, number: number): Buffer {
  return Buffer.from(Uint8Array.from({ length }, (_, i) => i * 7 + (i >> 8) + number));
}

test("a socket of a server reads into the same memory each time, pauses, and ends", async () => {
  const [client, served] = await connectPair();
  const [other, second] = await connectPair();
  const memory = new Set<ArrayBufferLike>();
  let text = "";
  const take = (bytes: Uint8Array): void => {
    memory.add(bytes.buffer);
    text += Buffer.from(bytes).toString("latin1");
  };
  const onData = vi.fn();
  served.on("data", onData);
  const hasEnded = once(served, "end");
  const isSeen = (): boolean => false;
  expect([readIntoShared(served, take, isSeen), readIntoShared(second, take, isSeen)]).toEqual([
    true,
    true,
  ]);
  served.resume();
  second.resume();
  client.write("one");
  await until(() => text === "one", "the first bytes");
  other.write("two");
  await until(() => text === "onetwo", "the bytes of the other socket");
  served.pause();
  client.write("three");
  await settled(() => text.length);
  expect(text).toBe("onetwo");
  served.resume();
  await until(() => text === "onetwothree", "the bytes that have waited");
  client.end();
  await hasEnded;
  expect(memory.size).toBe(1);
  expect(onData).not.toHaveBeenCalled();
  for (const socket of [client, served, other, second]) socket.destroy();
});

test("code that listens to a socket, or has wrapped its methods, gets bytes that do not change", async () => {
  const [client, served] = await connectPair();
  const take = vi.fn();
  const own: Buffer[] = [];
  const isSeen = watchReads(served);
  served.on("data", (bytes) => own.push(bytes));
  expect(readIntoShared(served, take, isSeen)).toBe(true);
  served.resume();
  client.write("1");
  await until(() => take.mock.calls.length === 1, "the shared bytes");
  const others: Buffer[] = [];
  const emit = served.emit.bind(served) as (event: string, bytes: Buffer) => boolean;
  Object.assign(served, {
    emit(event: string, bytes: Buffer) {
      if (event === "data") others.push(bytes);
      return emit(event, bytes);
    },
  });
  client.write("2");
  await until(() => others.length === 1, "the bytes for the wrapper");
  Reflect.deleteProperty(served, "emit");
  client.write("3");
  await until(() => take.mock.calls.length === 2, "the shared bytes afterwards");
  served.once("data", (bytes) => void others.push(bytes));
  client.write("4");
  await until(() => others.length === 2, "the bytes for the listener");
  // The proxy's own listener gets the bytes that others see, and only those.
  expect([own.join(""), others.join("")]).toEqual(["24", "24"]);
  client.destroy();
  served.destroy();
});

test("a socket that cannot share memory, with TLS, or with bytes that wait is left as it is", async () => {
  const [client, served] = await connectPair();
  const take = vi.fn();
  const share = (socket: Socket): boolean => readIntoShared(socket, take, () => false);
  const { _handle: handle } = served as unknown as { _handle: { useUserBuffer: unknown } };
  const change = (members: object): Socket =>
    Object.assign(Object.create(served), members) as Socket;
  const symbols = Object.getOwnPropertySymbols(served);
  expect(symbols.map(({ description }) => description)).toContain("kBuffer");
  // An object that inherits from the socket has no symbols of its own, as if Node had renamed them.
  expect(share(change({}))).toBe(false);
  expect(share(change({ encrypted: true }))).toBe(false);
  expect(takeShared()).toBeDefined();
  vi.stubGlobal("Deno", {});
  expect([takeShared(), share(served)]).toEqual([undefined, false]);
  vi.unstubAllGlobals();
  const { platform } = process;
  Object.defineProperty(process, "platform", { value: "win32" });
  expect([takeShared(), share(served)]).toEqual([undefined, false]);
  Object.defineProperty(process, "platform", { value: platform });
  const { useUserBuffer } = handle;
  for (const replaced of [undefined, () => expect.fail("as on Deno")]) {
    handle.useUserBuffer = replaced;
    expect(share(served)).toBe(false);
  }
  handle.useUserBuffer = useUserBuffer;
  served.unshift(Buffer.from("waits"));
  expect(share(served)).toBe(false);
  const waiting = once(served, "data");
  served.resume();
  const [data] = (await waiting) as [Buffer];
  expect(data.toString()).toBe("waits");
  expect(take).not.toHaveBeenCalled();
  client.destroy();
  served.destroy();
});

test("many tunnels with slow readers on both sides carry their own bytes only", async () => {
  const COUNT = 4;
  apps.upstream.script = (call) => {
    const { socket } = call.link.takeOver();
    socket.write("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n");
    socket.removeAllListeners("data");
    // It echoes, and stops reading while its own writes wait.
    socket.pipe(socket);
  };
  const proxy = createProxy({ target: apps.upstream.url, upgrades: ["tcp"] });
  const server = createHttpServer(proxy.nodeHandler);
  proxy.attach(server);
  const port = await apps.listen(server);
  const carry = async (number: number): Promise<void> => {
    const sent = makeBytes(3 * MIB + number, number);
    const client = connect(port, "127.0.0.1");
    client.write(request("GET", "/", offer("tcp")));
    const [head] = (await once(client, "data")) as [Buffer];
    expect(head.toString("latin1")).toMatch(/^HTTP\/1.1 101 .*\r\n\r\n$/s);
    client.pause();
    // Parts of all sizes; the client does not read before the tunnel is full in both directions.
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
}, 30_000);
