/** The states of the upstreams of `balance`, consistent hashing, and the options of `balance`. */
import { describe, expect, test } from "vitest";
import { ProxyError } from "../../../src/error.ts";
import type { TargetAddress } from "../../../src/target/target.ts";
import {
  balance,
  type BalanceOptions,
  type StateChange,
  Balancer,
  byCookie,
  byHeader,
  byUri,
  consistentHash,
  type Member,
  type PickRequest,
  type Policy,
  sticky,
} from "../../../src/upstreams/balance.ts";
import { until } from "../../helpers/wait.ts";

const REFUSED = new ProxyError("connection_refused");
const GET: PickRequest = { method: "GET", path: "/", headers: [], clientAddress: "10.0.0.1" };

/** Creates a balancer of the hosts a, b, …, with a clock that the test sets. */
function setUp(
  count: number,
  options: BalanceOptions = {},
): { clock: { now: number }; target: Balancer } {
  const clock = { now: 0 };
  const chance = { now: () => clock.now, random: () => 0 };
  const hosts = Array.from("abcdefgh".slice(0, count), (name) => `http://${name}.test`);
  return { clock, target: new Balancer(hosts, { policy: "first", ...options }, chance) };
}

function pick(target: Balancer, request: PickRequest = GET): TargetAddress | undefined {
  return target.pick(request, []) as TargetAddress | undefined;
}

function fail(target: Balancer, address: TargetAddress, times = 1): void {
  for (let i = 0; i < times; i++) {
    target.report({
      target: address,
      status: undefined,
      error: REFUSED,
      latency: 1,
      isOver: false,
    });
  }
}

const statesOf = (target: Balancer): string[] => target.states().map(({ state }) => state);

