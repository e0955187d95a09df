/** A deterministic simulation of many upstreams: a virtual clock, and seeded chance. */
import { describe, expect, test } from "vitest";
import {
  type BalanceOptions,
  Balancer,
  byUri,
  type Chance,
  consistentHash,
  type PickRequest,
} from "../../../src/upstreams/balance.ts";
import { ProxyError } from "../../../src/error.ts";
import type { TargetAddress } from "../../../src/target/target.ts";

/** Mulberry32: a small generator of random numbers with a seed. */
function seeded(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let value = Math.imul(state ^ (state >>> 15), 1 | state);
    value = (value + Math.imul(value ^ (value >>> 7), 61 | value)) ^ value;
    return ((value ^ (value >>> 14)) >>> 0) / 2 ** 32;
  };
}

interface Upstream {
  /** Milliseconds until a response. */
  latency: number;
  isBad: boolean;
  requests: number;
  peak: number;
  active: number;
}

const REFUSED = new ProxyError("connection_refused");

/** Requests that arrive at a steady rate, and are answered after the latency of their upstream. */
class World {
  time = 0;
  readonly chance: Chance;
  readonly upstreams: Map<TargetAddress, Upstream> = new Map();
  readonly balancer: Balancer;
  failures = 0;
  refused = 0;
  /** The pending events, by the millisecond in which they happen. */
  readonly #later: Map<number, (() => void)[]> = new Map();

  constructor(count: number, options: BalanceOptions, seed = 1) {
    this.chance = { now: () => this.time, random: seeded(seed) };
    for (let i = 0; i < count; i++) {
      this.upstreams.set(`http://10.${i >> 16}.${(i >> 8) & 255}.${i & 255}:80`, {
        latency: 10,
        isBad: false,
        requests: 0,
        peak: 0,
        active: 0,
      });
    }
    this.balancer = new Balancer([...this.upstreams.keys()], options, this.chance);
  }

  at(index: number): Upstream {
    return [...this.upstreams.values()][index] as Upstream;
  }

  /** Lets the given time pass, and sends `perMillisecond` requests in each millisecond. */
  run(milliseconds: number, perMillisecond: number, pathOf = (n: number): string => `/${n}`): void {
    for (const end = this.time + milliseconds; this.time < end; this.time++) {
      for (const task of this.#later.get(this.time) ?? []) task();
      this.#later.delete(this.time);
      for (let i = 0; i < perMillisecond; i++) this.#ask(pathOf(this.time * perMillisecond + i));
    }
  }

  #ask(path: string): void {
    const request: PickRequest = { method: "GET", path, headers: [], clientAddress: path };
    const target = this.balancer.pick(request, []) as TargetAddress | undefined;
    if (target === undefined) return void this.refused++;
    const upstream = this.upstreams.get(target) as Upstream;
    upstream.requests++;
    upstream.peak = Math.max(upstream.peak, ++upstream.active);
    const { isBad, latency } = upstream;
    const over = (): void => {
      upstream.active--;
      if (isBad) this.failures++;
      const result = isBad
        ? { status: undefined, error: REFUSED }
        : { status: 200, error: undefined };
      if (!isBad) this.balancer.report({ target, ...result, latency, isOver: false });
      this.balancer.report({ target, ...result, latency, isOver: true });
    };
    const due = this.time + (isBad ? 1 : latency);
    const tasks = this.#later.get(due);
    if (tasks === undefined) this.#later.set(due, [over]);
    else tasks.push(over);
  }

  counts(): number[] {
    return Array.from(this.upstreams.values(), ({ requests }) => requests);
  }
}

const deviation = (values: number[]): number => {
  const mean = values.reduce((sum, each) => sum + each, 0) / values.length;
  return (
    Math.sqrt(values.reduce((sum, each) => sum + (each - mean) ** 2, 0) / values.length) / mean
  );
};

