import { IncomingMessage } from "node:http";
import { Socket } from "node:net";
import { H3Event } from "h3";
import { Context as HonoContext } from "hono";
import * as native from "#fetchway";
import { beforeEach, describe, expect, test, vi } from "vitest";
import { explainNodeMessage } from "../../runtimes/node/frameworkvalues.ts";
import { WebIncoming } from "../../src/request/incoming.ts";
import { explainWherePooled } from "../../src/options/poolcheck.ts";
import type { PoolOptions } from "../../src/options/pooloptions.ts";
import {
  bindCreateProxy,
  bindProxyFetch,
  type CreateProxyOptions,
  type Runtime,
} from "../../src/proxy.ts";
import { Counters } from "../../src/transport/stats.ts";
import type { Target } from "../../src/upstreams/upstreams.ts";
import { FakeTransport, respond, TARGET } from "../helpers/fakes.ts";

let made: { transport: FakeTransport; pool: PoolOptions | undefined }[] = [];
beforeEach(() => void (made = []));

const runtime: Runtime = {
  explainOption: explainWherePooled,
  explainRequest: explainNodeMessage,
  read: (request) => new WebIncoming(request, undefined),
  createTransport(pool) {
    const transport = new FakeTransport();
    made.push({ transport, pool });
    return transport;
  },
  respond,
};

const request = (): Request => new Request("http://proxy.test/a");
const createProxy = bindCreateProxy(runtime);

describe("proxyFetch", () => {
  test("forwards requests, and all calls share connections", async () => {
    const proxyFetch = bindProxyFetch(runtime);
    expect((await proxyFetch(request(), TARGET)).status).toBe(200);
    await proxyFetch(request(), "http://other.test", { xfwd: false });
    expect(made).toHaveLength(1);
    expect(made[0]?.transport.hops.map(({ upstream }) => upstream.host)).toEqual([
      "up.test:4000",
      "other.test",
    ]);
  });

  test("shares connections between calls with different values of connectTimeout", async () => {
    const proxyFetch = bindProxyFetch(runtime);
    await proxyFetch(request(), TARGET);
    for (const connectTimeout of [5, 0]) await proxyFetch(request(), TARGET, { connectTimeout });
    expect(made).toHaveLength(1);
    expect(made[0]?.transport.scopes.map(({ connectTimeout }) => connectTimeout)).toEqual([
      undefined,
      5,
      0,
    ]);
  });

  test("compiles each options object once", async () => {
    const proxyFetch = bindProxyFetch(runtime);
    const headers = vi.fn(() => ({ "x-a": "1" }));
    const options = Object.defineProperty({}, "headers", { get: headers, enumerable: true });
    await proxyFetch(request(), TARGET, options);
    const reads = headers.mock.calls.length;
    await proxyFetch(request(), TARGET, options);
    expect(headers).toHaveBeenCalledTimes(reads);
  });

  test.each<[string, unknown[], RegExp]>([
    [
      "an address first, as in other libraries",
      [TARGET, request()],
      /takes the incoming Request first, then the target/,
    ],
    ["a URL first", [new URL(TARGET), request()], /takes the incoming Request first/],
    ["nothing", [], /takes the incoming Request first/],
    ["no target", [request()], /bad target undefined: is its variable set\?/],
    ["a bad target", [request(), "nowhere"], /bad target "nowhere"/],
    ["a bad option", [request(), TARGET, { timeout: -1 }], /bad option `timeout`/],
    ["an unknown option", [request(), TARGET, { sockets: {} }], /there is no such option/],
    ["an agent", [request(), TARGET, { agent: {} }], /`agent`.*write `createProxy\(\{ pool/],
    [
      "createProxy's pool",
      [request(), TARGET, { pool: {} }],
      /`pool`: it is an option of createProxy; pass `transport: createTransport/,
    ],
    [
      "a target among the options",
      [request(), TARGET, { target: TARGET }],
      /`target`: write `proxyFetch\(request, target\)`/,
    ],
  ])("rejects %s", async (_, call, message) => {
    const proxyFetch = bindProxyFetch(runtime) as (...args: unknown[]) => Promise<Response>;
    const sent = proxyFetch(...call);
    await expect(sent).rejects.toThrow(TypeError);
    await expect(sent).rejects.toThrow(message);
  });

  test("rejects a request whose body was read", async () => {
    const read = new Request("http://proxy.test", { method: "POST", body: "x" });
    await read.text();
    await expect(bindProxyFetch(runtime)(read, TARGET)).rejects.toThrow(/already been read/);
  });
});

/**
 * Objects that frameworks pass to their handlers, and the error when one is passed to the proxy in place of a Request.
 */
