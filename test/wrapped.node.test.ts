/** Monitoring agents that wrap Node's methods before or after Fetchway is loaded, and keep the chunks that they see. */
import { EventEmitter, once } from "node:events";
import { get, IncomingMessage, OutgoingMessage, request, ServerResponse } from "node:http";
import { Socket } from "node:net";
import { Duplex, Readable } from "node:stream";
import { buffer } from "node:stream/consumers";
import { afterAll, afterEach, describe, expect, test, vi } from "vitest";
import { createProxy } from "../runtimes/node.ts";
import { bodyOf, Keeper, startHttp, startSeeded } from "./_kept.ts";

const upstream = await startSeeded();
const proxies = {
  freeing: createProxy({ target: upstream.url }),
  reusing: createProxy({ target: upstream.url, pool: { reuseBuffers: true } }),
};
let keeper = new Keeper();

afterAll(async () => {
  await Promise.all([proxies.freeing.close(), proxies.reusing.close()]);
  upstream.server.close();
});

/** The methods of Node that an agent wraps. */
const prototypes: [name: string, prototype: object, method: string][] = [
  ["OutgoingMessage.write", OutgoingMessage.prototype, "write"],
  ["OutgoingMessage._send", OutgoingMessage.prototype, "_send"],
  ["ServerResponse.write", ServerResponse.prototype, "write"],
  ["Socket._write", Socket.prototype, "_write"],
  ["Socket._writev", Socket.prototype, "_writev"],
  ["Socket.write", Socket.prototype, "write"],
  ["Duplex.write", Duplex.prototype, "write"],
  ["Readable.push", Readable.prototype, "push"],
  ["Readable.on", Readable.prototype, "on"],
  ["EventEmitter.emit", EventEmitter.prototype, "emit"],
];

/** Keeps the chunks in the arguments of a method, those of `_writev`, and those that a "data" listener gets. */
function keepArguments(self: unknown, args: unknown[]): unknown[] {
  const [first, second] = args;
  keeper.keep(first);
  if (first === "data") keeper.keep(second);
  if (Array.isArray(first))
    for (const { chunk } of first as { chunk: unknown }[]) keeper.keep(chunk);
  // Listeners of sockets are not wrapped, because Node removes them again by identity.
  const listens = first === "data" && typeof second === "function";
  if (!listens || !(self instanceof IncomingMessage)) return args;
  const listener = second as (chunk: unknown) => void;
  return [first, (chunk: unknown) => (keeper.keep(chunk), listener(chunk))];
}

function wrap(prototype: object, method: string): void {
  const own = Object.getOwnPropertyDescriptor(prototype, method);
  const original = Reflect.get(prototype, method) as (...args: unknown[]) => unknown;
  Reflect.set(prototype, method, function (this: unknown, ...args: unknown[]) {
    return original.apply(this, keepArguments(this, args));
  });
  unwrap = () =>
    own === undefined
      ? void Reflect.deleteProperty(prototype, method)
      : void Object.defineProperty(prototype, method, own);
}

let unwrap = (): void => {};
afterEach(() => unwrap());

/** Uploads and downloads bodies through a handler, and expects that they arrive unchanged. */
async function exchange(url: string): Promise<void> {
  const body = bodyOf(7, 1_000_000);
  const upload = async (): Promise<void> => {
    const sent = request(`${url}/1/1000/sized`, {
      method: "POST",
      headers: { "content-length": body.length },
    });
    sent.end(body);
    const [response] = (await once(sent, "response")) as [IncomingMessage];
    await buffer(response);
  };
  for (let round = 0; round < 4; round++) {
    const downloads = [1, 2, 3].map(async (seed) => {
      const [response] = (await once(get(`${url}/${seed}/900000/sized`), "response")) as [
        IncomingMessage,
      ];
      expect((await buffer(response)).equals(bodyOf(seed, 900_000))).toBe(true);
    });
    await Promise.all([...downloads, upload()]);
  }
}

describe.each(prototypes)(
  "chunks that a monitoring agent keeps by wrapping %s never change",
  (...place) => {
    const [, prototype, method] = place;

    test.each(["freeing", "reusing"] as const)("after Fetchway was loaded, %s", async (mode) => {
      keeper = new Keeper();
      wrap(prototype, method);
      const { server, url } = await startHttp(proxies[mode].nodeHandler);
      await exchange(url);
      expect(keeper.kept.some(({ piece }) => piece.length > 16_384)).toBe(true);
      keeper.expectUnchanged();
      server.close();
    });

    test.each(["freeing", "reusing"])("before Fetchway was loaded, %s", async (mode) => {
      vi.resetModules();
      keeper = new Keeper();
      wrap(prototype, method);
      const { createProxy: createLate } = await import("../runtimes/node.ts");
      const late = createLate({ target: upstream.url, pool: { reuseBuffers: mode === "reusing" } });
      const { server, url } = await startHttp(late.nodeHandler);
      await exchange(url);
      expect(keeper.kept.some(({ piece }) => piece.length > 16_384)).toBe(true);
      keeper.expectUnchanged();
      await late.close();
      server.close();
    });
  },
);
