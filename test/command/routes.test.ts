/** The router of the command, without a server. */
import { describe, expect, test, vi } from "vitest";
import { advisory } from "../conformance/advisory.ts";
import { describeRoute, type RouteCondition } from "../../command/serve/routecondition.ts";
import { mergeStats, Router } from "../../command/serve/routes.ts";
import { WorkerTotals } from "../../command/workers/workertotals.ts";
import type { RouteSettings } from "../../command/config/settings.ts";
import { FakeTransport, fakeResponse } from "../helpers/fakes.ts";
import { Counters, type PoolStats } from "../../src/transport/stats.ts";
import type { RequestEnd } from "../../src/options/observationoptions.ts";
import type { UpstreamResponse } from "../../src/transport/message.ts";
import type { BalanceOptions } from "../../src/upstreams/balanceoptions.ts";

/** Returns a route to an app that answers with its name and the path that it received. */
function routeTo(name: string, match: string, more: object = {}): RouteSettings {
  const fetch = (request: Request): Response =>
    new Response(`${name} ${request.url.replace(/^https?:\/\/[^/]*/, "")}`);
  return { match: match.split(" "), options: { target: { fetch }, ...more } };
}

async function ask(router: Router, url: string): Promise<string> {
  const { host } = new URL(url);
  const response = await router.answer(new Request(url, { headers: { host } }));
  return `${response.status} ${(await response.text()).trim()}`;
}

describe("how requests find their route", () => {
  const router = new Router([
    routeTo("api", "/api b.example/v1", { stripPrefix: "/api" }),
    routeTo("b", "b.example"),
    routeTo("spaced", "/a%20b c.example/caf%C3%A9"),
    routeTo("rest", "/"),
  ]);

  test.each([
    ["http://a.example/a%20b/c%20d", "200 spaced /a%20b/c%20d"],
    ["http://a.example/a%20b%2fc", "400 Bad Request: the path is ambiguous"],
    ["http://a.example/a%2520b", "400 Bad Request: the path is ambiguous"],
    ["http://c.example/caf%C3%A9/%C3%A9", "200 spaced /caf%C3%A9/%C3%A9"],
    ["http://a.example/caf%C3%A9", "200 rest /caf%C3%A9"],
    ["http://a.example/api/x?y", "200 api /x?y"],
    ["http://a.example/apix", "200 rest /apix"],
    ["http://a.example/x?/api/", "200 rest /x?/api/"],
    ["http://B.example:81/api", "200 b /api"],
    ["http://b.example/v1/x", "200 api /v1/x"],
    ["http://a.example//x", "200 rest //x"],
    ["http://a.example/x%2Fy", "200 rest /x%2Fy"],
  ])("a request for %s gets: %s", async (url, answer) => {
    expect(await ask(router, url)).toBe(answer);
  });

  // An upstream could read each of these paths as a path of another route. The options of that route would then not apply.
  test.each([
    "http://a.example/%61pi/x",
    "http://a.example/api%2fx",
    "http://a.example/x/%252e%252e/api",
    "http://a.example//api",
    "http://a.example/api;v=1/x",
    "http://a.example/api%00",
    "http://a.example/api%23x",
    "http://a.example/api/..%5cx",
    "http://a.example/api%5cx",
    "http://a.example/api%3fx",
    "http://a.example/api%3bx",
    "http://a.example/api%00/x",
    "http://a.example/%61pi%2f./x",
    "http://a.example/%25%36%31pi/x",
    // The next two paths have nine layers of escapes, more than the router decodes.
    `http://a.example/x/%${"25".repeat(8)}2e%${"25".repeat(8)}2e/api`,
    `http://a.example/x/%${"25".repeat(8)}61`,
  ])("a request for %s gets 400, because its path may belong to two routes", async (url) => {
    advisory("GHSA-gm3x-23wp-hc2c", "CVE-2026-40912");
    expect(await ask(router, url)).toBe("400 Bad Request: the path is ambiguous");
  });

  test("a request without a route gets 404", async () => {
    const some = new Router([routeTo("api", "/api")]);
    expect(await ask(some, "http://a.example/api")).toBe("200 api /api");
    expect(await ask(some, "http://a.example/")).toBe(
      "404 Not Found: no route for this host and path",
    );
  });
});

