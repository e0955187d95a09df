/** `close()`: an exchange that has begun may still send requests, at whatever stage it is. */
import { describe, expect, test } from "vitest";
import * as node from "../../../runtimes/node.ts";
import * as undici from "../../../runtimes/undici.ts";
import type { CreateProxyOptions } from "../../../src/proxy.ts";
import type { Interceptor } from "../../../src/transport/port.ts";
import { balance } from "../../../src/upstreams/balance.ts";
import { useApps } from "../../helpers/apps.ts";
import { until, within } from "../../helpers/wait.ts";

const { upstream } = useApps();

const get = (path = "/"): Request => new Request(`http://proxy.test${path}`);
const onePlace = (): CreateProxyOptions["target"] => balance([upstream.url], { maxRequests: 1 });

describe.each(Object.entries({ node, undici }))("in fetchway/%s,", (_entry, { createProxy }) => {
  test.each<[what: string, method: string, first: number, options: Partial<CreateProxyOptions>]>([
    ["GET to the target of a redirect", "GET", 302, { followRedirects: true }],
    ["HEAD to the target of a redirect", "HEAD", 302, { followRedirects: true }],
    ["GET again", "GET", 500, { retry: { statusCodes: [500], delay: 10 } }],
    ["HEAD again", "HEAD", 500, { retry: { statusCodes: [500], delay: 10 } }],
  ])("close() lets an exchange send its %s", async (_, method, first, options) => {
    upstream.script = () => {};
    const proxy = createProxy({ target: upstream.url, ...options });
    const asked = proxy.fetch(new Request("http://proxy.test/", { method }));
    const call = await upstream.call(0);
    const closed = proxy.close();
    expect((await proxy.fetch(get("/late"))).status).toBe(503);
    call.reply(first, [["Location", "/other"]]);
    (await upstream.call(1)).reply(200);
    expect((await asked).status).toBe(200);
    await within(closed, "close()");
  });

  test("close() lets an exchange send its request that waits for a place at an upstream", async () => {
    upstream.script = () => {};
    const proxy = createProxy({ target: onePlace() });
    const asked = [proxy.fetch(get("/1")), proxy.fetch(get("/2"))];
    const call = await upstream.call(0);
    let isClosed = false;
    const closed = Promise.all([proxy.close(), proxy.close()]).then(() => (isClosed = true));
    call.reply(200, [], "one");
    const next = await upstream.call(1);
    expect(isClosed).toBe(false);
    next.reply(200, [], "two");
    const answers = await Promise.all(asked.map(async (each) => (await each).text()));
    expect(answers).toEqual(["one", "two"]);
    await within(closed, "close()");
    await until(() => upstream.openLinks === 0, "no connection left");
  });

  test("close() lets an exchange send its request whose body has yet to arrive", async () => {
    const proxy = createProxy({ target: upstream.url });
    const { readable, writable } = new TransformStream<Uint8Array, Uint8Array>();
    const init = { method: "POST", body: readable, duplex: "half" } as RequestInit;
    const asked = proxy.fetch(new Request("http://proxy.test/", init));
    const closed = proxy.close();
    const writer = writable.getWriter();
    await writer.write(new TextEncoder().encode("late"));
    await writer.close();
    expect(await (await asked).text()).toBe("late");
    await within(closed, "close()");
  });

  test("close() lets an exchange send the requests of an interceptor that waits between them", async () => {
    upstream.script = (call) => call.reply(call.target === "/first" ? 500 : 200);
    let closed: Promise<void> | undefined;
    const intercept: Interceptor = (next) => async (request, scope) => {
      await next({ ...request, path: "/first" }, scope);
      closed = proxy.close();
      scope.fork().abort(new Error("not needed"));
      await new Promise((resolve) => setTimeout(resolve, 10));
      await next({ ...request, path: "/fork" }, scope.fork());
      return next(request, scope.again());
    };
    const proxy = createProxy({ target: upstream.url, interceptors: { request: [intercept] } });
    expect((await proxy.fetch(get())).status).toBe(200);
    expect(upstream.calls.map(({ target }) => target)).toEqual(["/first", "/fork", "/"]);
    await within(closed as Promise<void>, "close()");
  });

  test("close() lets an exchange send its request whose target is being determined", async () => {
    const address = Promise.withResolvers<string>();
    const proxy = createProxy({ target: () => address.promise });
    const asked = proxy.fetch(get());
    const closed = proxy.close();
    address.resolve(upstream.url);
    expect((await asked).status).toBe(200);
    await within(closed, "close()");
  });

  test("close() does not wait for an exchange that was aborted, although its interceptor never settles", async () => {
    const begun = Promise.withResolvers<void>();
    const intercept: Interceptor = () => () => {
      begun.resolve();
      return new Promise(() => {});
    };
    const proxy = createProxy({ target: upstream.url, interceptors: { request: [intercept] } });
    const client = new AbortController();
    void proxy.fetch(new Request("http://proxy.test/", client));
    await begun.promise;
    const closed = proxy.close();
    client.abort();
    await within(closed, "close()");
  });

  test("close() does not wait for an exchange that another proxy has taken over", async () => {
    const before = createProxy({ target: "http://127.0.0.1:1", wait: 60_000 });
    const after = createProxy({ target: upstream.url });
    const asked = before.fetch(get());
    await until(() => before.stats()?.held === 1, "the wait of the request");
    before.moveWaiting(() => after);
    expect((await asked).status).toBe(200);
    await within(before.close(), "close()");
    await after.close();
  });

  test("close() does not wait for the additional requests of an exchange that was only explained", async () => {
    const intercept: Interceptor = (next) => async (request, scope) => {
      scope.fork();
      const additional = scope.fork();
      await next(request, additional);
      expect(additional.isEnded).toBe(true);
      return next(request, scope);
    };
    const proxy = createProxy({ target: upstream.url, interceptors: { request: [intercept] } });
    expect((await proxy.explain(get())).error).toBeUndefined();
    await within(proxy.close(), "close()");
  });

  test("close() cancels the body of a request that it refuses", async () => {
    const proxy = createProxy({ target: upstream.url });
    await proxy.close();
    const cancelled = Promise.withResolvers<void>();
    const body = new ReadableStream<Uint8Array>({
      pull: (controller) => controller.enqueue(new Uint8Array(1)),
      cancel: () => cancelled.resolve(),
    });
    const init = { method: "POST", body, duplex: "half" } as RequestInit;
    expect((await proxy.fetch(new Request("http://proxy.test/", init))).status).toBe(503);
    await within(cancelled.promise, "the end of the body");
  });

  test("close() does not wait for an exchange that was aborted before it began", async () => {
    const proxy = createProxy({ target: upstream.url, signal: AbortSignal.abort() });
    expect((await proxy.fetch(get())).status).toBe(499);
    await within(proxy.close(), "close()");
  });

  test("close(timeout) fails also the exchanges that have sent no request so far", async () => {
    upstream.script = () => {};
    const proxy = createProxy({ target: onePlace() });
    const asked = [proxy.fetch(get("/1")), proxy.fetch(get("/2"))];
    await upstream.call(0);
    await within(proxy.close(50), "close()");
    expect((await Promise.all(asked)).map(({ status }) => status)).toEqual([503, 503]);
    expect(upstream.calls).toHaveLength(1);
  });
});
