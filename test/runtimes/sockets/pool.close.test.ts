import { createServer, type Socket } from "node:net";
import { describe, expect, test } from "vitest";
import { createProxy, createTransport } from "../../../runtimes/node.ts";
import { ask, openLinks, originOf, pooled, statsOf, upstream } from "./_pool.ts";
import { listen } from "../../helpers/serve.ts";
import { until, within } from "../../helpers/wait.ts";

const CLOSED = "503 Service Unavailable: destination_unavailable\n";

describe("close(timeout)", () => {
  test("running and waiting requests that end before the timeout succeed, and later requests get 503", async () => {
    upstream.script = () => {};
    const proxy = pooled({ maxSockets: 1 });
    const answers = [ask(proxy), ask(proxy)];
    await until(() => originOf(proxy)?.waiting === 1, "one running, one waiting");
    const closing = proxy.close(60_000);
    const late = await proxy.fetch(new Request("http://proxy.test/"));
    expect([late.status, late.headers.get("retry-after")]).toEqual([503, "1"]);
    (await upstream.call()).reply(200);
    (await upstream.call(1)).reply(200);
    expect(await Promise.all(answers)).toEqual(["200 ", "200 "]);
    await within(closing, "the close");
    await until(() => openLinks() === 0, "no connection left");
  });

  test("running and waiting requests that do not end before the timeout are aborted", async () => {
    upstream.script = () => {};
    const proxy = pooled({ maxSockets: 1 });
    const answers = [ask(proxy), ask(proxy)];
    await upstream.call();
    await within(proxy.close(100), "the close");
    expect(await Promise.all(answers)).toEqual([CLOSED, CLOSED]);
    await until(() => openLinks() === 0, "no connection left");
    expect(upstream.calls).toHaveLength(1);
    expect(originOf(proxy)).toEqual({ inUse: 0, free: 0, waiting: 0, tunnels: 0 });
  });

  test("with a timeout of 0, `close` waits without a limit", async () => {
    upstream.script = () => {};
    const proxy = pooled();
    const answer = ask(proxy);
    const call = await upstream.call();
    const closing = Promise.all([proxy.close(0), proxy.close()]);
    call.reply(200);
    expect(await answer).toBe("200 ");
    await within(closing, "the close");
  });

  test.each([-1, 1.5, Number.NaN, "5"])(
    "the timeout %j is refused, also without own connections, and no request is aborted",
    async (timeout) => {
      const wrong = timeout as number;
      const message = /^fetchway: .*timeout.*: use whole milliseconds, 0 for no limit$/;
      const transport = createTransport();
      await expect(transport.close?.(wrong)).rejects.toThrow(message);
      const other = createProxy({ target: upstream.url, transport });
      await expect(other.close(wrong)).rejects.toThrow(message);
      const proxy = pooled({}, "http://127.0.0.1:1", { wait: 60_000 });
      const answer = ask(proxy);
      await until(() => statsOf(proxy).held === 1, "the wait for the upstream");
      await expect(proxy.close(wrong)).rejects.toThrow(message);
      expect(statsOf(proxy).held).toBe(1);
      proxy.destroy();
      expect(await answer).toBe(CLOSED);
    },
  );
});

describe("destroy()", () => {
  test("running, waiting and late requests fail, and free connections close", async () => {
    const proxy = pooled({ maxSockets: 2 });
    await Promise.all([ask(proxy), ask(proxy)]);
    upstream.script = () => {};
    const before = upstream.calls.length;
    const answers = [ask(proxy), ask(proxy), ask(proxy), ask(proxy)];
    await until(() => upstream.calls.length === before + 2, "two running");
    proxy.destroy();
    expect(await Promise.all([...answers, ask(proxy)])).toEqual(Array(5).fill(CLOSED));
    await until(() => openLinks() === 0, "no connection left");
    expect(originOf(proxy)).toEqual({ inUse: 0, free: 0, waiting: 0, tunnels: 0 });
    const { created, closed } = statsOf(proxy);
    expect(closed).toBe(created);
    await within(proxy.close(), "a close after that");
    proxy.destroy();
  });

  test("a response that has begun is truncated", async () => {
    upstream.script = (call) => call.write("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf");
    const proxy = pooled();
    const response = await proxy.fetch(new Request("http://proxy.test/"));
    proxy.destroy();
    await expect(response.text()).rejects.toMatchObject({ code: "destination_unavailable" });
  });

  test("a connection attempt is aborted", async () => {
    const server = createServer();
    const port = await listen(server);
    const proxy = pooled({ connectTimeout: 0 }, `https://127.0.0.1:${port}`);
    const answer = ask(proxy);
    const socket = await new Promise<Socket>((resolve) => server.once("connection", resolve));
    const gone = new Promise((resolve) => socket.on("error", resolve).on("close", resolve));
    socket.resume();
    proxy.destroy();
    expect(await answer).toBe(CLOSED);
    await within(gone, "its end");
    expect(statsOf(proxy)).toMatchObject({ created: 0, failed: 1 });
    server.close();
  });

  test("a request after `destroy()` to an origin that was never used also fails", async () => {
    const proxy = pooled({}, "http://127.0.0.1:1");
    proxy.destroy();
    expect(await ask(proxy)).toBe(CLOSED);
  });

  test("a proxy does not close a transport that was passed to it", async () => {
    const transport = createTransport();
    const proxy = createProxy({ target: upstream.url, transport });
    proxy.destroy();
    expect(await ask(proxy)).toBe("200 ");
    transport.destroy?.();
    expect(await ask(proxy)).toBe(CLOSED);
  });
});
