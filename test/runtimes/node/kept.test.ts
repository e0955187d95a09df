/** A chunk that other code has received never changes. */
import { once } from "node:events";
import { get, type IncomingMessage, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import * as streams from "node:stream";
import { afterAll, describe, expect, test } from "vitest";
import { createProxy } from "../../../runtimes/node.ts";
import { bodyOf, Keeper, startHttp, startSeeded } from "./_kept.ts";

const LENGTHS = [60_000, 65_536, 130_000, 1_000_000];

const upstream = await startSeeded();
const proxy = createProxy({ target: upstream.url });
let keeper = new Keeper();

function watch<T extends object>(target: T, names = ["write", "end"]): T {
  for (const name of names) {
    const original = Reflect.get(target, name) as (...args: unknown[]) => unknown;
    Reflect.set(target, name, function (this: unknown, ...args: unknown[]) {
      keeper.keep(args[0]);
      return original.apply(this, args);
    });
  }
  return target;
}

const WatchedResponse = watch(Object.create(ServerResponse.prototype) as ServerResponse);
const watchers: Record<string, (res: ServerResponse) => void> = {
  response: (res) => void watch(res),
  "response's write": (res) => void watch(res, ["write"]),
  "response's end": (res) => void watch(res, ["end"]),
  "response's prototype": (res) => void Object.setPrototypeOf(res, WatchedResponse),
  connection: (res) => void watch(res.socket as Socket),
};
const front = await startHttp((req, res) => {
  watchers[String(req.headers["x-watch"])]?.(res);
  proxy.nodeHandler(req, res);
});

afterAll(async () => {
  front.server.close();
  await proxy.close();
  upstream.server.close();
});

/** Reads a response only after `start`, so that chunks wait in the proxy. */
async function read(
  path: string,
  headers: Record<string, string> = {},
  start?: Promise<unknown>,
): Promise<Buffer> {
  const [response] = (await once(get(front.url + path, { headers }), "response")) as [
    IncomingMessage,
  ];
  await start;
  const pieces: Buffer[] = [];
  for await (const piece of response as AsyncIterable<Buffer>) pieces.push(piece);
  return Buffer.concat(pieces);
}

const framings = ["sized", "chunks"];

describe.each(framings)("response bodies (%s)", (framing) => {
  test("bodies of many concurrent exchanges are not mixed up", async () => {
    for (let round = 0; round < 3; round++) {
      const all = Array.from({ length: 32 }, async (_, i) => {
        const length = LENGTHS[i % LENGTHS.length] as number;
        const seed = round * 100 + i;
        const body = await read(`/${seed}/${length}/${framing}`);
        expect(body.equals(bodyOf(seed, length)), `${seed}: ${length}`).toBe(true);
      });
      await Promise.all(all);
    }
  });

  test("chunks that wait for a slow client are not overwritten", async () => {
    // These bodies are larger than the socket buffers, so chunks wait in the proxy.
    const length = 16_000_000;
    const gate = Promise.withResolvers<void>();
    const slow = [1, 2, 3, 4].map((seed) =>
      read(`/${seed}/${length}/${framing}`, {}, gate.promise),
    );
    for (let seed = 10; seed < 50; seed++) await read(`/${seed}/1000000/${framing}`);
    gate.resolve();
    for (const [i, body] of (await Promise.all(slow)).entries()) {
      expect(body.equals(bodyOf(i + 1, length))).toBe(true);
    }
  });

  test.each(Object.keys(watchers))("chunks do not change if the %s is wrapped", async (way) => {
    keeper = new Keeper();
    const paths = LENGTHS.map((length, i) => `/${i}/${length}/${framing}`);
    for (const path of paths) await read(path, { "x-watch": way, connection: "close" });
    // Other responses then pass through the same buffers.
    await Promise.all(paths.map((path) => read(path.replace("/", "/9"))));
    // The proxy passes a body to `end` only if the whole body is available, so `end` gets no chunk of other bodies.
    if (way !== "response's end" || framing === "sized")
      expect(keeper.kept.length).toBeGreaterThan(0);
    keeper.expectUnchanged();
  });

  // Node has `duplexPair` from 22.6 on.
  test.skipIf(streams.duplexPair === undefined)(
    "chunks are not overwritten while they wait in a connection that is not a socket of the operating system",
    async () => {
      const path = `/1/4000000/${framing}`;
      const [near, far] = streams.duplexPair();
      keeper = new Keeper();
      front.server.emit("connection", near);
      far.on("data", (piece) => keeper.keep(piece));
      far.write(`GET ${path} HTTP/1.1\r\nHost: proxy.test\r\nConnection: close\r\n\r\n`);
      await once(far, "end");
      await Promise.all([2, 3, 4].map((seed) => read(path.replace("1", `${seed}`))));
      expect(keeper.kept.reduce((sum, { piece }) => sum + piece.length, 0)).toBeGreaterThan(
        4_000_000,
      );
      keeper.expectUnchanged();
    },
  );
});

describe.each(framings)("%s: chunks of a web stream", (framing) => {
  test("each chunk has its own memory and can be transferred", async () => {
    const length = 900_000;
    const paths = [1, 2, 3, 4].map((seed) => `/${seed}/${length}/${framing}`);
    const transfer = async (path: string): Promise<void> => {
      const response = await proxy.fetch(new Request(`http://proxy.test${path}`));
      const buffers = new Set<ArrayBufferLike>();
      const pieces: Buffer[] = [];
      for await (const piece of response.body as ReadableStream<Uint8Array>) {
        expect(buffers.has(piece.buffer)).toBe(false);
        buffers.add(piece.buffer);
        pieces.push(Buffer.from(piece));
        structuredClone(piece, { transfer: [piece.buffer as ArrayBuffer] });
      }
      expect(Buffer.concat(pieces).equals(bodyOf(Number(path.split("/")[1]), length))).toBe(true);
    };
    await Promise.all(paths.map(transfer));
    await Promise.all(paths.map(transfer));
  });

  test("the memory of a chunk contains no bytes of another exchange", async () => {
    const length = 700_000;
    const other = bodyOf(1, 700_000);
    // Responses to other clients pass through the memory of the sockets first.
    await Promise.all([1, 1, 1].map((seed) => read(`/${seed}/${length}/${framing}`)));
    const response = await proxy.fetch(new Request(`http://proxy.test/2/${length}/${framing}`));
    for await (const piece of response.body as ReadableStream<Uint8Array>) {
      const memory = Buffer.from(piece.buffer);
      for (let at = 0; at + 64 <= other.length; at += 50_000) {
        expect(memory.includes(other.subarray(at, at + 64))).toBe(false);
      }
    }
  });
});

test("the body of a response can be read only once", async () => {
  const response = await proxy.fetch(new Request("http://proxy.test/1/70000/sized"));
  const body = Buffer.from(await response.arrayBuffer());
  expect(body.equals(bodyOf(1, 70_000))).toBe(true);
  await expect(response.text()).rejects.toThrow(TypeError);
});
