import { createServer } from "node:http";
import { afterEach, describe, expect, test, vi } from "vitest";
import type { RequestDraft } from "../../../src/index.ts";
import type { NodeProxy } from "../../../runtimes/node.ts";
import { ask, originOf, pooled, statsOf, upstream } from "./_pool.ts";
import { listen } from "../../helpers/serve.ts";
import { echo } from "../../helpers/upstream.ts";
import { until } from "../../helpers/wait.ts";

afterEach(() => void vi.useRealTimers());

describe("the counters of `stats()`", () => {
  test("stats() counts connections and requests, and the connections and waiting requests of each origin", async () => {
    const proxy = pooled({ maxSockets: 1 });
    expect(statsOf(proxy)).toEqual({
      created: 0,
      closed: 0,
      failed: 0,
      timedOut: 0,
      requests: 0,
      requestsPerSocket: 0,
      tunnels: 0,
      maxSockets: 1,
      version: 0,
      origins: {},
    });
    for (let i = 0; i < 10; i++) await ask(proxy);
    expect(statsOf(proxy)).toMatchObject({ created: 1, requests: 10, requestsPerSocket: 10 });
    expect(originOf(proxy)).toEqual({ inUse: 0, free: 1, waiting: 0, tunnels: 0 });
    upstream.script = () => {};
    const before = upstream.calls.length;
    const answers = [ask(proxy), ask(proxy)];
    await until(() => upstream.calls.length > before, "a request");
    expect(originOf(proxy)).toEqual({ inUse: 1, free: 0, waiting: 1, tunnels: 0 });
    (await upstream.call(before)).reply(200);
    (await upstream.call(before + 1)).reply(200);
    await Promise.all(answers);
    upstream.links[0]?.socket.destroy();
    await until(() => statsOf(proxy).closed === 1, "a connection less");
    expect(originOf(proxy)).toEqual({ inUse: 0, free: 0, waiting: 0, tunnels: 0 });
  });

  test("`timedOut` counts idle connections that are closed after freeSocketTimeout or socketTTL", async () => {
    const answers = (proxy: NodeProxy): Promise<string[]> =>
      Promise.all(Array.from({ length: 5 }, () => ask(proxy)));
    for (const pool of [{ freeSocketTimeout: 50 }, { socketTTL: 1500 }]) {
      const proxy = pooled(pool);
      await answers(proxy);
      await until(() => statsOf(proxy).closed === 5, "the connections closed");
      expect(statsOf(proxy)).toMatchObject({ created: 5, timedOut: 5 });
    }
  });

  test("`timedOut` does not count connections that are closed for other reasons", async () => {
    // The connection breaks while it is in use, after more time than `freeSocketTimeout`.
    const proxy = pooled({ freeSocketTimeout: 1500 });
    await ask(proxy);
    upstream.script = () => {};
    const since = performance.now();
    const answer = ask(proxy);
    const { link } = await upstream.call(1);
    await until(() => performance.now() - since > 1700, "the time of the idle connection");
    link.socket.destroy();
    expect(await answer).toMatch(/^502 /);
    await until(() => statsOf(proxy).closed === 1, "the connection closed");
    expect(statsOf(proxy)).toMatchObject({ created: 1, timedOut: 0 });

    // A connection is counted as closed in each of these cases: the upstream closes it while it is idle, it exceeds
    // maxFreeSockets, it may not be kept, or the proxy is closed.
    const idle = pooled();
    upstream.script = echo;
    await ask(idle);
    upstream.links.at(-1)?.socket.end();
    await until(() => statsOf(idle).closed === 1, "the idle connection closed");
    const surplus = pooled({ maxFreeSockets: 1 });
    await Promise.all([ask(surplus), ask(surplus)]);
    await until(() => statsOf(surplus).closed === 1, "the surplus closed");
    const unkept = pooled({ maxFreeSockets: 0, socketTTL: 1 });
    await ask(unkept);
    await until(() => statsOf(unkept).closed === 1, "the connection closed");
    const closing = pooled();
    await ask(closing);
    await closing.close();
    await until(() => statsOf(closing).closed === 1, "the proxy's connection closed");
    for (const each of [idle, surplus, unkept, closing]) expect(statsOf(each).timedOut).toBe(0);
  });

  test("stats() returns the same object until something changes", async () => {
    upstream.script = () => {};
    const proxy = pooled({ maxSockets: 1, freeSocketTimeout: 1500 });
    let last = statsOf(proxy);
    const changed = async (what: string): Promise<void> => {
      await until(() => statsOf(proxy) !== last, what);
      const now = statsOf(proxy);
      expect(now).toBe(statsOf(proxy));
      expect(now.version).toBeGreaterThan(last.version);
      last = now;
    };
    const first = ask(proxy);
    await upstream.call();
    await changed("a request");
    const leaving = new AbortController();
    const second = ask(proxy, "/", { signal: leaving.signal });
    await changed("one waiting");
    expect(last).toBe(statsOf(proxy));
    leaving.abort();
    await second;
    await changed("none waiting");
    (await upstream.call()).reply(200);
    await first;
    await changed("a free connection");
    expect(originOf(proxy)).toMatchObject({ free: 1 });
    await changed("none any more");
    expect(statsOf(proxy).closed).toBe(1);
  });

  test("the counters of an origin are the sums over its pools", async () => {
    const target = (request: Request): { url: string; tls?: object } =>
      request.url.endsWith("/tls") ? { url: upstream.url } : { url: upstream.url, tls: {} };
    const proxy = pooled({}, target);
    await Promise.all([ask(proxy), ask(proxy, "/tls")]);
    expect(originOf(proxy)?.free).toBe(2);
  });
});

