import { once } from "node:events";
import { createServer, type IncomingMessage } from "node:http";
import { afterEach, describe, expect, test } from "vitest";
import { poolDefaults } from "../../../src/options/pooloptions.ts";
import { connect } from "../../helpers/client.ts";
import { ask, originOf, pooled, statsOf, upstream } from "./_pool.ts";
import { listen } from "../../helpers/serve.ts";
import { pause, until } from "../../helpers/wait.ts";
import { request } from "../../helpers/wire.ts";

const LIMITED = "503 Service Unavailable: connection_limit_reached\n";

const cleanups: (() => unknown)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0)) await cleanup();
});

test("without limits, each concurrent request has its own connection, and all connections are kept", async () => {
  const proxy = pooled({ maxSockets: Infinity, maxFreeSockets: Infinity, maxQueued: Infinity });
  const count = poolDefaults.maxSockets + 50;
  upstream.script = async (call) => {
    await until(() => upstream.calls.length === count, "all requests at the upstream");
    call.reply(200);
  };
  const answers = await Promise.all(Array.from({ length: count }, () => ask(proxy)));
  expect(answers).toEqual(Array(count).fill("200 "));
  // Idle connections above a limit would be closed after 100 ms.
  await pause(250);
  expect(originOf(proxy)).toEqual({ inUse: 0, free: count, waiting: 0, tunnels: 0 });
});

test("with `maxQueued: Infinity`, no request is refused", async () => {
  const proxy = pooled({ maxSockets: 1, maxQueued: Infinity, queueTimeout: 0 });
  const count = poolDefaults.maxQueued + 2;
  const first = Promise.withResolvers<void>();
  upstream.script = async (call) => {
    await first.promise;
    call.reply(200);
  };
  const answers = Array.from({ length: count }, () => ask(proxy));
  await until(() => originOf(proxy)?.waiting === count - 1, "all but one waiting");
  first.resolve();
  expect(new Set(await Promise.all(answers))).toEqual(new Set(["200 "]));
});

describe("maxQueued", () => {
  test("requests over the limit get 503 with Retry-After", async () => {
    upstream.script = () => {};
    const proxy = pooled({ maxSockets: 1, maxQueued: 2 });
    const answers = ["/1", "/2", "/3"].map((path) => ask(proxy, path));
    await until(() => upstream.calls.length === 1, "the first request");
    const response = await proxy.fetch(new Request("http://proxy.test/4"));
    expect(response.headers.get("retry-after")).toBe("1");
    expect(response.headers.get("proxy-status")).toBe("fetchway; error=connection_limit_reached");
    expect(`${response.status} ${await response.text()}`).toBe(LIMITED);
    for (let index = 0; index < 3; index++) (await upstream.call(index)).reply(200);
    expect(await Promise.all(answers)).toEqual(Array(3).fill("200 "));
    expect(upstream.calls.map(({ target }) => target)).toEqual(["/1", "/2", "/3"]);
  });

  test("with a limit of 0, no request waits", async () => {
    upstream.script = () => {};
    const proxy = pooled({ maxSockets: 1, maxQueued: 0 });
    const first = ask(proxy);
    expect(await ask(proxy)).toBe(LIMITED);
    (await upstream.call()).reply(200);
    expect(await first).toBe("200 ");
  });
});

test("a request that waits longer than queueTimeout is never sent", async () => {
  upstream.script = () => {};
  const proxy = pooled({ maxSockets: 1, queueTimeout: 2000 });
  const first = ask(proxy, "/first");
  expect(await ask(proxy, "/late")).toBe(LIMITED);
  expect(originOf(proxy)).toEqual({ inUse: 1, free: 0, waiting: 0, tunnels: 0 });
  const next = ask(proxy, "/next");
  (await upstream.call()).reply(200);
  (await upstream.call(1)).reply(200);
  expect(await Promise.all([first, next])).toEqual(["200 ", "200 "]);
  expect(upstream.calls.map(({ target }) => target)).toEqual(["/first", "/next"]);
});

