import { EventEmitter } from "node:events";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import type { NetSocket } from "../../../runtimes/sockets/netsocket.ts";
import { alternateFamilies, Race } from "../../../runtimes/sockets/race.ts";

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

/** A race in which the test decides the outcome of each attempt. */
class Attempts {
  /** What has happened, in order. */
  readonly events: string[] = [];
  readonly sockets: Map<string, EventEmitter> = new Map();
  readonly race: Race;
  error: unknown;
  openError: Error | undefined;

  constructor(limit = 10_000) {
    this.race = new Race(limit, {
      open: (address) => this.#open(address),
      onWon: (socket) => void this.events.push(`won ${addressOf(socket)}`),
      onLost: (error) => {
        this.error = error;
        this.events.push("lost");
      },
      onFailed: (address, isSlow) =>
        void this.events.push(`${isSlow ? "slow" : "failed"} ${address}`),
    });
  }

  #open(address: string): NetSocket {
    if (this.openError !== undefined) throw this.openError;
    this.events.push(`open ${address}`);
    const raw = new EventEmitter();
    this.sockets.set(address, raw);
    const destroy = (): void => {
      this.events.push(`close ${address}`);
      raw.emit("close");
    };
    return { raw, destroy, address } as unknown as NetSocket;
  }

  readonly connect = (address: string): void => {
    this.sockets.get(address)?.emit("connect");
  };

  readonly refuse = (address: string, code = "ECONNREFUSED"): void => {
    this.sockets.get(address)?.emit("error", Object.assign(new Error(code), { code, address }));
    this.sockets.get(address)?.emit("close");
  };
}

function begin(...addresses: string[]): Attempts {
  const attempts = new Attempts();
  attempts.race.start(addresses);
  return attempts;
}

function addressOf(socket: NetSocket): string {
  return (socket as unknown as { address: string }).address;
}

test("if the first address of a name answers soon, no other address is tried", () => {
  const { race, events, connect } = begin("a", "b");
  vi.advanceTimersByTime(249);
  connect("a");
  vi.advanceTimersByTime(10_000);
  expect(events).toEqual(["open a", "won a"]);
  race.stop();
  expect(events.at(-1)).toBe("close a");
});

test("after 250 ms the next address of a name is tried, and the first address may still connect first", () => {
  const { events, connect } = begin("a", "b", "c");
  vi.advanceTimersByTime(250);
  expect(events).toEqual(["open a", "open b"]);
  connect("a");
  // The lost attempt to b was started later, so b is not reported as slow.
  expect(events.slice(2)).toEqual(["close b", "won a"]);
  connect("b");
  vi.advanceTimersByTime(10_000);
  expect(events).toHaveLength(4);
});

test("an address is reported as slow, and its socket is closed, if a later address connects first", () => {
  const { events, connect } = begin("a", "b");
  vi.advanceTimersByTime(250);
  connect("b");
  connect("a");
  expect(events.slice(2)).toEqual(["slow a", "close a", "won b"]);
});

test("if an address refuses, the next one is tried immediately, and the attempt at a slow address continues", () => {
  const { events, connect, refuse } = begin("a", "b", "c");
  vi.advanceTimersByTime(250);
  refuse("b");
  expect(events).toEqual(["open a", "open b", "failed b", "open c"]);
  refuse("c");
  vi.advanceTimersByTime(5_000);
  connect("a");
  expect(events.slice(4)).toEqual(["failed c", "won a"]);
});

test("a refusal starts the next attempt immediately, and the attempt after that follows 250 ms later", () => {
  const { events, refuse } = begin("a", "b", "c");
  vi.advanceTimersByTime(200);
  refuse("a");
  vi.advanceTimersByTime(249);
  expect(events).toEqual(["open a", "failed a", "open b"]);
  vi.advanceTimersByTime(1);
  expect(events.at(-1)).toBe("open c");
});

test("with a time limit below 500 ms, the second address is tried after half of the limit", () => {
  const attempts = new Attempts(100);
  attempts.race.start(["a", "b"]);
  vi.advanceTimersByTime(50);
  expect(attempts.events).toEqual(["open a", "open b"]);
  const unlimited = new Attempts(0);
  unlimited.race.start(["a", "b"]);
  vi.advanceTimersByTime(249);
  expect(unlimited.events).toEqual(["open a"]);
});

describe("if all addresses fail", () => {
  test("the error of the only address of a name is passed on", () => {
    const attempts = begin("a");
    attempts.refuse("a");
    expect(attempts.error).toMatchObject({ code: "ECONNREFUSED", address: "a" });
  });

  test.each([
    [["ECONNREFUSED", "EADDRNOTAVAIL"]],
    [["EADDRNOTAVAIL", "ECONNREFUSED"]],
    [["ENETUNREACH", "ECONNREFUSED"]],
  ])(
    "the error of several addresses has the most informative code, and all errors: %j",
    (codes) => {
      const attempts = begin("a", "b");
      for (const [index, code] of codes.entries()) attempts.refuse("ab"[index] as string, code);
      const error = attempts.error as AggregateError & { code: string };
      expect(error.code).toBe("ECONNREFUSED");
      expect(error.errors).toMatchObject([{ address: "a" }, { address: "b" }]);
    },
  );
});

test("an address is not reported as failed if the process has no descriptor left", () => {
  const { events, refuse, connect } = begin("a", "b");
  vi.advanceTimersByTime(250);
  refuse("b", "EMFILE");
  connect("a");
  expect(events.slice(2)).toEqual(["won a"]);
});

describe("stopping a race of connection attempts", () => {
  test("`stop` closes all sockets, and nothing more is reported", () => {
    const { race, events, connect, refuse } = begin("a", "b", "c");
    vi.advanceTimersByTime(250);
    race.stop();
    expect(events.slice(2)).toEqual(["close a", "close b"]);
    connect("a");
    refuse("b");
    vi.advanceTimersByTime(10_000);
    expect(events).toHaveLength(4);
  });

  test("a race that is stopped before it begins opens no socket", () => {
    const { race, events } = new Attempts();
    race.stop();
    race.start(["a"]);
    expect(events).toEqual([]);
  });

  test("if the time is over, the addresses that were tried and have not answered are reported as slow", () => {
    const { race, events } = begin("a", "b");
    race.stop(true);
    expect(events.slice(1)).toEqual(["slow a", "close a"]);
  });
});

test("an exception of `open`, for example for an unusable option, ends the race", () => {
  const attempts = new Attempts();
  attempts.openError = new Error("bad certificate");
  attempts.race.start(["a", "b"]);
  expect(attempts.error).toBe(attempts.openError);
  vi.advanceTimersByTime(10_000);
  expect(attempts.events).toEqual(["lost"]);
});

test.each([
  ["4444", "4444"],
  ["66664", "64666"],
  ["6644", "6464"],
  ["466", "466"],
  ["", ""],
])("the families of addresses alternate: %s becomes %s", (given, expected) => {
  const addresses = Array.from(given, (family, index) => ({
    address: String(index),
    family: Number(family),
  }));
  const ordered = alternateFamilies(addresses);
  expect(ordered.map(({ family }) => family).join("")).toBe(expected);
  for (const family of [4, 6]) {
    const own = ordered.filter((each) => each.family === family);
    expect(own).toEqual(addresses.filter((each) => each.family === family));
  }
});