const HANDED: [string, () => unknown, RegExp][] = [
  ["an h3 event", () => new H3Event(request()), /pass event\.req$/],
  ["a Hono context", () => new HonoContext(request()), /pass c\.req\.raw$/],
  ["Hono's own request", () => new HonoContext(request()).req, /pass c\.req\.raw$/],
  ["an event that holds the request", () => ({ request: request() }), /pass its `request`$/],
  [
    "a request of node:http",
    () => new IncomingMessage(new Socket()),
    /use createProxy\(\{ target \}\)\.nodeHandler/,
  ],
  ["Fastify's request", () => ({ raw: new IncomingMessage(new Socket()) }), /\.nodeHandler/],
  [
    "an event of h3 1",
    () => ({ node: { req: new IncomingMessage(new Socket()) } }),
    /\.nodeHandler/,
  ],
  ["an address", () => TARGET, /takes the incoming Request first/],
  ["null", () => null, /takes the incoming Request first/],
];

describe("a value that is not a Request", () => {
  test.each(HANDED)(
    "%s: proxyFetch rejects with a TypeError that says what to pass",
    async (_, hand, message) => {
      const sent = bindProxyFetch(runtime)(hand() as Request, TARGET);
      await expect(sent).rejects.toThrow(TypeError);
      await expect(sent).rejects.toThrow(message);
      await expect(sent).rejects.toThrow(
        /^fetchway: proxyFetch\(request, target, options\?\) takes/,
      );
    },
  );

  test.each(HANDED)(
    "%s: a proxy's fetch rejects with a TypeError that says what to pass",
    async (_, hand, message) => {
      const sent = createProxy({ target: TARGET }).fetch(hand() as Request);
      await expect(sent).rejects.toThrow(TypeError);
      await expect(sent).rejects.toThrow(message);
      await expect(sent).rejects.toThrow(/^fetchway: a proxy's fetch\(request, context\?\) takes/);
    },
  );

  test("an object of another class with the members of a Request is accepted", async () => {
    const { url, method, headers, body, signal } = request();
    const own = { url, method, headers, body, signal, clone: () => own };
    expect((await bindProxyFetch(runtime)(own as unknown as Request, TARGET)).status).toBe(200);
  });
});

/** Counts the turns of the microtask queue until a promise is fulfilled. */
async function countTurns(promise: Promise<unknown>): Promise<number> {
  let isPending = true;
  void promise.then(() => (isPending = false));
  let turns = 0;
  for (; isPending && turns < 1000; turns++) await Promise.resolve();
  return turns;
}

describe("createProxy", () => {
  test("the proxy's `fetch` takes no more turns of the microtask queue than proxyFetch", async () => {
    const proxyFetch = bindProxyFetch(runtime);
    const expected = await countTurns(proxyFetch(request(), TARGET));
    expect(expected).toBeLessThan(1000);
    expect(await countTurns(createProxy({ target: TARGET }).fetch(request()))).toBe(expected);
  });

  test("the proxy's `fetch` rejects for misuse, and does not throw", async () => {
    const proxy = createProxy({ target: TARGET });
    const promise = proxy.fetch({} as Request);
    await expect(promise).rejects.toThrow(/takes the incoming Request first/);
  });

  test("the proxy's `fetch` works without `this`, and passes on the server's context", async () => {
    const clientAddress = vi.fn(() => undefined);
    const { fetch } = createProxy({ target: TARGET, clientAddress });
    expect((await fetch(request(), { env: 1 })).status).toBe(200);
    expect(clientAddress).toHaveBeenCalledExactlyOnceWith(expect.any(Request), { env: 1 });
  });

  test("gives each proxy its own connections, with the given pool options", () => {
    createProxy({ target: TARGET });
    createProxy({ target: TARGET, connectTimeout: 5, pool: { maxSockets: 2 } });
    createProxy({ target: TARGET, connectTimeout: 5, pool: { connectTimeout: 7 } });
    createProxy({ target: TARGET, pool: { connectTimeout: 7 } });
    expect(made.map(({ pool }) => pool)).toEqual([
      undefined,
      { connectTimeout: 5, maxSockets: 2 },
      { connectTimeout: 5 },
      { connectTimeout: 7 },
    ]);
  });

  test("the proxy's `close` closes its own connections, not those of a given transport", async () => {
    await createProxy({ target: TARGET }).close();
    expect(made[0]?.transport.closed).toBe(1);
    const transport = new FakeTransport();
    await createProxy({ target: TARGET, transport }).close();
    expect(transport.closed).toBe(0);
  });

  test("the proxy's `stats` returns the counters of its connections if the transport has them", () => {
    const stats = new Counters().stats(() => ({}));
    const transport = Object.assign(new FakeTransport(), { stats: () => stats });
    expect(createProxy({ target: TARGET, transport }).stats()).toBe(stats);
    expect(createProxy({ target: TARGET }).stats()).toBeUndefined();
  });

  test("accepts a target function", async () => {
    const target: Target = (each) => `${TARGET}${new URL(each.url).pathname}`;
    expect((await createProxy({ target }).fetch(request())).status).toBe(200);
    expect(made[0]?.transport.hops[0]?.path).toBe("/a/a");
  });

  test.each<[string, unknown, RegExp]>([
    ["no options", undefined, /createProxy\(options\) takes one object such as \{ target: "http:/],
    ["a URL, as other libraries take it", TARGET, /takes one object such as \{ target: "http:/],
    ["no target", {}, /takes one object such as \{ target/],
    ["no target beside options", { timeout: 5 }, /takes one object such as \{ target/],
    [
      "a variable that is not set",
      { target: undefined },
      /target undefined: is its variable set\?/,
    ],
    ["a wrong name for the target", { url: TARGET }, /bad option `url`/],
    ["a bad target", { target: "nowhere" }, /bad target "nowhere"/],
    [
      "a target out of reach",
      { target: "unix:/a", fetch: () => new Response() },
      /cannot reach unix/,
    ],
    ["a bad option", { target: TARGET, timeout: "5" }, /bad option `timeout`/],
    [
      "`pool` together with `transport`",
      { target: TARGET, pool: {}, transport: new FakeTransport() },
      /bad option `pool`: leave it out: `transport`/,
    ],
    [
      "`pool` together with `fetch`",
      { target: TARGET, pool: {}, fetch: () => new Response() },
      /`pool`.*`fetch`/,
    ],
    ["a pool of null", { target: TARGET, pool: null }, /bad option `pool`: use an object/],
    ["a pool that is a list", { target: TARGET, pool: [] }, /bad option `pool`/],
  ])("refuses %s", (_, options, message) => {
    const create = (): unknown => createProxy(options as CreateProxyOptions);
    expect(create).toThrow(TypeError);
    expect(create).toThrow(message);
  });

  test.each<[unknown, RegExp]>([
    [{ maxSockets: 0 }, /`maxSockets`: use a whole number from 1, or Infinity for no limit/],
    [{ maxSockets: NaN }, /`maxSockets`/],
    [{ maxFreeSockets: -Infinity }, /`maxFreeSockets`: use a whole number from 0, or Infinity/],
    [{ freeSocketTimeout: Infinity }, /`freeSocketTimeout`/],
    [{ maxSockets: "5" }, /`maxSockets`/],
    [{ maxFreeSockets: -1 }, /`maxFreeSockets`/],
    [{ maxTotalFreeSockets: -1 }, /`maxTotalFreeSockets`: use a whole number from 0, or Infinity/],
    [{ maxTotalFreeSockets: 1.5 }, /`maxTotalFreeSockets`/],
    [{ maxTotalFreeSockets: -Infinity }, /`maxTotalFreeSockets`/],
    [{ freeSocketTimeout: 2 ** 31 }, /`freeSocketTimeout`/],
    [{ connectTimeout: 1.5 }, /`connectTimeout`/],
    [{ timeout: -1 }, /`timeout`/],
    [{ socketTTL: "5m" }, /`socketTTL`/],
    [{ maxQueued: -1 }, /`maxQueued`/],
    [{ queueTimeout: 0.5 }, /`queueTimeout`/],
    [{ keepAlive: "no" }, /`keepAlive`: use true or false/],
    [{ keepAliveInitialDelay: -1 }, /`keepAliveInitialDelay`/],
    [{ noDelay: 1 }, /`noDelay`/],
    [{ dns: true }, /`dns`: use false, or/],
    [{ dns: { ttl: -1 } }, /`dns`/],
    [{ dns: { servers: "1.1.1.1" } }, /`dns`/],
    [{ tls: true }, /`tls`/],
    [{ socketPath: "app.sock" }, /`socketPath`: use a path/],
    [{ keepalive: true }, /`keepalive`.*there is no such option/],
  ])("refuses the pool %j", (pool, message) => {
    const options = { target: TARGET, pool } as CreateProxyOptions;
    expect(() => native.createProxy(options)).toThrow(TypeError);
    expect(() => native.createProxy(options)).toThrow(message);
    expect(() => native.createTransport(pool as PoolOptions)).toThrow(message);
  });

  test.each([null, 5, "x", []])("refuses %j as the options of a transport", (options) => {
    expect(() => native.createTransport(options as unknown as PoolOptions)).toThrow(
      /the options of a pool must be an object such as \{ maxSockets: 50 \}/,
    );
  });
});