test("CVE-2026-27587, CVE-2026-27588: a route matches the same hosts and paths among few routes and among hundreds", async () => {
  const own = [routeTo("admin", "/admin"), routeTo("host", "shop.example/Caf%C3%A9")];
  const others = Array.from({ length: 200 }, (_, i) => routeTo(`r${i}`, `h${i}.example /r${i}/x`));
  const few = new Router([...own, routeTo("rest", "/")]);
  const many = new Router([...own, ...others, routeTo("rest", "/")]);
  for (const [url, answer] of [
    ["http://a.example/admin", "200 admin /admin"],
    ["http://a.example/ADMIN", "200 rest /ADMIN"],
    ["http://a.example/%61dmin", "400 Bad Request: the path is ambiguous"],
    ["http://a.example/adm%69n/x", "400 Bad Request: the path is ambiguous"],
    ["http://a.example//admin", "400 Bad Request: the path is ambiguous"],
    ["http://SHOP.example/Caf%C3%A9", "200 host /Caf%C3%A9"],
    ["http://shop.EXAMPLE:81/Caf%c3%a9", "400 Bad Request: the path is ambiguous"],
    ["http://shop.example./caf%C3%A9", "200 rest /caf%C3%A9"],
    ["http://shop.example/C%61f%C3%A9", "400 Bad Request: the path is ambiguous"],
  ]) {
    expect(await ask(few, url as string), url).toBe(answer);
    expect(await ask(many, url as string), url).toBe(answer);
  }
  expect(await ask(many, "http://H150.example/r9/x")).toBe("200 r150 /r9/x");
});

test("CVE-2026-55602: a host that only contains the host of a route does not match it", async () => {
  const router = new Router([routeTo("shop", "shop.example"), routeTo("any", "*.shop.example")]);
  for (const host of [
    "shop.example.evil",
    "evil-shop.example",
    "shop.example.shop.example.evil",
    "evil.test?shop.example",
    "shop.examplex",
    "xshop.example",
  ]) {
    const request = new Request("http://evil.test/", { headers: { host } });
    expect([400, 404], host).toContain((await router.answer(request)).status);
  }
});

describe("routes with a condition", () => {
  const when = (name: string, match: string, condition: RouteCondition): RouteSettings => ({
    ...routeTo(name, match),
    when: condition,
  });
  const router = new Router([
    routeTo("rest", "/"),
    routeTo("api", "/api"),
    when("write", "/api", { method: ["POST", "PUT"] }),
    when("beta", "/api", { headers: { "X-Beta": "1", cookie: "*beta=*" } }),
    when("second", "/api", { method: "POST", query: { v: "2" } }),
    when("deep", "/api/deep", { query: { "a b": "*.x", v: "*" } }),
    when("host", "b.example/api", { headers: { accept: "text/*" } }),
    when("dotted", "/api", { headers: { "x-dotted": "a.b" } }),
    routeTo("escaped", "/caf%C3%A9"),
    when("escaped-beta", "/caf%C3%A9", { headers: { "x-beta": "1" } }),
  ]);
  const nameOfTaker = async (
    method: string,
    url: string,
    headers: Record<string, string> = {},
  ): Promise<string> => {
    const { host } = new URL(url, "http://a.example");
    const request = new Request(new URL(url, "http://a.example"), {
      method,
      headers: { host, ...headers },
    });
    return (await (await router.answer(request)).text()).split(" ", 1)[0] as string;
  };

  test.each<[method: string, url: string, fields: Record<string, string>, name: string]>([
    ["GET", "/api", {}, "api"],
    ["POST", "/api", {}, "write"],
    ["HEAD", "/api/x", {}, ""],
    ["GET", "/api", { "x-beta": "1", cookie: "a=b; beta=1" }, "beta"],
    ["GET", "/api", { "x-beta": "1" }, "api"],
    ["GET", "/api", { "x-beta": "11", cookie: "beta=1" }, "api"],
    // Of two routes with the same pattern, the first whose condition applies takes the request.
    ["POST", "/api?v=2", { "x-beta": "1", cookie: "beta=" }, "write"],
    ["GET", "/api/deep?v=1&a%20b=c.x", {}, "deep"],
    ["GET", "/api/deep?v=&a+b=c&a+b=d.x", {}, "deep"],
    // A longer prefix whose condition does not apply leaves the request to a shorter one.
    ["GET", "/api/deep?a%20b=c.x", {}, "api"],
    ["GET", "http://b.example/api", { accept: "text/html" }, "host"],
    ["GET", "http://b.example/api", { accept: "a/b" }, "api"],
    ["GET", "/api", { "x-dotted": "a.b" }, "dotted"],
    ["GET", "/api", { "x-dotted": "axb" }, "api"],
    ["GET", "/caf%C3%A9", {}, "escaped"],
    ["GET", "/caf%C3%A9", { "x-beta": "1" }, "escaped-beta"],
    ["POST", "/else", {}, "rest"],
  ])("the request %s %s with the fields %j finds its route", async (method, url, fields, name) => {
    expect(await nameOfTaker(method, url, fields)).toBe(name);
  });

  test("an ambiguous path gets 400 only if its readings have different routes for the same request", async () => {
    const two = new Router([routeTo("rest", "/"), when("write", "/api", { method: "POST" })]);
    const status = async (method: string): Promise<number> =>
      (await two.answer(new Request("http://a.example/%61pi", { method }))).status;
    expect([await status("POST"), await status("GET")]).toEqual([400, 200]);
  });

  test("a single route for all paths still applies its condition", async () => {
    const one = new Router([when("write", "/", { method: "POST" })]);
    const status = async (method: string): Promise<number> =>
      (await one.answer(new Request("http://a.example/", { method }))).status;
    expect([await status("POST"), await status("GET")]).toEqual([200, 404]);
  });

  test("the name of the route shows the condition, without values that may be secrets", () => {
    expect(
      describeRoute({
        match: ["/a", "b/"],
        when: {
          method: ["GET", "HEAD"],
          headers: { "x-beta": "1", "X-API-Key": "s3cret" },
          query: { v: "2" },
        },
      }),
    ).toBe("/a, b/ [GET|HEAD, x-beta: 1, X-API-Key: …, ?v=2]");
    expect(describeRoute({ match: ["/a"], when: { query: { v: "*" } } })).toBe("/a [?v=*]");
  });
});