describe("an upstream", () => {
  test("an ejection is reported once, and the return of the upstream is reported once", async () => {
    const changes: string[] = [];
    const onStateChange = ({ name, state, previous, reason }: StateChange): void =>
      void changes.push(`${name} ${previous} → ${state}: ${reason}`);
    const { clock, target } = setUp(2, { onStateChange });
    fail(target, "http://a.test", 20);
    await until(() => changes.length > 0, "the ejection");
    expect(changes).toEqual([
      "http://a.test up → ejected: 5 failures in a row, last: connection_refused",
    ]);
    clock.now = 30_001;
    expect(pick(target)).toBe("http://a.test");
    await Promise.resolve();
    expect(changes).toHaveLength(1);
    const answer = { status: 200, error: undefined, latency: 1, isOver: false };
    target.report({ target: "http://a.test", ...answer });
    await until(() => changes.length > 1, "the return");
    expect(changes.slice(1)).toEqual(["http://a.test ejected → up: a request succeeded"]);
  });

  test("an upstream has the reason and the time of its last change, also while it is half-open", () => {
    const { clock, target } = setUp(2);
    const changeOf = (i: number): object => {
      const { state, reason, since } = target.states()[i] ?? {};
      return { state, reason, since };
    };
    expect(changeOf(0)).toEqual({ state: "up", reason: undefined, since: undefined });
    const before = Date.now();
    fail(target, "http://a.test", 5);
    const { since = 0 } = target.states()[0] ?? {};
    expect(since).toBeGreaterThanOrEqual(before);
    expect(since).toBeLessThanOrEqual(Date.now());
    expect(changeOf(0)).toEqual({
      state: "ejected",
      reason: "5 failures in a row, last: connection_refused",
      since,
    });
    clock.now = 30_001;
    expect(changeOf(0)).toEqual({
      state: "half-open",
      reason: "5 failures in a row, last: connection_refused",
      since,
    });
    expect(pick(target)).toBe("http://a.test");
    const answer = { status: 200, error: undefined, latency: 1, isOver: false };
    target.report({ target: "http://a.test", ...answer });
    expect(changeOf(0)).toMatchObject({ state: "starting", reason: "a request succeeded" });
    expect(changeOf(1)).toEqual({ state: "up", reason: undefined, since: undefined });
  });

  test("an ejected upstream returns although a tunnel is still open", () => {
    const { clock, target } = setUp(2);
    const tunnel = pick(target) as TargetAddress;
    target.report({ target: tunnel, status: 101, error: undefined, latency: 1, isOver: false });
    fail(target, tunnel, 5);
    expect(statesOf(target)).toEqual(["ejected", "up"]);
    clock.now = 30_001;
    expect(statesOf(target)).toEqual(["half-open", "up"]);
    expect(pick(target)).toBe("http://a.test");
    expect(pick(target)).toBe("http://b.test");
    target.report({ target: tunnel, status: 200, error: undefined, latency: 1, isOver: false });
    expect(statesOf(target)).toEqual(["starting", "up"]);
  });

  test("a 5xx response that breaks off counts as one failure, and a request whose client disconnects as none", () => {
    const { target } = setUp(1);
    const count = (): object => {
      const [{ requests, failures } = { requests: 0, failures: 0 }] = target.states();
      return { requests, failures };
    };
    const report = (status: number | undefined, error: ProxyError | undefined, isOver: boolean) =>
      target.report({ target: "http://a.test", status, error, latency: 1, isOver });
    const broken = new ProxyError("http_response_incomplete");
    report(200, undefined, false);
    report(200, undefined, true);
    expect(count()).toEqual({ requests: 1, failures: 0 });
    report(500, undefined, false);
    report(500, broken, true);
    expect(count()).toEqual({ requests: 2, failures: 1 });
    report(200, undefined, false);
    report(200, broken, true);
    expect(count()).toEqual({ requests: 3, failures: 2 });
    report(undefined, new ProxyError("http_request_error", { status: 499 }), true);
    expect(count()).toEqual({ requests: 4, failures: 2 });
    // A place that was given back unused does not count as a request.
    const released = new ProxyError("http_request_error", { status: 499 });
    const unused = { status: undefined, error: released, latency: 0, isOver: true, isSent: false };
    target.report({ target: "http://a.test", ...unused });
    expect(count()).toEqual({ requests: 4, failures: 2 });
  });

  test("a 5xx response that breaks off counts as one of the successive failures", () => {
    const { target } = setUp(2, { outliers: { consecutiveFailures: 2 } });
    const report = { target: "http://a.test", latency: 1 };
    const broken = new ProxyError("http_response_incomplete");
    target.report({ ...report, status: 500, error: undefined, isOver: false });
    target.report({ ...report, status: 500, error: broken, isOver: true });
    expect(statesOf(target)).toEqual(["up", "up"]);
    target.report({ ...report, status: 500, error: undefined, isOver: false });
    expect(statesOf(target)).toEqual(["ejected", "up"]);
  });

  test("without maxRequests, the error of a request that has waited says that no upstream is up", async () => {
    const { clock, target } = setUp(2, { queueTimeout: 1 });
    fail(target, "http://a.test", 5);
    clock.now = 30_001;
    expect(pick(target)).toBe("http://a.test");
    fail(target, "http://b.test", 5);
    const request = { ...GET };
    expect(await target.pick(request, [])).toBeUndefined();
    expect(request).toHaveProperty(
      "refusal.message",
      "no place became free within 1 ms: every upstream is down, ejected, or half-open with an unanswered probe",
    );
  });

  test.each([200, 500])(
    "a waiting request is sent when the probe is answered with %i, although the body of the answer stays open",
    async (status) => {
      const { clock, target } = setUp(2);
      fail(target, "http://a.test", 5);
      clock.now = 30_001;
      const probe = { ...GET };
      expect(pick(target, probe)).toBe("http://a.test");
      fail(target, "http://b.test", 5);
      const waiting = target.pick({ ...GET }, []);
      expect(target.waiting).toBe(1);
      const report = { target: "http://a.test", request: probe, error: undefined, latency: 1 };
      target.report({ ...report, status, isOver: false });
      expect(target.waiting).toBe(0);
      expect(await waiting).toBe("http://a.test");
    },
  );

  test("a request that waits for a certain upstream is sent to another one when that upstream is ejected", async () => {
    const policy: Policy = { isSticky: true, pick: ([each]) => each as Member };
    const { target } = setUp(2, { maxRequests: 1, policy });
    expect(pick(target)).toBe("http://a.test");
    const waiting = target.pick({ ...GET }, []);
    expect(target.waiting).toBe(1);
    fail(target, "http://a.test", 5);
    expect(target.waiting).toBe(0);
    expect(await waiting).toBe("http://b.test");
  });

  test("a half-open upstream gets a second probe if the client of the first probe has disconnected", () => {
    const { clock, target } = setUp(2);
    fail(target, "http://a.test", 5);
    clock.now = 30_001;
    expect(pick(target)).toBe("http://a.test");
    const error = new ProxyError("http_request_error", { status: 499 });
    target.report({ target: "http://a.test", status: undefined, error, latency: 1, isOver: true });
    expect(statesOf(target)).toEqual(["half-open", "up"]);
    expect(pick(target)).toBe("http://a.test");
  });

  test("a half-open upstream gets exactly one request, whose result ends or extends the ejection", () => {
    const { clock, target } = setUp(2);
    fail(target, "http://a.test", 5);
    clock.now = 30_001;
    const picked = Array.from({ length: 50 }, () => pick(target));
    expect(picked.filter((each) => each === "http://a.test")).toHaveLength(1);
    expect(statesOf(target)).toEqual(["half-open", "up"]);
    fail(target, "http://a.test");
    expect(statesOf(target)).toEqual(["ejected", "up"]);
    // The second ejection takes twice as long.
    clock.now += 59_999;
    expect(statesOf(target)).toEqual(["ejected", "up"]);
    clock.now += 2;
    expect(pick(target)).toBe("http://a.test");
    expect(pick(target)).toBe("http://b.test");
    const report = { target: "http://a.test", error: undefined, latency: 1 };
    target.report({ ...report, status: 200, isOver: false });
    expect(statesOf(target)).toEqual(["starting", "up"]);
    expect(pick(target)).toBe("http://a.test");
  });

  test.each([
    ["whose client disconnects", new ProxyError("http_request_error", { status: 499 })],
    ["that fails", REFUSED],
    ["that succeeds", undefined],
  ])(
    "a request %s does not affect a half-open upstream if the request was sent before the ejection",
    (_, error) => {
      const { clock, target } = setUp(2);
      const old = { ...GET };
      expect(pick(target, old)).toBe("http://a.test");
      fail(target, "http://a.test", 5);
      clock.now = 30_001;
      const probe = { ...GET };
      expect(pick(target, probe)).toBe("http://a.test");
      const report = { target: "http://a.test", latency: 1, isOver: false };
      const status = error === undefined ? 200 : undefined;
      target.report({ ...report, request: old, status, error, isOver: error !== undefined });
      expect(statesOf(target)).toEqual(["half-open", "up"]);
      expect(pick(target)).toBe("http://b.test");
      target.report({ ...report, request: probe, status: 200, error: undefined });
      expect(statesOf(target)).toEqual(["starting", "up"]);
    },
  );

  test("a half-open upstream gets another request if the first one hangs", () => {
    const { clock, target } = setUp(2);
    fail(target, "http://a.test", 5);
    clock.now = 30_001;
    const [hung, next] = [{ ...GET }, { ...GET }];
    expect(pick(target, hung)).toBe("http://a.test");
    clock.now += 29_999;
    expect(pick(target, next)).toBe("http://b.test");
    clock.now++;
    expect(pick(target, next)).toBe("http://a.test");
    expect(pick(target)).toBe("http://b.test");
    const report = { target: "http://a.test", error: undefined, latency: 1, isOver: false };
    target.report({ ...report, request: hung, status: 500 });
    expect(statesOf(target)).toEqual(["half-open", "up"]);
    target.report({ ...report, request: next, status: 200 });
    expect(statesOf(target)).toEqual(["starting", "up"]);
  });

  test("an upstream is not ejected if the only other upstream is being removed", () => {
    const { target } = setUp(2);
    expect(pick(target)).toBe("http://a.test");
    void target.remove("http://a.test");
    fail(target, "http://b.test", 10);
    expect(statesOf(target)).toEqual(["draining", "up"]);
  });

  test("an ejected upstream gets the requests if all others are removed", async () => {
    const { target } = setUp(2);
    fail(target, "http://a.test", 5);
    await target.remove("http://b.test");
    expect(pick(target)).toBe("http://a.test");
  });

  test("an upstream is removed when its last request is over, and can be added again", async () => {
    const { target } = setUp(2);
    const taken = pick(target) as TargetAddress;
    let isRemoved = false;
    const removing = target.remove(taken).then(() => (isRemoved = true));
    await Promise.resolve();
    expect(isRemoved).toBe(false);
    expect(statesOf(target)).toEqual(["draining", "up"]);
    target.report({ target: taken, status: 200, error: undefined, latency: 1, isOver: true });
    await removing;
    target.add(taken);
    expect(statesOf(target)).toEqual(["up", "starting"]);
  });

  test("an upstream can be added after the last one was removed; between the two, requests get no upstream", async () => {
    const { target } = setUp(1);
    await target.remove("http://a.test");
    expect(pick(target)).toBeUndefined();
    target.add("http://b.test");
    expect(pick(target)).toBe("http://b.test");
  });
});

