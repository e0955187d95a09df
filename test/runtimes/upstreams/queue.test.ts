/** Requests that wait because the upstreams have reached `maxRequests`. */
import { describe, expect, test } from "vitest";
import { createProxy } from "../../../runtimes/node.ts";
import { ProxyError } from "../../../src/error.ts";
import type { TargetAddress } from "../../../src/target/target.ts";
import type { Interceptor } from "../../../src/transport.ts";
import {
  balance,
  type BalanceOptions,
  Balancer,
  byUri,
  choose,
  consistentHash,
  type PickRequest,
  type Upstreams,
} from "../../../src/upstreams/balance.ts";
import { startUpstreams } from "../../helpers/upstreams.ts";
import { until } from "../../helpers/wait.ts";

/** The outcome of a request that may have to wait. */
interface Waiting {
  /** The upstream that the request got; undefined if it got none. */
  target: TargetAddress | undefined;
  isSettled: boolean;
  readonly request: PickRequest;
}

/** A balancer of hosts a, b, … that each take one request at a time by default, on a clock that the test sets. */
class Queue {
  readonly clock: { now: number } = { now: 0 };
  readonly target: Balancer;
  isAborted = false;

  constructor(count: number, options: BalanceOptions = {}) {
    const chance = { now: () => this.clock.now, random: () => 0 };
    const hosts = Array.from("abcdefgh".slice(0, count), (name) => `http://${name}.test`);
    this.target = new Balancer(hosts, { policy: "first", maxRequests: 1, ...options }, chance);
  }

  ask(path = "/", tried: readonly TargetAddress[] = [], more?: Partial<PickRequest>): Waiting {
    const request = { method: "GET", path, headers: [], clientAddress: undefined, ...more };
    const picked = this.target.pick(request, tried);
    if (!(picked instanceof Promise)) return { target: picked, isSettled: true, request };
    const waiting: Waiting = { target: undefined, isSettled: false, request };
    void picked.then((target) => Object.assign(waiting, { target, isSettled: true }));
    return waiting;
  }

  /** Ends a request of an upstream, with the error if one is passed, and with an answer otherwise. */
  async end(
    target: TargetAddress | undefined,
    error?: ProxyError,
    request?: PickRequest,
  ): Promise<void> {
    const status = error === undefined ? 200 : undefined;
    const asked = request && { request };
    const result = { target: target as TargetAddress, status, error, latency: 1, ...asked };
    if (error === undefined) this.target.report({ ...result, isOver: false });
    this.target.report({ ...result, isOver: true });
    await new Promise((resolve) => setImmediate(resolve));
  }

  /** The number of requests that wait for each particular upstream, followed by the number of all waiting requests. */
  get waiting(): number[] {
    return [...this.target.states().map(({ waiting }) => waiting), this.target.waiting];
  }
}

const A = "http://a.test";
const B = "http://b.test";
const sticky = (): BalanceOptions => ({ policy: consistentHash(byUri, { sticky: true }) });

/** Returns paths that consistent hashing sends to the host. */
function pathsTo(host: string, count: number): string[] {
  const queue = new Queue(2, { ...sticky(), maxRequests: Infinity });
  const all = Array.from({ length: 100 }, (_, n) => `/${n}`);
  return all.filter((path) => queue.ask(path).target === host).slice(0, count);
}