describe("counting of requests", () => {
  test("a request whose connection cannot be opened is not counted", async () => {
    const proxy = pooled({}, "http://127.0.0.1:1", { retry: { attempts: 1 } });
    expect(await ask(proxy)).toBe("502 Bad Gateway: connection_refused\n");
    await until(() => statsOf(proxy).failed === 2, "both failed");
    expect(statsOf(proxy)).toMatchObject({ created: 0, requests: 0, requestsPerSocket: 0 });
  });

  test("a request whose client disconnects while the connection opens is not counted", async () => {
    const proxy = pooled();
    const leaving = new AbortController();
    const left = ask(proxy, "/", { signal: leaving.signal });
    expect(originOf(proxy)).toMatchObject({ inUse: 1 });
    leaving.abort();
    expect(await left).toMatch(/^499 /);
    await until(() => originOf(proxy)?.inUse === 0, "no connection");
    expect(statsOf(proxy)).toMatchObject({ created: 0, requests: 0 });
    expect(upstream.calls).toEqual([]);
  });

  test("each attempt is counted", async () => {
    const proxy = pooled({}, upstream.url, { retry: { attempts: 2, statusCodes: [503] } });
    upstream.script = (call) => call.reply(503);
    expect(await ask(proxy)).toBe("503 ");
    expect(statsOf(proxy)).toMatchObject({ created: 1, requests: 3, requestsPerSocket: 3 });
  });
});

test("a request that cannot be sent leaves the connections unchanged", async () => {
  const onRequest = ({ path, headers }: RequestDraft): void => {
    if (path === "/bad") headers.set("x-bad", "\u0001");
  };
  const proxy = pooled({}, upstream.url, { onRequest });
  const refused = "400 Bad Request: http_request_error\n";
  expect(await ask(proxy, "/bad")).toBe(refused);
  expect(statsOf(proxy)).toMatchObject({ created: 0, failed: 0 });
  expect(originOf(proxy)).toEqual({ inUse: 0, free: 0, waiting: 0, tunnels: 0 });
  expect(await ask(proxy)).toBe("200 ");
  for (const path of ["/bad", "/bad"]) expect(await ask(proxy, path)).toBe(refused);
  expect(originOf(proxy)).toEqual({ inUse: 0, free: 1, waiting: 0, tunnels: 0 });
  expect(await ask(proxy)).toBe("200 ");
  expect(statsOf(proxy)).toMatchObject({ created: 1, closed: 0 });
});

describe("unused origins", () => {
  test("an origin without connections is removed from the counters after a while", async () => {
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
    const proxy = pooled();
    const used = async (): Promise<void> => {
      expect(await ask(proxy)).toBe("200 ");
      expect(originOf(proxy)?.free).toBe(1);
      upstream.links.at(-1)?.socket.destroy();
      while (originOf(proxy)?.free === 1) await new Promise(setImmediate);
    };
    await used();
    vi.advanceTimersByTime(50_000);
    await used();
    // The pool now checks the origin for the first time, and keeps it, because it was just used.
    vi.advanceTimersByTime(10_000);
    expect(Object.keys(statsOf(proxy).origins)).toEqual([upstream.url]);
    vi.advanceTimersByTime(60_000);
    expect(statsOf(proxy).origins).toEqual({});
    await used();
    expect(Object.keys(statsOf(proxy).origins)).toEqual([upstream.url]);
  });

  test("origins without connections are evicted immediately when there are more than 1000", async () => {
    const server = createServer((_, res) => res.end("ok"));
    const port = await listen(server, 0, "0.0.0.0");
    // All addresses in 127.0.0.0/8 lead to this machine.
    const target = (request: Request): string =>
      `http://127.7${new URL(request.url).pathname.replaceAll("/", ".")}:${port}`;
    const proxy = pooled({ keepAlive: false }, target);
    let most = 0;
    for (let high = 0; high < 12; high++) {
      const paths = Array.from({ length: 100 }, (_, low) => `/${high}/${low + 1}`);
      const answers = await Promise.all(paths.map((path) => ask(proxy, path)));
      expect(answers).toEqual(Array(100).fill("200 ok"));
      most = Math.max(most, Object.keys(statsOf(proxy).origins).length);
    }
    expect(most).toBe(1000);
    expect(Object.keys(statsOf(proxy).origins).length).toBeLessThan(500);
    // An evicted origin is created again.
    expect(await ask(proxy, "/0/1")).toBe("200 ok");
    expect(statsOf(proxy).origins[`http://127.7.0.1:${port}`]).toBeDefined();
    server.close();
  });
});