test("`onRequestEnd` names the route by its pattern, or by its option `route`", async () => {
  const routes: unknown[] = [];
  const onRequestEnd = ({ route }: RequestEnd): void => void routes.push(route);
  const router = new Router([
    routeTo("api", "/api b.example/v1", { onRequestEnd }),
    routeTo("rest", "/", { onRequestEnd, route: "everything else" }),
  ]);
  await ask(router, "http://a.example/api/x");
  await ask(router, "http://b.example/v1/x");
  await ask(router, "http://a.example/x");
  expect(routes).toEqual(["/api, b.example/v1", "/api, b.example/v1", "everything else"]);
});

describe("an update of the routes", () => {
  test("a route with unchanged settings keeps its proxy, and other routes get new ones", async () => {
    const made: unknown[] = [];
    const one = routeTo("one", "/one");
    const two = routeTo("two", "/two");
    const router = new Router([one, two], (options) => {
      made.push(options.target);
      return options;
    });
    made.length = 0;
    const changed = { ...two, options: { ...two.options, timeout: 5 } };
    router.update([changed, { match: ["/one"], options: { ...one.options } }, routeTo("3", "/3")]);
    expect(made).toHaveLength(2);
    expect(made[0]).toBe(two.options.target);
    expect(router.retired).toBe(1);
    expect(await ask(router, "http://a/one")).toBe("200 one /one");
    expect(await ask(router, "http://a/3")).toBe("200 3 /3");
    await router.close();
  });

  test("an update that fails does not change the routes", async () => {
    const router = new Router([routeTo("one", "/")]);
    const bad = routeTo("bad", "/bad", { timeout: -1 });
    expect(() => router.update([routeTo("two", "/"), bad])).toThrow(/bad option `timeout`/);
    expect(await ask(router, "http://a/bad")).toBe("200 one /bad");
    expect(router.retired).toBe(0);
  });

  test("a request of a removed route runs to its end", async () => {
    let finish: (response: Response) => void = () => {};
    const fetch = (): Promise<Response> => new Promise((resolve) => (finish = resolve));
    const router = new Router([{ match: ["/"], options: { target: { fetch } } }]);
    const answer = ask(router, "http://a/");
    await new Promise((resolve) => setTimeout(resolve));
    router.update([]);
    expect(await ask(router, "http://a/")).toMatch(/^404 /);
    finish(new Response("late"));
    expect(await answer).toBe("200 late");
    await router.close();
  });
});