describe("the queue", () => {
  test("free places go to requests in the order of their arrival, whichever upstream has a place", async () => {
    const queue = new Queue(2);
    expect([queue.ask().target, queue.ask().target]).toEqual([A, B]);
    const waiting = [queue.ask(), queue.ask(), queue.ask()];
    expect(queue.waiting).toEqual([0, 0, 3]);
    await queue.end(B);
    expect(waiting.map(({ target }) => target)).toEqual([B, undefined, undefined]);
    await queue.end(A);
    expect(waiting.map(({ target }) => target)).toEqual([B, A, undefined]);
    expect(queue.waiting).toEqual([0, 0, 1]);
  });

  test("when an ejected upstream returns, a new request does not overtake a waiting request", async () => {
    const queue = new Queue(2, { outliers: { consecutiveFailures: 1 } });
    await queue.end(queue.ask().target, new ProxyError("connection_refused"));
    expect(queue.ask().target).toBe(B);
    const first = queue.ask();
    queue.clock.now = 30_001;
    const second = queue.ask();
    await until(() => first.isSettled, "the first request");
    expect(first.target).toBe(A);
    expect(second.isSettled).toBe(false);
  });

  test("a waiting request is sent when the ejection of an upstream ends, although no other request comes or ends", async () => {
    const queue = new Queue(2, { outliers: { consecutiveFailures: 1 }, minRateGrace: 10 });
    await queue.end(queue.ask().target, new ProxyError("connection_refused"));
    expect(queue.ask().target).toBe(B);
    const waiting = queue.ask();
    queue.clock.now = 30_001;
    await until(() => waiting.isSettled, "the request");
    expect(waiting.target).toBe(A);
  });

  test("the error of a request that has waited does not say that an ejected upstream is full", async () => {
    const queue = new Queue(2, { outliers: { consecutiveFailures: 1 }, queueTimeout: 20 });
    await queue.end(queue.ask().target, new ProxyError("connection_refused"));
    queue.ask();
    const { request } = queue.ask();
    await until(() => request.refusal !== undefined, "the end of the wait");
    expect(request.refusal?.message).toBe(
      "no place became free within 20 ms: every upstream has the 1 requests that maxRequests allows, or is down or ejected",
    );
  });

  test("at most maxQueue requests wait for each upstream that works", async () => {
    const queue = new Queue(3, { maxQueue: 2 });
    for (let i = 0; i < 3; i++) queue.ask();
    const waiting = Array.from({ length: 6 }, () => queue.ask());
    expect(waiting.every(({ isSettled }) => !isSettled)).toBe(true);
    expect(queue.ask()).toMatchObject({ target: undefined, isSettled: true });
    void queue.target.remove(A);
    await queue.end(B);
    expect(waiting[0]?.target).toBe(B);
    // Five requests wait, which is more than `maxQueue` allows for the two upstreams that are left.
    expect(queue.ask().isSettled).toBe(true);
  });

  test.each([
    ["requests of different client addresses take turns", "c", "aabb", "abab"],
    ["requests of a client address with more than its share come last", "aaaa", "aaabb", "bbaaa"],
  ])("%s", async (_, first, names, expected) => {
    const queue = new Queue(1, { maxRequests: first.length });
    const askFrom = (clientKey: string): Waiting => queue.ask("/", [], { claim: { clientKey } });
    const running = Array.from(first, askFrom);
    const waiting = Array.from(names, askFrom);
    let order = "";
    while (waiting.length > 0) {
      await queue.end(A, undefined, running.shift()?.request);
      const next = waiting.find((each) => each.isSettled) as Waiting;
      waiting.splice(waiting.indexOf(next), 1);
      running.push(next);
      order += next.request.claim?.clientKey;
    }
    expect(order).toBe(expected);
    expect(queue.waiting).toEqual([0, 0]);
  });

  test("a client address that fills the queue keeps no other out: its newest request is refused to make room", async () => {
    const queue = new Queue(1, { maxQueue: 2 });
    const askFrom = (clientKey: string): Waiting => queue.ask("/", [], { claim: { clientKey } });
    askFrom("a");
    const [first, second] = [askFrom("a"), askFrom("a")];
    const other = askFrom("b");
    await until(() => second?.isSettled, "the refusal");
    expect([second?.target, second?.request.refusal?.code]).toEqual([
      undefined,
      "connection_limit_reached",
    ]);
    expect([first?.isSettled, other.isSettled]).toEqual([false, false]);
    // Removing another request would be no fairer, so the new request itself is refused.
    const late = askFrom("b");
    expect([late.isSettled, late.request.refusal?.status]).toEqual([true, 503]);
  });

  test("a request whose client has disconnected is removed from the queue, and the next request is sent", async () => {
    const queue = new Queue(1, { maxQueue: 1 });
    queue.ask();
    const left = queue.ask("/", [], { isAborted: true });
    const next = queue.ask();
    await until(() => left.isSettled, "the request that was given up");
    expect(left.target).toBeUndefined();
    expect(next.isSettled).toBe(false);
    await queue.end(A);
    expect(next.target).toBe(A);
  });

  test("while a request waits for its second attempt, the upstream of the first attempt takes other requests", async () => {
    const queue = new Queue(2);
    const first = queue.ask();
    const second = queue.ask();
    const repeated = queue.ask("/", [A]);
    const other = queue.ask();
    await queue.end(first.target);
    expect([repeated.isSettled, other.target]).toEqual([false, A]);
    await queue.end(second.target);
    expect(repeated.target).toBe(B);
  });

  test("a request waits for queueTimeout at most", async () => {
    const queue = new Queue(1, { queueTimeout: 20 });
    queue.ask();
    const late = queue.ask();
    await until(() => late.isSettled, "the end of the wait");
    expect(late.target).toBeUndefined();
    expect(queue.waiting).toEqual([0, 0]);
    // No request takes the place that becomes free later.
    await queue.end(A);
    expect(queue.target.active).toBe(0);
  });

  test("with consistent hashing without `sticky`, a request goes to another upstream immediately", () => {
    const queue = new Queue(2, { policy: consistentHash(byUri) });
    const [one = "", other = ""] = pathsTo(A, 2);
    expect([queue.ask(one).target, queue.ask(other).target]).toEqual([A, B]);
  });
});