describe("consistent hashing", () => {
  const key = (n: number): PickRequest => ({ ...GET, path: `/${n}` });

  function sharesOf(target: Balancer): Record<string, number> {
    const shares: Record<string, number> = {};
    for (let n = 0; n < 2_000; n++) {
      const picked = pick(target, key(n)) as string;
      shares[picked] = (shares[picked] ?? 0) + 1;
      target.report({ target: picked, status: 200, error: undefined, latency: 1, isOver: true });
    }
    return shares;
  }

  test("an upstream that is added gets its whole share after the slow start", () => {
    const { clock, target } = setUp(1, { policy: consistentHash(byUri) });
    target.add("http://b.test");
    clock.now = 60_000;
    const shares = sharesOf(target);
    expect(shares["http://b.test"]).toBeGreaterThan(800);
  });

  test("most keys keep their upstream while half of the upstreams are ejected", () => {
    const { target } = setUp(4, { policy: consistentHash(byUri) });
    fail(target, "http://a.test", 5);
    fail(target, "http://b.test", 5);
    expect(statesOf(target)).toEqual(["ejected", "ejected", "up", "up"]);
    const running = Array.from({ length: 200 }, (_, n) => pick(target, key(n)));
    const again = Array.from({ length: 200 }, (_, n) => pick(target, key(n)));
    const moved = running.filter((each, n) => each !== again[n]).length;
    expect(moved).toBeLessThan(20);
  });

  test("any key of a client leads to one of the upstreams, with bounded load", () => {
    const { target } = setUp(4, { policy: consistentHash(byHeader("x-user")) });
    const names = new Set(target.states().map(({ name }) => name));
    const keys = ["", "__proto__", "constructor", "http://evil.test", "\u0000", "ÿ", "-1", "1e9"];
    for (const value of [...keys, "x".repeat(100_000)]) {
      for (const headers of [["X-User", value], ["x-user", value, "X-USER", "other"], []]) {
        expect(names).toContain(pick(target, { ...GET, headers }));
      }
    }
    // A client that always sends the same key does not send all its requests to one upstream.
    for (let n = 0; n < 400; n++) pick(target, { ...GET, headers: ["x-user", "same"] });
    const most = Math.max(...target.states().map(({ active }) => active));
    expect(most).toBeLessThanOrEqual(Math.ceil(1.25 * (target.active / 4)));
  });

  test("one policy may serve several targets", () => {
    const policy = consistentHash(byUri);
    const [one, three] = [setUp(1, { policy }).target, setUp(3, { policy }).target];
    // Give both targets the same `version`: a policy that distinguished them only by that would confuse them.
    while (one.version < three.version) one.setWeight("http://a.test", 1);
    const alone = setUp(3, { policy: consistentHash(byUri) }).target;
    for (let n = 0; n < 100; n++) {
      expect(pick(one, key(n))).toBe("http://a.test");
      expect(pick(three, key(n))).toBe(pick(alone, key(n)));
    }
  });

  test("a misspelt `sticky` is refused, because it would have no effect", () => {
    const options: object = { stiky: true };
    expect(() => consistentHash(byUri, options)).toThrow("did you mean `sticky`?");
  });

  test("uses a header field or a cookie as the key", () => {
    expect(byHeader("x-user")({ ...GET, headers: ["X-User", "me"] })).toBe("me");
    const headers = ["Cookie", "a=1; session=x=y; b=2"];
    expect(byCookie("session")({ ...GET, headers })).toBe("x=y");
    expect(byCookie("none")({ ...GET, headers })).toBe("");
  });
});