describe("many clients over a few connections", () => {
  test("4096 requests are sent in order, over at most 50 connections", async () => {
    let running = 0;
    let most = 0;
    upstream.script = () => {};
    const proxy = pooled({ maxSockets: 50, queueTimeout: 0 });
    const asked: (string | undefined)[] = [];
    const server = createServer((req, res) => {
      asked.push(req.url);
      proxy.nodeHandler(req, res);
    });
    cleanups.push(() => server.close());
    const port = await listen(server);
    const first = Array.from({ length: 50 }, () => ask(proxy, "/first"));
    await until(() => upstream.calls.length === 50, "all connections in use");
    const held = upstream.calls.splice(0);
    const clients = await Promise.all(Array.from({ length: 4096 }, () => connect(port)));
    clients.forEach((client, index) => client.send(request("GET", `/${index}`)));
    await until(() => originOf(proxy)?.waiting === 4096, "all others waiting");
    upstream.script = (call) => {
      most = Math.max(most, ++running);
      setTimeout(() => {
        running--;
        call.reply(200, [], "ok");
      }, 1);
    };
    for (const call of held) call.reply(200);
    const answers = await Promise.all(
      clients.map(async (client) => client.readBody(await client.readHead(60_000), "GET", 60_000)),
    );
    for (const client of clients) client.leave("FIN");
    expect(await Promise.all(first)).toEqual(Array(50).fill("200 "));
    expect(answers.filter(({ status, text }) => status !== 200 || text !== "ok")).toEqual([]);
    expect(most).toBeLessThanOrEqual(50);
    expect(upstream.links).toHaveLength(50);
    // Requests that were sent at the same time used different connections, so they may arrive in a slightly
    // different order.
    const place = new Map(upstream.calls.map(({ target }, index) => [target, index]));
    const moved = asked.map((path, index) => Math.abs((place.get(path ?? "") ?? NaN) - index));
    expect(Math.max(...moved)).toBeLessThanOrEqual(50);
    expect(statsOf(proxy)).toMatchObject({ created: 50, requests: 50 + 4096 });
  });

  test("queued requests whose clients disconnect are removed immediately and never sent", async () => {
    upstream.script = () => {};
    const proxy = pooled({ maxSockets: 2 });
    const busy = [ask(proxy, "/busy"), ask(proxy, "/busy")];
    await until(() => upstream.calls.length === 2, "two busy connections");
    const server = createServer(proxy.nodeHandler);
    cleanups.push(() => server.close());
    const port = await listen(server);
    const leave = async (): Promise<void> => {
      const clients = await Promise.all(Array.from({ length: 500 }, () => connect(port)));
      for (const client of clients) client.send(request("GET", "/gone"));
      await until(() => originOf(proxy)?.waiting === 500, "500 waiting");
      for (const client of clients) client.leave("FIN");
      await until(() => originOf(proxy)?.waiting === 0, "none waiting");
    };
    for (let round = 0; round < 4; round++) await leave();
    const last = ask(proxy, "/last");
    for (const call of upstream.calls) call.reply(200);
    (await upstream.call(2)).reply(200);
    expect(await Promise.all([...busy, last])).toEqual(Array(3).fill("200 "));
    expect(upstream.calls.map(({ target }) => target)).toEqual(["/busy", "/busy", "/last"]);
  });

  test("the body of a queued request is not read, so that its client pauses and memory stays flat", async () => {
    upstream.script = () => {};
    const proxy = pooled({ maxSockets: 1 });
    const first = ask(proxy, "/first");
    await upstream.call();
    let incoming: IncomingMessage | undefined;
    const server = createServer((req, res) => {
      incoming = req;
      proxy.nodeHandler(req, res);
    });
    cleanups.push(() => server.close());
    const client = await connect(await listen(server));
    const size = 64 * 1024 * 1024;
    client.send(`POST / HTTP/1.1\r\nHost: a\r\nContent-Length: ${size}\r\n\r\n`);
    await until(() => incoming !== undefined && originOf(proxy)?.waiting === 1, "it waits");
    const piece = Buffer.alloc(1024 * 1024);
    for (let sent = 0; sent < size && client.socket.write(piece); sent += piece.length);
    if (!client.socket.writableNeedDrain) await once(client.socket, "drain");
    expect(incoming?.readableLength).toBeLessThan(1024 * 1024);
    (await upstream.call()).reply(200);
    expect(await first).toBe("200 ");
    (await upstream.call(1)).reply(200);
    expect((await client.read()).status).toBe(200);
    client.leave("RST");
  });
});