describe("sticky requests", () => {
  test("a sticky request waits for its upstream while another upstream is free", async () => {
    const queue = new Queue(2, sticky());
    const [one = "", other = ""] = pathsTo(A, 2);
    const [third = ""] = pathsTo(B, 1);
    expect(queue.ask(one).target).toBe(A);
    const waiting = queue.ask(other);
    expect(queue.waiting).toEqual([1, 0, 1]);
    // A request for the other upstream does not wait.
    expect(queue.ask(third).target).toBe(B);
    await queue.end(B);
    expect(waiting.isSettled).toBe(false);
    await queue.end(A);
    expect(waiting.target).toBe(A);
    expect(queue.waiting).toEqual([0, 0, 0]);
  });

  test("a sticky request goes to another upstream if maxQueue requests wait for its own upstream", () => {
    const queue = new Queue(2, { ...sticky(), maxQueue: 1 });
    const [one, two, three] = pathsTo(A, 3);
    expect(queue.ask(one).target).toBe(A);
    expect(queue.ask(two).isSettled).toBe(false);
    expect(queue.ask(three).target).toBe(B);
    // Both upstreams have a request now, and there is one more place in the queue, for either of them.
    expect(queue.ask(three).isSettled).toBe(false);
    expect(queue.ask(three)).toMatchObject({ target: undefined, isSettled: true });
  });

  test.each<[string, (queue: Queue) => Promise<void> | void]>([
    ["is removed", (queue) => void queue.target.remove(A)],
    ["is ejected", (queue) => queue.end(A, new ProxyError("connection_refused"))],
  ])("a sticky request goes to another upstream if its own %s", async (_, leave) => {
    const outliers = { consecutiveFailures: 1 };
    const queue = new Queue(2, { ...sticky(), maxRequests: 2, outliers });
    const [one, two, three] = pathsTo(A, 3);
    queue.ask(one);
    queue.ask(two);
    const waiting = queue.ask(three);
    // Upstream A still has a running request afterwards, so it does not become idle.
    await leave(queue);
    await until(() => waiting.isSettled, "another upstream");
    expect(waiting.target).toBe(B);
    expect(queue.waiting).toEqual([0, 0, 0]);
  });

  test("a waiting sticky request gets no upstream if all upstreams are removed", async () => {
    const queue = new Queue(2, sticky());
    const [one, two] = pathsTo(A, 2);
    queue.ask(one);
    const waiting = queue.ask(two);
    void queue.target.remove(B);
    void queue.target.remove(A);
    await until(() => waiting.isSettled, "the end of the wait");
    expect(waiting.target).toBeUndefined();
  });

  test("a sticky request goes to another upstream while a probe runs at its own upstream", async () => {
    const queue = new Queue(2, {
      ...sticky(),
      maxRequests: 9,
      outliers: { consecutiveFailures: 1 },
    });
    const [one, two] = pathsTo(A, 2);
    await queue.end(queue.ask(one).target, new ProxyError("connection_refused"));
    queue.clock.now = 30_001;
    expect([queue.ask(one).target, queue.ask(two).target]).toEqual([A, B]);
  });
});

