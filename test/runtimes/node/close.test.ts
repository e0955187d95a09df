/** `close()`: an exchange that has begun may still send requests, at whatever stage it is. */
import { expect, test } from "vitest";
import { createProxy } from "../../../runtimes/node.ts";
import type { CreateProxyOptions } from "../../../src/proxy.ts";
import { balance } from "../../../src/upstreams/balance.ts";
import { useApps } from "../../helpers/apps.ts";
import { until, within } from "../../helpers/wait.ts";

const { upstream } = useApps();

const get = (path = "/"): Request => new Request(`http://proxy.test${path}`);
const onePlace = (): CreateProxyOptions["target"] => balance([upstream.url], { maxRequests: 1 });

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