test.each([
  ["equal", 1, { "http://a.test": 6, "http://b.test": 6 }],
  ["different", 2, { "http://a.test": 8, "http://b.test": 4 }],
])(
  "with one policy for two targets that take turns, each of their upstreams gets its share by %s weights",
  (_, weight, shares) => {
    const policy = sticky({ next: "round_robin" });
    const targets = [setUp(2, { policy }).target, setUp(2, { policy }).target];
    const counts = targets.map((): Record<string, number> => ({}));
    for (const target of targets) target.setWeight("http://a.test", weight);
    for (let n = 0; n < 24; n++) {
      const picked = pick(targets[n % 2] as Balancer) as string;
      const count = counts[n % 2] as Record<string, number>;
      count[picked] = (count[picked] ?? 0) + 1;
    }
    expect(counts).toEqual([shares, shares]);
  },
);

describe("the options of balance", () => {
  const wrong: [unknown, unknown, string][] = [
    ["http://a.test", {}, "option `balance`: give it an array"],
    [[], {}, "option `balance`: give it at least one"],
    [["http://a.test", "http://a.test"], {}, "option `balance`: http://a.test is there twice"],
    [
      ["http://a.test", "http://b.test/x"],
      {},
      "option `balance`: all upstreams need the same base",
    ],
    [[{ target: "http://a.test", wieght: 1 }], {}, "option `balance`: `wieght` is unknown"],
    [[{ url: "http://a.test", weight: 2 }], {}, "option `balance`: `weight`: write it as { target"],
    [[{ url: "http://a.test", tsl: {} }], {}, "tsl: there is no such option; did you mean `tls`"],
    [[{ target: { url: "http://a.test", tsl: {} } }], {}, "did you mean `tls`"],
    [[{ target: "http://a.test", weight: 0 }], {}, "option `weight`: use a number above 0"],
    [[{ target: "http://a.test", weight: "2" }], {}, "option `weight`: use a number above 0"],
    [["a.test"], {}, "bad target"],
    [[null], {}, "bad target"],
    [["http://a.test"], [], "option `balance`: its options must be an object"],
    [
      ["http://a.test"],
      { polcy: "first" },
      "option `polcy`: there is no such option; did you mean",
    ],
    [["http://a.test"], { policy: "random" }, "option `policy`: use least_conn"],
    [["http://a.test"], { policy: {} }, "option `policy`: use least_conn"],
    [["http://a.test"], { policy: null }, "option `policy`: use least_conn"],
    [["http://a.test"], { policy: "constructor" }, "option `policy`: use least_conn"],
    [["http://a.test"], { outliers: true }, "option `outliers`: use false"],
    [["http://a.test"], { outliers: { interval: 0 } }, "option `outliers`: interval: use whole"],
    [
      ["http://a.test"],
      { outliers: { maxEjected: 2 } },
      "option `outliers`: maxEjected: use a number from 0 to 1",
    ],
    [
      ["http://a.test"],
      { outliers: { ejection: 2 } },
      "option `outliers`: ejection: there is no such",
    ],
    [["http://a.test"], { check: "/health" }, "option `check`: use an object"],
    [["http://a.test"], { check: {} }, "option `check`: path: set it"],
    [["http://a.test"], { check: { path: "health" } }, "option `check`: path: use a path"],
    [["http://a.test"], { check: { path: "/a b" } }, "option `check`: path: use a path"],
    [
      ["http://a.test"],
      { check: { path: "/", interval: 0 } },
      "option `check`: interval: use whole",
    ],
    [
      ["http://a.test"],
      { check: { path: "/", timeout: NaN } },
      "option `check`: timeout: use whole",
    ],
    [
      ["http://a.test"],
      { check: { path: "/", status: 20 } },
      "option `check`: status: use a status",
    ],
    [["http://a.test"], { check: { path: "/", body: "" } }, "option `check`: body: use a text"],
    [
      ["http://a.test"],
      { check: { path: "/", headers: { a: "b\r\nc: d" } } },
      'option `check`: headers: "a" is of type string',
    ],
    [
      ["http://a.test"],
      { check: { path: "/", healthyThreshold: 0 } },
      "option `check`: healthyThreshold: use",
    ],
    [
      [{ fetch: () => new Response("") }],
      { check: { path: "/" } },
      "option `check`: an app in this process",
    ],
    [["http://a.test"], { slowStart: -1 }, "option `slowStart`: use whole milliseconds"],
    [["http://a.test"], { maxRequests: 0 }, "option `maxRequests`: use a whole number from 1"],
    [["http://a.test"], { maxQueue: -1 }, "option `maxQueue`: use a whole number from 0"],
    [["http://a.test"], { queueTimeout: 0.5 }, "option `queueTimeout`: use whole milliseconds"],
    [["http://a.test"], { retryBudget: 0.2 }, "option `retryBudget`: use an object"],
    [
      ["http://a.test"],
      { retryBudget: { ratio: -1 } },
      "option `retryBudget`: ratio: use a number from 0",
    ],
  ];
  test.each(wrong)(
    "the targets %j with the options %j are refused",
    (targets, options, message) => {
      const call = (): unknown => balance(targets as string[], options as BalanceOptions);
      expect(call).toThrow(TypeError);
      expect(call).toThrow(message);
    },
  );

  test("valid values are accepted", () => {
    const options: BalanceOptions = {
      policy: { pick: ([each]) => each as never },
      outliers: { consecutiveFailures: Infinity, maxEjected: 0 },
      check: { path: "/?a=b", status: (status) => status < 500, body: "ok", headers: { a: "b" } },
      slowStart: 0,
      maxRequests: Infinity,
      maxQueue: 0,
      queueTimeout: 0,
      retryBudget: { ratio: 0, perSecond: 0.5 },
    };
    expect(balance([{ target: "http://a.test", weight: 0.5 }], options).states()).toHaveLength(1);
    expect(balance(["http://a.test"], { outliers: false }).states()).toHaveLength(1);
  });

  test("a policy whose `pick` returns none of the upstreams is refused", () => {
    const target = balance(["http://a.test"], { policy: { pick: () => undefined as never } });
    expect(() => pick(target)).toThrow("option `policy`: its method pick must return one");
    expect(target.active).toBe(0);
  });
});
