/** Bytes that arrived before a write failed are read, over real connections whose two ends are in this process. */
import { once } from "node:events";
import { connect, createServer, Socket as RawSocket } from "node:net";
import { connect as connectTls, createServer as createTlsServer } from "node:tls";
import { afterEach, expect, test, vi } from "vitest";
import { createProxy } from "../../../runtimes/node.ts";
import { isUnwrappedSocket } from "../../../runtimes/node/internals/wrapped.ts";
import { HeldError, isWorthHolding } from "../../../runtimes/sockets/heldwrite.ts";
import { NetSocket } from "../../../runtimes/sockets/netsocket.ts";
import { makeCertificate } from "../../helpers/certificate.ts";
import { listen } from "../../helpers/serve.ts";
import { Upstream } from "../../helpers/upstream.ts";

afterEach(() => void vi.useRealTimers());

const CLOSED = expect.stringMatching(/^(?:EPIPE|ECONNRESET)$/) as string;

interface Started {
  readonly raw: RawSocket;
  readonly socket: NetSocket;
  /** The calls of the handler, in order: text for bytes, the code of an error, or the name of the event. */
  readonly events: unknown[];
  readonly stop: () => void;
}

/**
 * Sends a part of an upload to a peer that does not read it, but sends its answer, if any, and closes the connection. All
 * of this, and then `act`, happens before the socket reads again.
 */
async function upload(
  answer: string,
  act: (started: Started) => void,
  change?: (raw: RawSocket) => void,
  certificate?: { cert: string; key: string },
): Promise<Started> {
  const { promise: accepted, resolve: accept } = Promise.withResolvers<RawSocket>();
  const server =
    certificate === undefined
      ? createServer({ noDelay: true }, accept)
      : createTlsServer({ ...certificate, noDelay: true }, accept);
  const port = await listen(server);
  const raw =
    certificate === undefined
      ? connect({ port, host: "127.0.0.1", allowHalfOpen: true })
      : connectTls({ port, host: "localhost", ca: certificate.cert });
  await once(raw, certificate === undefined ? "connect" : "secureConnect");
  const peer = await accepted;
  peer.on("error", () => {});
  change?.(raw);
  const socket = new NetSocket(raw);
  const events: unknown[] = [];
  socket.attach({
    onData: (bytes) => void events.push(Buffer.from(bytes).toString()),
    onHalfClose: () => void events.push("half close"),
    onDrain: () => void events.push("drain"),
    onError: (error) => void events.push((error as NodeJS.ErrnoException).code),
    onClose: () => void events.push("close"),
    onTimeout: () => void events.push("timeout"),
  });
  const started = { raw, socket, events, stop: () => server.close() };
  socket.write(Buffer.alloc(10_000));
  // If a socket with TLS is destroyed before this callback, the socket sends nothing.
  if (answer !== "") await new Promise((resolve) => peer.write(answer, resolve));
  peer.destroy();
  act(started);
  return started;
}

const closed = ({ raw }: Started): Promise<unknown> =>
  new Promise((resolve) => raw.once("close", resolve));

test("if a write fails while a response waits to be read, the response is read before the connection fails", async () => {
  const usable: boolean[] = [];
  const results: unknown[] = [];
  const started = await upload("too large", ({ raw, socket }) => {
    // On a busy machine, the timer of 200 ms could fire before the socket reads.
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
    usable.push(socket.usable, isUnwrappedSocket(raw));
    socket.write(Buffer.alloc(100), (error) => results.push(error));
    usable.push(socket.usable);
    // `write` must return true: a writer that waits until it may write again would wait for ever.
    expect(socket.write(Buffer.alloc(1_000_000), (error) => results.push(error))).toBe(true);
  });
  await closed(started);
  expect(started.events).toEqual(["too large", CLOSED, "close"]);
  expect(usable).toEqual([true, true, false]);
  expect(results.map((error) => error ?? undefined)).toEqual([undefined, undefined]);
  started.stop();
});

test("over TLS, a response that waits to be read when a write fails is still read", async () => {
  const started = await upload(
    "too large",
    ({ socket }) => void socket.write(Buffer.alloc(100)),
    undefined,
    await makeCertificate(),
  );
  await closed(started);
  expect(started.events).toEqual(["too large", CLOSED, "close"]);
  started.stop();
});