test("over HTTP, waiting requests get their responses, and requests above maxQueue get 503 with Retry-After", async () => {
  await using upstreams = await startUpstreams(2);
  const target = balance(upstreams.urls, { maxRequests: 1, maxQueue: 1, queueTimeout: 60_000 });
  const proxy = createProxy({ target });
  const ask = (path: string): Promise<Response> =>
    proxy.fetch(new Request(`http://proxy.test${path}`));
  const held = [ask("/hold"), ask("/hold")];
  await until(() => upstreams.held === 2, "both requests");
  const waiting = [ask("/1"), ask("/2")];
  await until(() => target.waiting === 2, "two requests in the queue");
  const refused = await ask("/3");
  expect([refused.status, refused.headers.get("retry-after")]).toEqual([503, "1"]);
  const told = [...refused.headers].flat().join() + (await refused.text());
  for (const url of upstreams.urls) expect(told).not.toContain(new URL(url).port);
  upstreams.release();
  for (const each of [...held, ...waiting]) {
    const response = await each;
    expect(response.status).toBe(200);
    await response.text();
  }
  expect(upstreams.paths).not.toContain("/3");
  expect([target.active, target.waiting]).toEqual([0, 0]);
  await proxy.close();
});

test("an attempt stays in the queue when another attempt of the same request is answered", async () => {
  await using upstreams = await startUpstreams(1);
  const target = balance(upstreams.urls, { maxRequests: 1, queueTimeout: 60_000 });
  const twice: Interceptor = (next) => async (request, scope) => {
    const other = next(request, scope.fork());
    const waiting = next(request, scope);
    const { body } = await other;
    // Cancelling the body gives back the place of the first attempt, and the queue gives that place to the second one.
    body?.cancel();
    return waiting;
  };
  const proxy = createProxy({ target, interceptors: { request: [twice] } });
  const response = await proxy.fetch(new Request("http://proxy.test/"));
  expect([response.status, await response.text()]).toEqual([200, "0"]);
  expect([target.active, target.waiting]).toEqual([0, 0]);
  await proxy.close();
});

test("an attempt that gets no upstream, and the one that replaces it, count once in the retry budget", async () => {
  await using upstreams = await startUpstreams(1);
  const [url = ""] = upstreams.urls;
  let asked = 0;
  let paid = 0;
  let paidThen: number | undefined;
  const target: Upstreams = {
    choose,
    pick: (request, tried) => {
      if (tried.length === 0) return "http://127.0.0.1:9";
      if (++asked > 1) {
        paidThen ??= paid;
        return url;
      }
      // The second attempt waits until the first attempt has failed, and then gets no upstream.
      return new Promise((resolve) => (request.leave = () => resolve(undefined)));
    },
    mayRetry: () => ++paid > 0,
  };
  let fail: (() => void) | undefined;
  const hold: Interceptor = (next) => async (request, scope) => {
    if (request.upstream.origin === url) return next(request, scope);
    await new Promise<void>((resolve) => (fail = resolve));
    throw new ProxyError("connection_refused");
  };
  const proxy = createProxy({
    target,
    attemptTimeout: 5,
    retry: { attempts: 1 },
    interceptors: { attempt: [hold] },
  });
  const answer = proxy.fetch(new Request("http://proxy.test/"));
  await until(() => asked === 1, "the attempt that waits");
  fail?.();
  expect(await (await answer).text()).toBe("0");
  // `paidThen` is the count at the second retry. If that retry is slow, another one asks the budget later.
  expect(paidThen).toBe(1);
  await proxy.close();
});