test("the proxy of a removed route is closed some seconds later, but not before its requests have ended", async () => {
  vi.useFakeTimers({ toFake: ["setInterval", "clearInterval", "performance"] });
  try {
    let finish: (response: Response) => void = () => {};
    const fetch = (): Promise<Response> => new Promise((resolve) => (finish = resolve));
    const router = new Router([
      routeTo("one", "/one"),
      { match: ["/"], options: { target: { fetch } } },
    ]);
    const answer = ask(router, "http://a/");
    await new Promise((resolve) => setTimeout(resolve));
    router.update([]);
    expect(router.retired).toBe(2);
    vi.advanceTimersByTime(5_000);
    expect(router.retired).toBe(2);
    vi.advanceTimersByTime(60_000);
    expect(router.retired).toBe(1);
    finish(new Response("late"));
    expect(await answer).toBe("200 late");
    vi.advanceTimersByTime(2_000);
    expect(router.retired).toBe(0);
    // No timer is left.
    expect(vi.getTimerCount()).toBe(0);
  } finally {
    vi.useRealTimers();
  }
});

test("the counters of a removed route remain after its proxy is closed, but not its limit and its upstreams", () => {
  vi.useFakeTimers({ toFake: ["setInterval", "clearInterval", "performance"] });
  try {
    const routeWith = (created: number, maxSockets: number): RouteSettings => {
      const counters = {
        ...new Counters(maxSockets).stats(() => ({})),
        created,
        requests: created,
      };
      const transport = Object.assign(new FakeTransport(), { stats: () => counters });
      return { match: ["/"], options: { target: [`http://10.0.0.${created}`], transport } };
    };
    const router = new Router([routeWith(1, 9)]);
    for (const created of [2, 4]) {
      router.update([routeWith(created, 5)]);
      vi.advanceTimersByTime(60_000);
    }
    expect(router.retired).toBe(0);
    expect(router.stats()).toMatchObject({
      created: 7,
      closed: 3,
      requests: 7,
      requestsPerSocket: 1,
      maxSockets: 5,
      origins: {},
      upstreams: [{ name: "http://10.0.0.4" }],
    });
    router.destroy();
  } finally {
    vi.useRealTimers();
  }
});

const UPSTREAM = { name: "http://a", weight: 1, active: 2, waiting: 1, requests: 5, failures: 1 };
const UP = { state: "up", reason: "a request succeeded", since: 1 } as const;
const EJECTED = { state: "ejected", reason: "a failure: 502", since: 2 } as const;

/** Returns the counters of a proxy with one upstream in the given state, and with requests that wait. */
function statsWith(state: typeof UP | typeof EJECTED, waiting: number): PoolStats {
  const counters = new Counters().stats(() => ({}));
  return { ...counters, upstreams: [{ ...UPSTREAM, ...state }], waiting };
}

test("the state of an upstream in a worker that has ended does not count", () => {
  const reportWith = (state: typeof UP | typeof EJECTED) => {
    return { pool: statsWith(state, 0), clients: undefined, memory: 0, cpu: 0 };
  };
  const totals = new WorkerTotals(() => [reportWith(UP)]);
  totals.keep(reportWith(EJECTED));
  expect(totals.poolStats()?.upstreams).toEqual([
    { ...UPSTREAM, ...UP, requests: 10, failures: 2 },
  ]);
});

test("an upstream of several routes is shown with its worst state and the reason for it, and its states in removed routes do not count", () => {
  const [one, other] = [statsWith(UP, 3), statsWith(EJECTED, 4)];
  expect(mergeStats([one, other])?.waiting).toBe(7);
  for (const both of [
    [one, other],
    [other, one],
  ]) {
    expect(mergeStats(both)?.upstreams).toEqual([
      { ...UPSTREAM, ...EJECTED, active: 4, waiting: 2, requests: 10, failures: 2 },
    ]);
  }
  const several = (urls: readonly string[]): RouteSettings => ({
    match: ["/"],
    options: { target: urls },
  });
  const router = new Router([several(["http://a", "http://b"])]);
  const weights = (): object | undefined =>
    router.stats()?.upstreams?.map(({ name, weight }) => [name, weight]);
  expect(weights()).toEqual([
    ["http://a", 1],
    ["http://b", 1],
  ]);
  router.update([several(["http://b", "http://c"])]);
  expect(router.retired).toBe(1);
  // An upstream with the weight 0 has only counters.
  expect(weights()).toEqual([
    ["http://b", 1],
    ["http://c", 1],
    ["http://a", 0],
  ]);
  router.destroy();
});