describe("many upstreams", () => {
  test.each([
    ["least_conn", 10_000, 1_000_000],
    ["round_robin", 1_000, 100_000],
    ["peak_ewma", 1_000, 100_000],
  ] as const)(
    "%s is fair to %i upstreams with %i requests",
    (policy, upstreams, requests) => {
      const world = new World(upstreams, { policy });
      world.run(requests / 100, 100);
      expect(world.counts().reduce((sum, each) => sum + each, 0)).toBe(requests);
      // Each upstream gets 100 requests on average. A random choice would give a deviation of 0.1.
      expect(deviation(world.counts())).toBeLessThan(policy === "round_robin" ? 0.001 : 0.2);
      expect(Math.min(...world.counts())).toBeGreaterThan(policy === "round_robin" ? 99 : 30);
    },
    60_000,
  );

  test("upstreams that fail are ejected, and return when they work", () => {
    const world = new World(1_000, { policy: "least_conn", outliers: { maxEjected: 0.5 } });
    const bad = [...world.upstreams.values()].slice(0, 100);
    for (const each of bad) each.isBad = true;
    world.run(2_000, 50);
    // Each bad upstream is ejected after five failures. Requests that were already running there may fail as well.
    expect(world.balancer.states().filter(({ state }) => state === "ejected")).toHaveLength(100);
    expect(world.failures).toBeGreaterThanOrEqual(500);
    expect(world.failures).toBeLessThan(520);
    for (const each of bad) each.isBad = false;
    const before = bad.reduce((sum, { requests }) => sum + requests, 0);
    world.run(60_000, 2);
    expect(bad.reduce((sum, { requests }) => sum + requests, 0)).toBeGreaterThan(before + 1_000);
  });
});

test("round_robin shares requests exactly by the weights", () => {
  const world = new World(3, { policy: "round_robin" });
  const [a, b] = [...world.upstreams.keys()] as [string, string];
  world.balancer.setWeight(a, 5);
  world.balancer.setWeight(b, 2);
  world.run(800, 1);
  expect(world.counts()).toEqual([500, 200, 100]);
});

test("least_conn and peak_ewma give an upstream with a higher weight more requests", () => {
  for (const policy of ["least_conn", "peak_ewma"] as const) {
    const world = new World(3, { policy });
    world.balancer.setWeight([...world.upstreams.keys()][0] as string, 2);
    world.run(10_000, 2);
    const [a = 0, b = 0, c = 0] = world.counts();
    expect(a / (a + b + c)).toBeGreaterThan(0.4);
    expect(a / (a + b + c)).toBeLessThan(0.65);
  }
});

test("peak_ewma sends a slow upstream less than 1 % of the requests", () => {
  const world = new World(10, { policy: "peak_ewma" });
  world.run(1_000, 2);
  world.at(0).latency = 1_000;
  const before = world.at(0).requests;
  world.run(5_000, 2);
  expect((world.at(0).requests - before) / 10_000).toBeLessThan(0.01);
});

test.each([
  ["least_conn", 0.02],
  ["peak_ewma", 0.002],
] as const)(
  "%s gives a slow upstream, one of three, at most the share %d of the requests",
  (policy, most) => {
    const world = new World(3, { policy });
    world.run(1_000, 1);
    const slow = world.at(0);
    slow.latency = 2_000;
    const before = slow.requests;
    world.run(20_000, 1);
    const share = (slow.requests - before) / 20_000;
    expect(share).toBeLessThan(most);
    // The slow upstream still gets a request from time to time, so it gets its full share when it is fast again.
    slow.latency = 10;
    world.run(60_000, 1);
    const late = slow.requests;
    world.run(10_000, 1);
    expect((slow.requests - late) / 10_000).toBeGreaterThan(0.2);
  },
);

test("if all three upstreams fail, only one of them is ejected, and no request is refused", () => {
  const world = new World(3, { policy: "round_robin" });
  world.at(0).isBad = true;
  world.run(100, 1);
  expect(world.balancer.states().map(({ state }) => state)).toEqual(["ejected", "up", "up"]);
  for (const each of world.upstreams.values()) each.isBad = true;
  world.run(10_000, 1);
  expect(world.refused).toBe(0);
  expect(world.balancer.states().filter(({ state }) => state === "ejected")).toHaveLength(1);
});

