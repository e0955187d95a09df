import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { afterEach, describe, expect, test, vi } from "vitest";
import type { ProxyError } from "../../../src/error.ts";
import { Queue, type QueuedJob } from "../../../src/http1/queue.ts";
import type { Place, Places } from "../../../src/transport/claim.ts";
import { pause } from "../../helpers/wait.ts";

afterEach(() => void vi.useRealTimers());

class Item implements QueuedJob {
  place: Place | undefined;
  error: ProxyError | undefined;
  readonly name: string;
  readonly clientKey: string | undefined;

  constructor(name: string, clientKey?: string) {
    this.name = name;
    this.clientKey = clientKey;
  }

  fail(error: ProxyError): void {
    this.error = error;
  }
}

function queueOf(names: string, limits = {}): [Queue<Item>, Record<string, Item>] {
  const all = { maxSockets: 1, maxQueued: 1e6, queueTimeout: 0, minRate: 0, minRateGrace: 1 };
  const places: Places = { taken: 1, holders: () => [] };
  const queue = new Queue<Item>({ ...all, ...limits }, places);
  const items = Array.from(names, (name) => new Item(name));
  for (const item of items) queue.push(item);
  return [queue, Object.fromEntries(items.map((item) => [item.name, item]))];
}

function namesIn(queue: Queue<Item>): string {
  let names = "";
  for (let item = queue.shift(); item !== undefined; item = queue.shift()) names += item.name;
  expect(queue.length).toBe(0);
  return names;
}

test("requests leave the queue first in, first out", () => {
  const [queue] = queueOf("abcd");
  expect(queue.length).toBe(4);
  expect(namesIn(queue)).toBe("abcd");
  queue.push(new Item("e"));
  expect(namesIn(queue)).toBe("e");
});

test.each([
  ["a", "bcde"],
  ["c", "abde"],
  ["e", "abcd"],
  ["abcde", ""],
  ["edcba", ""],
  ["bd", "ace"],
  ["cc", "abde"],
])("after the removal of %s from abcde, the order is %s", (leaving, left) => {
  const [queue, items] = queueOf("abcde");
  for (const name of leaving) queue.remove(items[name] as Item);
  expect(queue.length).toBe(left.length);
  expect(namesIn(queue)).toBe(left);
  // An item that was removed can be added again.
  for (const name of new Set(leaving)) queue.push(items[name] as Item);
  expect(namesIn(queue)).toBe([...new Set(leaving)].join(""));
});

test("the queue holds at most maxQueued requests", () => {
  const [queue, items] = queueOf("abcd", { maxQueued: 2 });
  const failed = Object.values(items).map(({ error }) => error?.code);
  const limit = "connection_limit_reached";
  expect(failed).toEqual([undefined, undefined, limit, limit]);
  expect(items["c"]?.error?.status).toBe(503);
  expect(namesIn(queue)).toBe("ab");
});

test("a request waits no longer than queueTimeout, also if it is behind other requests", () => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance"] });
  const [queue, items] = queueOf("ab", { queueTimeout: 1000 });
  vi.advanceTimersByTime(400);
  for (const name of "cd") queue.push((items[name] = new Item(name)));
  queue.remove(items["a"] as Item);
  vi.advanceTimersByTime(610);
  expect(items["b"]?.error?.code).toBe("connection_limit_reached");
  expect([items["a"]?.error, items["c"]?.error, queue.length]).toEqual([undefined, undefined, 2]);
  vi.advanceTimersByTime(400);
  expect(items["d"]?.error).toBeDefined();
  expect(queue.length).toBe(0);
  queue.push((items["e"] = new Item("e")));
  vi.advanceTimersByTime(1010);
  expect(items["e"]?.error).toBeDefined();
});

describe("a removed request", () => {
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("gc") as () => void;

  test("is not kept in memory by the remaining requests", async () => {
    const [queue, items] = queueOf("abcde");
    const gone = Array.from("bcd", (name) => new WeakRef(items[name] as Item));
    for (const name of "cbd") queue.remove(items[name] as Item);
    for (const name of Object.keys(items)) delete items[name];
    // A WeakRef keeps its target alive until the current turn of the event loop ends.
    await pause(1);
    collect();
    expect(gone.map((each) => each.deref())).toEqual([undefined, undefined, undefined]);
    expect(namesIn(queue)).toBe("ae");
  });
});