test("the counters of an upstream do not decrease when one of its routes is removed, and a removed upstream is forgotten some seconds later", async () => {
  vi.useFakeTimers({ toFake: ["setInterval", "clearInterval", "performance"] });
  try {
    const balanced = (match: string, ...target: string[]): RouteSettings => {
      const transport = Object.assign(new FakeTransport(() => fakeResponse({ status: 500 })), {
        stats: () => new Counters().stats(() => ({})),
      });
      return { match: [match], options: { target, transport, balance: { policy: "first" } } };
    };
    const remaining = balanced("/b", "http://10.0.0.1");
    const router = new Router([balanced("/a", "http://10.0.0.1", "http://10.0.0.2"), remaining]);
    await ask(router, "http://host/a");
    await ask(router, "http://host/b");
    const countsOf = (name: string): object | undefined =>
      router.stats()?.upstreams?.find((each) => each.name === name);
    expect(countsOf("http://10.0.0.1")).toMatchObject({ requests: 2, failures: 2 });
    for (const more of [balanced("/a", "http://10.0.0.1"), balanced("/c", "http://10.0.0.3")]) {
      router.update([more, remaining]);
      expect(countsOf("http://10.0.0.1")).toMatchObject({ requests: 2, failures: 2 });
      vi.advanceTimersByTime(60_000);
      expect(router.retired).toBe(0);
      expect(countsOf("http://10.0.0.1")).toMatchObject({ requests: 2, failures: 2 });
    }
    expect(countsOf("http://10.0.0.2")).toBeUndefined();
    router.destroy();
  } finally {
    vi.useRealTimers();
  }
});

test("a change of an upstream's state is reported by the routes, but not by removed ones", async () => {
  const reported: string[] = [];
  const settings = (name: string): [RouteSettings, PromiseWithResolvers<UpstreamResponse>] => {
    const answer = Promise.withResolvers<UpstreamResponse>();
    const balance: BalanceOptions = {
      outliers: { consecutiveFailures: 1 },
      onStateChange: ({ state }) => void reported.push(`${name} ${state}`),
    };
    const transport = new FakeTransport(() => answer.promise);
    const target = ["http://10.0.0.1", "http://10.0.0.2"];
    return [{ match: ["/"], options: { target, balance, transport, retry: false } }, answer];
  };
  const [old, oldAnswer] = settings("old");
  const [now, nowAnswer] = settings("new");
  const router = new Router([old]);
  const answers = [ask(router, "http://a/")];
  router.update([now]);
  answers.push(ask(router, "http://a/"));
  for (const { resolve } of [oldAnswer, nowAnswer]) resolve(fakeResponse({ status: 502 }));
  await Promise.all(answers);
  expect(reported).toEqual(["new ejected"]);
  router.destroy();
});

test("the counters of several proxies are added up", () => {
  const stats = (n: number, origins: PoolStats["origins"]): PoolStats => ({
    created: n,
    closed: n + 1,
    failed: n + 2,
    timedOut: n + 3,
    requests: 5 * n,
    requestsPerSocket: 5,
    tunnels: n + 4,
    maxSockets: 10 * n,
    version: n + 5,
    origins,
  });
  const state = { inUse: 1, free: 2, waiting: 3, tunnels: 4 };
  const one = stats(1, { "http://a": state, "http://b": state });
  const two = stats(3, { "http://a": state });
  expect(mergeStats([])).toBeUndefined();
  expect(mergeStats([one])).toBe(one);
  expect(mergeStats([one, two])).toEqual({
    created: 4,
    closed: 6,
    failed: 8,
    timedOut: 10,
    requests: 20,
    requestsPerSocket: 5,
    tunnels: 12,
    maxSockets: 30,
    version: 14,
    origins: {
      "http://a": { inUse: 2, free: 4, waiting: 6, tunnels: 8 },
      "http://b": state,
    },
  });
});
