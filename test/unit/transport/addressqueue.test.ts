/** The order in which requests of several addresses get places. */
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { AddressQueue } from "../../../src/transport/addressqueue.ts";
import type {
  Account,
  Claim,
  Holder,
  Place,
  Places,
  Waiting,
} from "../../../src/transport/claim.ts";

// Timers are fake: a queue in which requests wait starts a real one again and again, also during the tests that follow.
beforeEach(() => void vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] }));
afterEach(() => void vi.useRealTimers());

/** A request with a name such as `a1`. The first letter is the address of its client; `?` stands for an unknown address. */
class Item implements Waiting, Holder {
  place: Place | undefined;
  account: Account | undefined;
  readonly name: string;

  constructor(name: string) {
    this.name = name;
  }

  get clientKey(): string | undefined {
    return this.name.startsWith("?") ? undefined : this.name[0];
  }

  get claim(): Claim {
    return this;
  }
}

/** A bound on running requests: as many places as there are requests running at the start, and a queue for the others. */
class Bound implements Places {
  readonly running: Item[];
  readonly queue: AddressQueue<Item>;

  constructor(running: string) {
    this.running = itemsOf(running);
    this.queue = new AddressQueue<Item>(this, { minRate: 0, minRateGrace: 100 });
  }

  get taken(): number {
    return this.running.length;
  }

  holders(): Iterable<Holder> {
    return this.running;
  }

  add(names: string): Item[] {
    const items = itemsOf(names);
    for (const item of items) this.queue.add(item);
    return items;
  }

  /** Ends a running request, and gives its place to the first one in the queue. Returns the name of the latter. */
  end(name: string): string | undefined {
    const at = this.running.findIndex((each) => each.name === name);
    const [ended] = this.running.splice(at, 1);
    this.queue.end(ended as Item);
    const next = this.queue.first;
    if (next === undefined) return undefined;
    this.queue.serve(next);
    this.running.push(next);
    if (this.queue.isCounting) this.queue.start(next);
    return next.name;
  }

  /**
   * Ends each running request, the oldest first, until no request waits. Returns the names in the order in which they got
   * places.
   */
  drain(): string {
    const names: (string | undefined)[] = [];
    while (this.queue.length > 0) names.push(this.end(this.running[0]?.name ?? ""));
    return names.join(" ");
  }
}

function itemsOf(names: string): Item[] {
  return names
    .split(" ")
    .filter(Boolean)
    .map((name) => new Item(name));
}

describe("turns", () => {
  test("the requests of one address are served in the order of their arrival", () => {
    const bound = new Bound("a1 a2");
    bound.add("a3 a4 a5 a6");
    expect(bound.queue.isCounting).toBe(false);
    expect(bound.drain()).toBe("a3 a4 a5 a6");
  });

  test("two addresses alternate, although all requests of one came first", () => {
    const bound = new Bound("c1 c2");
    bound.add("a1 a2 a3 a4 b1 b2");
    expect(bound.drain()).toBe("a1 b1 a2 b2 a3 a4");
  });

  test("an address with more than its share comes after the others, until it has no more than its share", () => {
    const bound = new Bound("a1 a2 a3 a4");
    bound.add("a5 a6 b1 b2 b3 b4");
    expect(bound.end("a1")).toBe("b1");
    expect(bound.end("a2")).toBe("b2");
    // Each address now has two of four places, so the two addresses take turns.
    expect([bound.end("a3"), bound.end("b1")]).toEqual(["a5", "b3"]);
  });

  test("an address with no more than its share is not delayed by new addresses", () => {
    const bound = new Bound("a1 b1");
    bound.add("a2 c1 d1 e1");
    expect(bound.end("b1")).toBe("a2");
  });

  test("an address with more than its share is served when no other address waits", () => {
    const bound = new Bound("a1 a2 a3");
    bound.add("a4 b1");
    expect([bound.end("a1"), bound.end("a2")]).toEqual(["b1", "a4"]);
  });

  test("all clients with unknown addresses count as one address", () => {
    const bound = new Bound("a1");
    bound.add("?1 ?2 b1");
    expect(bound.drain()).toBe("?1 b1 ?2");
  });

  test("an address keeps its turn when its first request leaves the queue", () => {
    const bound = new Bound("c1");
    const [first] = bound.add("a1 a2 b1");
    bound.queue.remove(first as Item);
    bound.queue.remove(first as Item);
    expect(bound.queue.length).toBe(2);
    expect(bound.drain()).toBe("a2 b1");
  });

  test("inOrder yields the requests address by address, even if each request is removed when it is yielded", () => {
    const bound = new Bound("a1 a2 a3");
    bound.add("a4 b1 c1 b2");
    const names: string[] = [];
    for (const item of bound.queue.inOrder()) {
      names.push(item.name);
      bound.queue.remove(item);
    }
    expect(names.join(" ")).toBe("b1 b2 c1 a4");
    expect(bound.queue.length).toBe(0);
  });
});

describe("counting the running requests of each address", () => {
  test("counting begins when a second address waits, and ends when no request has waited for a while", () => {
    const bound = new Bound("a1 a2");
    bound.add("a3");
    expect(bound.running.map(({ account }) => account)).toEqual([undefined, undefined]);
    bound.add("b1");
    expect(bound.running[0]?.account?.running).toBe(2);
    bound.drain();
    expect(bound.queue.isCounting).toBe(true);
    vi.advanceTimersByTime(2_000);
    expect(bound.queue.isCounting).toBe(false);
    // Counting begins anew: the earlier accounts must have no effect.
    bound.add("a4 b2");
    expect(bound.running[0]?.account?.running).toBe(1);
    expect(bound.drain()).toBe("a4 b2");
  });

  test("a request that is started twice counts only once", () => {
    const bound = new Bound("a1 a2");
    bound.add("a3 b1");
    bound.queue.start(bound.running[0] as Item);
    expect(bound.running[0]?.account?.running).toBe(2);
  });

  test("a search for the next request counts no places while no request waits", () => {
    const bound = new Bound("a1");
    const taken = vi.spyOn(bound, "taken", "get");
    expect(bound.queue.first).toBe(undefined);
    expect(taken).not.toHaveBeenCalled();
  });
});

describe("a full queue", () => {
  test.each([
    ["a1 a2 a3 b1", "b2", "a3"],
    ["a1 a2 a3 b1", "c1", "a3"],
    ["a1 b1 b2 b3 a2", "c1", "b3"],
    // No request is removed here, because refusing the new one is equally fair.
    ["a1 a2 b1", "b2", undefined],
    ["a1 b1 c1", "d1", undefined],
    ["a1 a2 a3 b1", "a4", undefined],
  ])(
    "when %s fill the queue and %s arrives, the waiting request %s is refused",
    (waiting, newcomer, leaving) => {
      const bound = new Bound("c9");
      bound.add(waiting);
      expect(bound.queue.findSurplus(new Item(newcomer))?.name).toBe(leaving);
    },
  );
});
