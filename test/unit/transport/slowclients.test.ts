/** Requests whose clients are slower than `minRate` are ended while requests of other addresses wait. */
import { describe, expect, test } from "vitest";
import { PassSink } from "../../../src/body/pass.ts";
import type { Sink } from "../../../src/body/source.ts";
import type { ProxyError } from "../../../src/error.ts";
import { Account, type Claim, type Holder } from "../../../src/transport/claim.ts";
import { countTaken, SlowClients } from "../../../src/transport/slowclients.ts";

class Running implements Claim, Holder {
  /** The number of bytes that the client has transferred; undefined while the request does not wait for its client. */
  clientBytes: number | undefined = 0;
  error: ProxyError | undefined;
  readonly account: Account;

  constructor(account: Account) {
    this.account = account;
    account.running++;
  }

  get claim(): Claim {
    return this;
  }

  endSlow(reason: ProxyError): void {
    this.error = reason;
    this.clientBytes = undefined;
    this.account.running--;
  }
}

/**
 * Running requests of one address, which are checked once a second. `minRate` is 240 bytes a second, and the grace period
 * is 5 s.
 */
class Scene {
  readonly greedy: Account = new Account("a");
  readonly requests: Running[];
  readonly slow: SlowClients = new SlowClients({ minRate: 240, minRateGrace: 5000 }, 1000);
  share = 2;
  /** The number of waiting requests of other addresses. */
  others = 100;

  constructor(count: number) {
    this.requests = Array.from({ length: count }, () => new Running(this.greedy));
  }

  /**
   * Checks the requests `times` times. Before each check, each client transfers `bytes` bytes.
   * @returns the number of requests that have been ended so far
   */
  look(times: number, bytes = 0): number {
    for (let i = 0; i < times; i++) {
      for (const request of this.requests) {
        if (request.clientBytes !== undefined) request.clientBytes += bytes;
      }
      this.slow.check(this.requests, this.share, () => this.others);
    }
    return this.requests.filter(({ error }) => error !== undefined).length;
  }
}

test("a request whose client transfers nothing is ended after the grace period", () => {
  const scene = new Scene(3);
  expect(scene.look(5)).toBe(0);
  expect(scene.look(1)).toBe(1);
  const error = scene.requests.find((each) => each.error !== undefined)?.error;
  expect([error?.code, error?.status]).toEqual(["http_request_error", 408]);
  expect(error?.message).toMatch(/fewer than 240 bytes a second \(minRate\) while others waited/);
});

test.each([
  ["of minRate is kept", 240, 0],
  ["above minRate is kept", 10_000, 0],
  ["a little below minRate is kept for a long time", 239, 0],
  ["far below minRate is ended", 20, 1],
])("the request of a client with a rate %s", (_, bytes, ended) => {
  expect(new Scene(3).look(8, bytes)).toBe(ended);
});

test("bytes that a client transfers above the rate are not credited for later", () => {
  const scene = new Scene(3);
  scene.look(3, 1_000_000);
  expect(scene.look(4)).toBe(0);
  expect(scene.look(1)).toBe(1);
});

test("time in which a request does not wait for its client does not count against the client", () => {
  const scene = new Scene(3);
  scene.look(4);
  for (const request of scene.requests) request.clientBytes = undefined;
  scene.look(10);
  for (const request of scene.requests) request.clientBytes = 0;
  expect(scene.look(5)).toBe(0);
  expect(scene.look(1)).toBe(1);
});

test("an address keeps its share of the places, however slow its clients are", () => {
  const scene = new Scene(5);
  scene.share = 3;
  expect(scene.look(100)).toBe(2);
});

test("an address with a fraction of a place above its share gives up one place", () => {
  const scene = new Scene(2);
  scene.share = 4 / 3;
  expect(scene.look(100)).toBe(1);
});

test("one check ends at most as many requests as other addresses have waiting", () => {
  const scene = new Scene(10);
  scene.others = 3;
  expect(scene.look(6)).toBe(3);
  scene.others = 0;
  expect(scene.look(20)).toBe(3);
});

test("an address keeps all places if no other address has a waiting request", () => {
  const scene = new Scene(10);
  scene.others = 0;
  expect(scene.look(100)).toBe(0);
});

test("time in which only requests of the same address wait does not count against a slow client", () => {
  const scene = new Scene(3);
  scene.others = 0;
  scene.look(20);
  scene.others = 1;
  expect(scene.look(5)).toBe(0);
  expect(scene.look(1)).toBe(1);
});

test("the grace period starts again after a time without waiting requests", () => {
  const scene = new Scene(3);
  scene.look(5);
  scene.slow.forget();
  expect(scene.look(5)).toBe(0);
});

describe("countTaken", () => {
  const sink: Sink = {
    write: () => false,
    onDrain() {},
    end() {},
    fail() {},
  };

  test.each<[string, object | undefined, number | undefined]>([
    ["a sink that has room", undefined, undefined],
    ["a sink that knows only whole chunks", sink, 1000],
    ["a sink that knows the unsent bytes", { ...sink, unsent: 300 }, 700],
    ["a sink behind another", new PassSink({ ...sink, unsent: 300 }), 700],
    ["an unread stream", new PassSink({ ...sink, isUnread: true }), undefined],
  ])("counts the bytes that the reader has taken: %s", (_, reader, taken) => {
    expect(countTaken(reader, 1000)).toBe(taken);
  });
});
