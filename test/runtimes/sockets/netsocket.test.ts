/** `NetSocket` over a fake socket of `node:net`. The transports' tests cover the rest over real connections. */
import { EventEmitter } from "node:events";
import type { Socket as RawSocket } from "node:net";
import { expect, test } from "vitest";
import { MemoryReader, NetSocket } from "../../../runtimes/sockets/netsocket.ts";
import type { SocketHandler } from "../../../src/http1/connector.ts";

/** The part of a `node:net` socket that the class uses. */
class FakeRaw extends EventEmitter {
  allowHalfOpen = true;
  destroyed = false;
  writable = true;
  readableEnded = false;
  error: Error | undefined;

  write(_: unknown, done: (error?: Error) => void): boolean {
    done(this.error);
    return true;
  }

  destroy(): void {
    this.destroyed = true;
  }
}

function handler(events: unknown[]): SocketHandler {
  return {
    onData: (bytes, mayKeep) => void events.push(["data", bytes.byteLength, mayKeep]),
    onHalfClose: () => void events.push("half close"),
    onDrain: () => void events.push("drain"),
    onError: () => void events.push("error"),
    onClose: () => void events.push("close"),
    onTimeout: () => void events.push("timeout"),
  };
}

function start(): { raw: FakeRaw; socket: NetSocket } {
  const raw = new FakeRaw();
  return { raw, socket: new NetSocket(raw as unknown as RawSocket) };
}

test("each event calls the handler once, and the handler may keep the memory of a read", () => {
  const { raw, socket } = start();
  const events: unknown[] = [];
  socket.attach(handler(events));
  raw.emit("data", new Uint8Array(4));
  for (const event of ["end", "drain", "error", "timeout", "close"]) raw.emit(event);
  expect(events).toEqual([["data", 4, true], "half close", "drain", "error", "timeout", "close"]);
});

test("the handler may not keep the memory of a read if the socket always reads into the same buffer", () => {
  const reader = new MemoryReader(new Uint8Array(8));
  expect(reader.callback(8)).toBe(true);
  const socket = new NetSocket(new FakeRaw() as unknown as RawSocket, reader);
  const events: unknown[] = [];
  socket.attach(handler(events));
  for (const length of [3, 8]) expect(reader.callback(length)).toBe(true);
  expect(events).toEqual([
    ["data", 3, false],
    ["data", 8, false],
  ]);
});

test("the connection is closed if bytes are read before a handler is attached", () => {
  const { raw, socket } = start();
  socket.onRead(new Uint8Array(1));
  expect(raw.destroyed).toBe(true);
  const events: unknown[] = [];
  socket.attach(handler(events));
  socket.onRead(new Uint8Array(1));
  expect(events).toEqual([["data", 1, false]]);
});

test("`confirmEnd` waits for a successful empty write if the socket has `allowHalfOpen`", () => {
  for (const allowHalfOpen of [true, false]) {
    for (const error of [undefined, new Error("reset")]) {
      const { raw, socket } = start();
      Object.assign(raw, { allowHalfOpen, error });
      let confirmed = 0;
      socket.confirmEnd(() => void confirmed++);
      expect(confirmed).toBe(allowHalfOpen && error ? 0 : 1);
    }
  }
});

test.each(["destroyed", "readableEnded", "writable"] as const)(
  "`usable` becomes false when `%s` of the socket changes",
  (name) => {
    const { raw, socket } = start();
    expect(socket.usable).toBe(true);
    raw[name] = !raw[name];
    expect(socket.usable).toBe(false);
  },
);
