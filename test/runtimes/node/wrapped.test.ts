/** Monitoring agents that wrap Node's methods before or after Fetchway first uses them, and keep the chunks that they see. */
import { EventEmitter, once } from "node:events";
import { get, IncomingMessage, OutgoingMessage, request, ServerResponse } from "node:http";
import { Agent, createServer } from "node:https";
import { Socket } from "node:net";
import { Duplex, Readable } from "node:stream";
import { buffer } from "node:stream/consumers";
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from "vitest";
import { createProxy } from "../../../runtimes/node.ts";
import { makeCertificate } from "../../helpers/certificate.ts";
import { bodyOf, Keeper, sendSeeded, startHttp, startSeeded } from "./_kept.ts";
import { listen } from "../../helpers/serve.ts";

const upstream = await startSeeded();
const proxy = createProxy({ target: upstream.url });
let keeper = new Keeper();

afterAll(async () => {
  await proxy.close();
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

/** Uploads bodies to a server, downloads others from it, and expects that the downloads arrive unchanged. */
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

/** Sends the first request: Fetchway then captures Node's own methods. */
beforeAll(async () => {
  const { server, url } = await startHttp(proxy.nodeHandler);
  await exchange(url);
  server.close();
});

describe.each(prototypes)(
  "a monitoring agent that wraps %s and keeps the chunks it sees",
  (...place) => {
    const [, prototype, method] = place;

    test("the kept chunks never change if the agent wraps the method after the first request", async () => {
      keeper = new Keeper();
      wrap(prototype, method);
      const { server, url } = await startHttp(proxy.nodeHandler);
      await exchange(url);
      expect(keeper.kept.some(({ piece }) => piece.length > 16_384)).toBe(true);
      keeper.expectUnchanged();
      server.close();
    });

    test("the kept chunks never change if the agent wraps the method before the first request", async () => {
      vi.resetModules();
      keeper = new Keeper();
      wrap(prototype, method);
      const { createProxy: createLate } = await import("../../../runtimes/node.ts");
      const late = createLate({ target: upstream.url });
      const { server, url } = await startHttp(late.nodeHandler);
      await exchange(url);
      expect(keeper.kept.some(({ piece }) => piece.length > 16_384)).toBe(true);
      keeper.expectUnchanged();
      await late.close();
      server.close();
    });
  },
);

/** Calls back with each socket that connects to an upstream with TLS. */
function onConnect(callback: (socket: Socket) => void): void {
  const { prototype } = Agent as unknown as {
    prototype: { createConnection: (this: Agent, ...args: unknown[]) => Socket };
  };
  const original = prototype.createConnection;
  prototype.createConnection = function (...args) {
    const socket = original.apply(this, args);
    callback(socket);
    return socket;
  };
  unwrap = () => void (prototype.createConnection = original);
}

const keep = (chunk: Buffer): void => keeper.keep(chunk);
/** Keeps one chunk after the first. When the proxy's own listener gets that chunk, the listener that keeps it is removed already. */
function keepLater(socket: Socket): void {
  socket.once("data", () => setImmediate(() => socket.prependOnceListener("data", keep)));
}

/** Ways in which other code gets the chunks that a socket with TLS reads. */
const readers: [name: string, watch: () => void][] = [
  ["a listener of the socket", () => onConnect((socket) => socket.on("data", keep))],
  ["a `once` listener of the socket", () => onConnect(keepLater)],
  [
    "a wrapped `push` of the socket",
    () =>
      onConnect((socket) => {
        socket.push = (chunk: unknown) => (
          keeper.keep(chunk),
          Readable.prototype.push.call(socket, chunk)
        );
      }),
  ],
  ["a wrapped Readable.push", () => wrap(Readable.prototype, "push")],
  ["a wrapped EventEmitter.emit", () => wrap(EventEmitter.prototype, "emit")],
];

test.each(readers)(
  "the chunks of a response over TLS do not change after %s has kept them",
  async (...way) => {
    const [, watch] = way;
    const certificate = await makeCertificate();
    const secure = createServer(certificate, sendSeeded);
    const target = `https://localhost:${await listen(secure)}`;
    const secureProxy = createProxy({ target, pool: { tls: { ca: certificate.cert } } });
    const { server, url } = await startHttp(secureProxy.nodeHandler);
    keeper = new Keeper();
    watch();
    const [response] = (await once(get(`${url}/1/2000000/sized`), "response")) as [IncomingMessage];
    expect((await buffer(response)).equals(bodyOf(1, 2_000_000))).toBe(true);
    expect(keeper.kept.length).toBeGreaterThan(0);
    keeper.expectUnchanged();
    await secureProxy.close();
    secure.close();
    server.close();
  },
);
