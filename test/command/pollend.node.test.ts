/** The times at which the command sends itself a signal, which ends libuv's polling. */
import { EventEmitter } from "node:events";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { endPollingFor, type Signals } from "../../command/serve/pollend.ts";

class FakeSignals extends EventEmitter {
  readonly pid = 7;
  sent = 0;

  kill(pid: number, signal: string): true {
    expect([pid, signal]).toEqual([7, "SIGURG"]);
    this.sent++;
    return true;
  }

  /** Lets `after` milliseconds pass, and then emits the signal once. */
  arrive(after: number): void {
    vi.advanceTimersByTime(after);
    this.emit("SIGURG");
  }
}

let server: EventEmitter;
let signals: FakeSignals;
let end: () => void;
beforeEach(() => {
  vi.useFakeTimers({ toFake: ["performance"] });
  server = new EventEmitter();
  signals = new FakeSignals();
  end = endPollingFor(server, signals as unknown as Signals);
});
afterEach(() => void vi.useRealTimers());

test("a new connection makes the process send itself a signal, and further ones cause no signal until it arrives", () => {
  for (let n = 0; n < 3; n++) server.emit("connection");
  expect(signals.sent).toBe(1);
  signals.arrive(1);
  server.emit("connection");
  expect(signals.sent).toBe(2);
});

test("while turns of the event loop are long, signals are sent until a second after the last connection", () => {
  server.emit("connection");
  for (let n = 0; n < 30; n++) signals.arrive(50);
  expect(signals.sent).toBe(20);
});

test("while a signal has not arrived, no other is sent", () => {
  for (let n = 0; n < 5; n++) {
    server.emit("connection");
    vi.advanceTimersByTime(500);
  }
  expect(signals.sent).toBe(1);
});

test("after the end, nothing listens for the signal", () => {
  end();
  expect(signals.listenerCount("SIGURG")).toBe(0);
});

test("the signal that a new connection causes, SIGURG, arrives in this process", async () => {
  const arrived = new Promise((resolve) => process.once("SIGURG", resolve));
  const real = new EventEmitter();
  const endReal = endPollingFor(real);
  real.emit("connection");
  await arrived;
  endReal();
});
