/** Buffers that sockets read into again and again: nobody's bytes may become another's. */
import { once } from "node:events";
import {
  createServer,
  get,
  type IncomingMessage,
  type RequestListener,
  type Server,
  ServerResponse,
} from "node:http";
import type { AddressInfo, Socket } from "node:net";
import { duplexPair } from "node:stream";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { isReusable, readTo, recycle } from "../runtimes/http/read.ts";
import { createProxy } from "../runtimes/node.ts";

const LENGTHS = [60_000, 65_536, 130_000, 1_000_000];

/** Bytes that no other seed has at the same places. */
function bodyOf(seed: number, length: number): Buffer {
  const words = new Uint32Array(Math.ceil(length / 4));
  let state = seed * 2_654_435_761 + 1;
  for (let i = 0; i < words.length; i++)
    words[i] = state = Math.imul(state, 1_664_525) + 1_013_904_223;
  return Buffer.from(words.buffer, 0, length);
}

async function listen(handler: RequestListener): Promise<{ server: Server; url: string }> {
  const server = createServer(handler).listen(0, "127.0.0.1");
  await once(server, "listening");
  return { server, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` };
}

/** Sends `bodyOf(seed, length)` for `/seed/length/framing`. */
const upstream = await listen((req, res) => {
  const [, seed, length, framing] = (req.url ?? "").split("/");
  const body = bodyOf(Number(seed), Number(length));
  if (framing === "sized") res.writeHead(200, { "content-length": length });
  if (framing === "chunks") {
    for (let at = 0; at < body.length; at += 40_000) res.write(body.subarray(at, at + 40_000));
    res.end();
  } else res.end(body);
});
const proxy = createProxy({ target: upstream.url });
/** What somebody who keeps what is written has seen, and what it was then. */
let kept: { piece: Uint8Array; copy: Buffer }[] = [];

function watch<T extends object>(target: T, names = ["write", "end"]): T {
  for (const name of names) {
    const original = Reflect.get(target, name) as (...args: unknown[]) => unknown;
    Reflect.set(target, name, function (this: unknown, ...args: unknown[]) {
      const [piece] = args;
      if (piece instanceof Uint8Array) kept.push({ piece, copy: Buffer.from(piece) });
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
const front = await listen((req, res) => {
  watchers[String(req.headers["x-watch"])]?.(res);
  proxy.nodeHandler(req, res);
});

afterAll(async () => {
  front.server.close();
  await proxy.close();
  upstream.server.close();
});

/** Reads a response, and nothing of it before `start`, so that pieces wait in the proxy. */
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

describe.each(["sized", "chunks"])("%s bodies", (framing) => {
  test("of many at once are each their own", async () => {
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

  test("that wait for their clients stay as they are", async () => {
    // More than the system takes off the proxy's hands.
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

  test.each(Object.keys(watchers))("are not written over where the %s is watched", async (way) => {
    kept = [];
    const paths = LENGTHS.map((length, i) => `/${i}/${length}/${framing}`);
    for (const path of paths) await read(path, { "x-watch": way, connection: "close" });
    const seen = kept;
    // Others come through the same buffers.
    await Promise.all(paths.map((path) => read(path.replace("/", "/9"))));
    // Only what is here as a whole is written by `end`.
    if (way !== "response's end" || framing === "sized") expect(seen.length).toBeGreaterThan(0);
    expect(seen.findIndex(({ piece, copy }) => !copy.equals(piece))).toBe(-1);
  });

  test("wait unharmed in a connection that is no socket of the system's", async () => {
    const path = `/1/4000000/${framing}`;
    const [near, far] = duplexPair();
    kept = [];
    front.server.emit("connection", near);
    far.on("data", (piece: Buffer) => kept.push({ piece, copy: Buffer.from(piece) }));
    far.write(`GET ${path} HTTP/1.1\r\nHost: proxy.test\r\nConnection: close\r\n\r\n`);
    await once(far, "end");
    await Promise.all([2, 3, 4].map((seed) => read(path.replace("1", `${seed}`))));
    expect(kept.reduce((sum, { piece }) => sum + piece.length, 0)).toBeGreaterThan(4_000_000);
    expect(kept.findIndex(({ piece, copy }) => !copy.equals(piece))).toBe(-1);
  });
});

describe("a read", () => {
  let pieces: Uint8Array[] = [];
  const { buffer, callback } = readTo((piece) => pieces.push(piece));
  /** Reads so many bytes of that value. */
  function readBytes(length: number, value: number): Uint8Array {
    const bytes = buffer();
    bytes.fill(value, 0, length);
    pieces = [];
    callback(length, bytes);
    expect(pieces).toHaveLength(1);
    return pieces[0] as Uint8Array;
  }

  beforeAll(() => void readBytes(1, 0));

  test.each([1, 1000, 65_536, 100_000])("of %d bytes is not changed by the next", (length) => {
    const first = readBytes(length, 1);
    readBytes(length, 2);
    expect(first).toHaveLength(length);
    expect(first.every((byte) => byte === 1)).toBe(true);
  });

  test.each([1, 1000, 100_000])(
    "of %d bytes can be transferred, and nothing else with it",
    (length) => {
      const [first, second] = [readBytes(length, 1), readBytes(length, 2)];
      structuredClone(first, { transfer: [first.buffer as ArrayBuffer] });
      expect(second.every((byte) => byte === 2)).toBe(true);
      expect([first.length, second.length]).toEqual([0, length]);
    },
  );

  test("that fills its buffer is followed by one into a buffer that is handed on", () => {
    const size = buffer().length;
    recycle(new Uint8Array(size));
    recycle(new Uint8Array(size));
    const first = readBytes(size, 1);
    const next = buffer();
    const second = readBytes(size, 2);
    expect(second.buffer).toBe(next.buffer);
    expect(first.every((byte) => byte === 1)).toBe(true);
    const third = readBytes(10, 3);
    expect(third).toHaveLength(10);
    expect(isReusable(third)).toBe(false);
    expect(second.every((byte) => byte === 2)).toBe(true);
  });

  test("goes into a buffer that was given back", () => {
    recycle(new Uint8Array(buffer().length));
    const first = readBytes(80_000, 1);
    recycle(first);
    const second = readBytes(80_000, 2);
    expect(second.buffer).toBe(first.buffer);
    // Middleware that keeps what is written, such as apicache, asks this.
    expect(Buffer.isBuffer(second)).toBe(true);
  });

  test("is as long as what came where no buffer comes back, but for some", () => {
    const reads = Array.from({ length: 200 }, () => readBytes(80_000, 1));
    const large = reads.filter(isReusable);
    expect(large.length).toBeGreaterThan(0);
    // Those that were kept before, too.
    expect(large.length).toBeLessThan(100);
  });
});

test("a body is taken once", async () => {
  const response = await proxy.fetch(new Request("http://proxy.test/1/70000/sized"));
  const body = Buffer.from(await response.arrayBuffer());
  expect(body.equals(bodyOf(1, 70_000))).toBe(true);
  await expect(response.text()).rejects.toThrow(TypeError);
});