test("if no response waits, a write error is passed on when reading ends, without a timeout", async () => {
  const started = await upload("", ({ socket }) => {
    // From here on, no timer fires.
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
    socket.write(Buffer.alloc(100));
  });
  await closed(started);
  expect(started.events).toEqual([CLOSED, "close"]);
  expect(vi.getTimerCount()).toBe(0);
  started.stop();
});

test("a write error is held back while reading is paused", async () => {
  const started = await upload("too large", ({ raw, socket }) => {
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
    socket.pause();
    socket.write(Buffer.alloc(100));
    vi.advanceTimersByTime(10_000);
    expect(raw.destroyed).toBe(false);
    socket.resume();
  });
  await closed(started);
  expect(started.events).toEqual(["too large", CLOSED, "close"]);
  started.stop();
});

test("a connection that is destroyed while a write error is held back leaves no timer", async () => {
  const started = await upload("too large", ({ socket }) => {
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
    socket.write(Buffer.alloc(100));
    expect(vi.getTimerCount()).toBe(1);
    socket.destroy();
  });
  await closed(started);
  expect(vi.getTimerCount()).toBe(0);
  expect(started.events).toEqual(["close"]);
  started.stop();
});

test("on a runtime that does not report the result of a write, the error is passed on immediately", async () => {
  const started = await upload(
    "too large",
    ({ socket }) => void socket.write(Buffer.alloc(100)),
    (raw) => {
      const { _writableState: state } = raw as unknown as { _writableState: { onwrite: unknown } };
      Object.defineProperty(state, "onwrite", { value: state.onwrite, writable: false });
    },
  );
  await closed(started);
  expect(started.events).toEqual([CLOSED, "close"]);
  started.stop();
});

test("a write error is passed on after 200 ms if reading does not end", () => {
  vi.useFakeTimers();
  const raw = new RawSocket();
  const error = new Error("reset");
  const destroy = vi.spyOn(raw, "destroy");
  const held = new HeldError(raw, error);
  vi.advanceTimersByTime(199);
  expect(destroy).not.toHaveBeenCalled();
  vi.advanceTimersByTime(1);
  expect(destroy).toHaveBeenCalledWith(error);
  raw.on("error", () => {});
  held.clear();
});

test("only EPIPE and ECONNRESET are held back, and only on a connection that still reads", () => {
  const raw = new RawSocket();
  const failure = (code: string): NodeJS.ErrnoException => Object.assign(new Error(code), { code });
  for (const code of ["EPIPE", "ECONNRESET"]) expect(isWorthHolding(raw, failure(code))).toBe(true);
  expect(isWorthHolding(raw, failure("ETIMEDOUT"))).toBe(false);
  const ended = Object.create(raw, { readableEnded: { value: true } }) as RawSocket;
  expect(isWorthHolding(ended, failure("EPIPE"))).toBe(false);
  raw.destroy();
  expect(isWorthHolding(raw, failure("EPIPE"))).toBe(false);
});

test("a connection is not reused if an early response arrived on it after a failed write", async () => {
  const upstream = new Upstream();
  await upstream.listen();
  const proxy = createProxy({ target: upstream.url });
  let more = (): void => {};
  upstream.script = (call) => {
    if (call.target !== "/early") return call.reply(200, [], "next");
    call.link.socket.pause();
    // The answer is complete, and does not say that the connection closes. Destroy the socket, so that the next write fails.
    call.reply(413, [], "too large");
    call.link.socket.destroy();
    more();
  };
  const body = new ReadableStream<Uint8Array>({
    start(controller) {
      controller.enqueue(new Uint8Array(100_000));
      more = () => {
        controller.enqueue(new Uint8Array(100));
        controller.close();
      };
    },
  });
  const early = await proxy.fetch(
    new Request("http://proxy.test/early", { method: "POST", body, duplex: "half" } as RequestInit),
  );
  expect([early.status, await early.text()]).toEqual([413, "too large"]);
  const next = await proxy.fetch(new Request("http://proxy.test/next", { method: "POST" }));
  expect([next.status, await next.text()]).toEqual([200, "next"]);
  expect(upstream.calls.map(({ target }) => target)).toEqual(["/early", "/next"]);
  await proxy.close();
  await upstream.stop();
});