test("each ejection of an upstream takes longer than the previous one, and is followed by one request to the upstream", () => {
  const world = new World(3, { policy: "round_robin" });
  world.at(0).isBad = true;
  world.run(29_000, 1);
  expect(world.at(0).requests).toBe(5);
  world.run(2_000, 1);
  expect(world.at(0).requests).toBe(6);
  world.run(57_000, 1);
  expect(world.at(0).requests).toBe(6);
  world.run(3_000, 1);
  expect(world.at(0).requests).toBe(7);
});

test("an upstream that has returned gets its share gradually", () => {
  const world = new World(2, { policy: "round_robin", slowStart: 10_000 });
  world.at(0).isBad = true;
  world.run(100, 1);
  world.at(0).isBad = false;
  world.run(30_100, 1);
  const before = world.at(0).requests;
  world.run(1_000, 1);
  const early = world.at(0).requests - before;
  expect(early).toBeGreaterThan(50);
  expect(early).toBeLessThan(200);
  world.run(10_000, 1);
  const late = world.at(0).requests;
  world.run(1_000, 1);
  expect(world.at(0).requests - late).toBe(500);
});

describe("consistent hashing", () => {
  test("a key stays with its upstream, and few keys move when an upstream is removed", async () => {
    const world = new World(100, { policy: consistentHash(byUri) });
    const keys = Array.from({ length: 5_000 }, (_, i) => `/key/${i}`);
    const place = (): (TargetAddress | undefined)[] =>
      keys.map((path) => {
        const request: PickRequest = { method: "GET", path, headers: [], clientAddress: "" };
        const target = world.balancer.pick(request, []) as TargetAddress;
        world.balancer.report({ target, status: 200, error: undefined, latency: 1, isOver: true });
        return target;
      });
    const before = place();
    expect(place()).toEqual(before);
    const removed = before[0] as string;
    await world.balancer.remove(removed);
    const after = place();
    const moved = before.filter((target, i) => target !== removed && target !== after[i]).length;
    expect(moved / keys.length).toBeLessThan(0.03);
    expect(after).not.toContain(removed);
  });

  test("no upstream gets more than 1.25 times the average load", () => {
    const world = new World(100, { policy: "uri" });
    for (const each of world.upstreams.values()) each.latency = 100;
    // Half of all requests have the same key.
    world.run(5_000, 10, (n) => (n % 2 === 0 ? "/hot" : `/${n}`));
    expect(
      Math.max(...Array.from(world.upstreams.values(), ({ peak }) => peak)),
    ).toBeLessThanOrEqual(14);
  });
});

test("an upstream with a success rate far below that of the others is ejected", () => {
  const world = new World(20, { policy: "round_robin", outliers: { consecutiveFailures: 1_000 } });
  const random = seeded(7);
  const slow = world.at(3);
  // The upstream fails for a random quarter of the time, so that no series of failures gets long.
  for (let i = 0; i < 1_200; i++) {
    slow.isBad = random() < 0.25;
    world.run(10, 1);
  }
  expect(world.balancer.states()[3]?.state).not.toBe("up");
  expect(world.balancer.states().filter(({ state }) => state !== "up")).toHaveLength(1);
});

test("retries are limited to a fifth of the requests, plus ten a second", () => {
  const world = new World(2, {});
  const request: PickRequest = { method: "GET", path: "/", headers: [], clientAddress: "" };
  let allowed = 0;
  for (let i = 0; i < 1_000; i++) {
    void world.balancer.pick(request, []);
    world.time++;
    if (world.balancer.mayRetry()) allowed++;
  }
  expect(allowed).toBeGreaterThan(150);
  expect(allowed).toBeLessThan(240);
});

test("the simulation gives the same result with the same seed", () => {
  const [one, other] = [1, 1].map((seed) => {
    const world = new World(50, {}, seed);
    world.run(1_000, 5);
    return world.counts();
  });
  expect(one).toEqual(other);
});
