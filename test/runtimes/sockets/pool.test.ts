import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import { afterEach, describe, expect, it } from "vitest";
import { createProxy, createTransport, type NodeProxy } from "../../../runtimes/node.ts";
import type { ProxyOptions } from "../../../src/options/proxyoptions.ts";
import type { PoolOptions } from "../../../src/options/pooloptions.ts";
import { until } from "../../helpers/wait.ts";

const cleanups: (() => Promise<unknown> | void)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).toReversed()) await cleanup();
});

interface Upstream {
  url: string;
  sockets: Set<Socket>;
  opened: () => number;
  paths: string[];
  /** Answers the oldest request that is still waiting for a response. */
  answer: () => void;
  held: number;
}

/** Starts an upstream that answers when the test calls `answer`, or immediately if `hold` is false. */
async function startUpstream(
  hold: boolean,
  onRequest?: (res: ServerResponse) => void,
): Promise<Upstream> {
  const sockets = new Set<Socket>();
  const waiting: ServerResponse[] = [];
  const paths: string[] = [];
  let opened = 0;
  const server = createServer((req: IncomingMessage, res) => {
    paths.push(req.url ?? "");
    onRequest?.(res);
    if (hold) waiting.push(res);
    else res.end("ok");
  });
  server.keepAliveTimeout = 0;
  server.on("connection", (socket) => {
    opened++;
    sockets.add(socket);
    socket.on("close", () => sockets.delete(socket));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  cleanups.push(() => {
    server.closeAllConnections();
    return new Promise((resolve) => server.close(resolve));
  });
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    sockets,
    opened: () => opened,
    paths,
    answer: () => waiting.shift()?.end("ok"),
    get held() {
      return waiting.length;
    },
  };
}

function startProxy(target: string, pool: PoolOptions = {}, more: ProxyOptions = {}): NodeProxy {
  const proxy = createProxy({ target, pool, ...more });
  cleanups.push(() => proxy.close());
  return proxy;
}

async function ask(proxy: NodeProxy, path: string, init?: RequestInit): Promise<string> {
  const response = await proxy.fetch(new Request(`http://proxy.test${path}`, init));
  return `${response.status} ${await response.text()}`;
}

describe("maxSockets", () => {
  it("maxSockets limits the connections, and waiting requests are sent in order", async () => {
    const upstream = await startUpstream(true);
    const proxy = startProxy(upstream.url, { maxSockets: 2 });
    const answers = ["/1", "/2", "/3", "/4", "/5"].map((path) => ask(proxy, path));
    await until(() => upstream.held === 2, "two requests at the upstream");
    expect(proxy.stats()?.origins[upstream.url]).toEqual({
      inUse: 2,
      free: 0,
      waiting: 3,
      tunnels: 0,
    });
    for (let left = 5; left > 0; left--) {
      await until(() => upstream.held === Math.min(left, 2), `${left} requests left`);
      upstream.answer();
    }
    expect(await Promise.all(answers)).toEqual(Array(5).fill("200 ok"));
    expect(upstream.paths.slice(2)).toEqual(["/3", "/4", "/5"]);
    expect(upstream.opened()).toBe(2);
  });

  it("a queued request whose client disconnects is never sent", async () => {
    const upstream = await startUpstream(true);
    const proxy = startProxy(upstream.url, { maxSockets: 1 });
    const first = ask(proxy, "/first");
    await until(() => upstream.held === 1, "the first request");
    const leaving = new AbortController();
    const gone = ask(proxy, "/gone", { signal: leaving.signal });
    const last = ask(proxy, "/last");
    await until(() => proxy.stats()?.origins[upstream.url]?.waiting === 2, "two waiting");
    leaving.abort();
    expect(await gone).toMatch(/^499 /);
    upstream.answer();
    await until(() => upstream.held === 1, "the last request");
    upstream.answer();
    expect(await Promise.all([first, last])).toEqual(["200 ok", "200 ok"]);
    expect(upstream.paths).toEqual(["/first", "/last"]);
  });

  it("after a failed connection attempt, the next waiting request tries to connect", async () => {
    const proxy = startProxy("http://127.0.0.1:1", { maxSockets: 1 }, { retry: false });
    const answers = await Promise.all(["/1", "/2", "/3"].map((path) => ask(proxy, path)));
    expect(answers).toEqual(Array(3).fill("502 Bad Gateway: connection_refused\n"));
    await expect.poll(() => proxy.stats()).toMatchObject({ created: 0, failed: 3, requests: 0 });
  });
});

describe("a body that is not sent", () => {
  const stream = (cancelled: () => void): RequestInit & { duplex: "half" } => ({
    method: "POST",
    duplex: "half",
    body: new ReadableStream({
      start: (controller) => controller.enqueue(new Uint8Array(1)),
      cancel: cancelled,
    }),
  });

  it("the request body is cancelled when no connection can be opened", async () => {
    let cancelled = 0;
    const proxy = startProxy("http://127.0.0.1:1");
    expect(
      await ask(
        proxy,
        "/",
        stream(() => cancelled++),
      ),
    ).toMatch(/^502 /);
    await expect.poll(() => cancelled).toBe(1);
  });
});

describe("idle connections", () => {
  it("up to maxFreeSockets idle connections are kept, and the others are closed", async () => {
    const upstream = await startUpstream(true);
    const proxy = startProxy(upstream.url, { maxFreeSockets: 2 });
    const answers = ["/1", "/2", "/3", "/4"].map((path) => ask(proxy, path));
    await until(() => upstream.held === 4, "four requests");
    for (let i = 0; i < 4; i++) upstream.answer();
    await Promise.all(answers);
    await until(() => upstream.sockets.size === 2, "two connections left");
    expect(proxy.stats()?.origins[upstream.url]).toEqual({
      inUse: 0,
      free: 2,
      waiting: 0,
      tunnels: 0,
    });
  });

  it("more idle connections than maxFreeSockets are kept for a moment, because the next requests may reuse them", async () => {
    const upstream = await startUpstream(true);
    const proxy = startProxy(upstream.url, { maxFreeSockets: 1 });
    for (let batch = 1; batch <= 10; batch++) {
      const answers = ["/1", "/2", "/3", "/4"].map((path) => ask(proxy, path));
      await until(() => upstream.held === 4, "four requests");
      for (let i = 0; i < 4; i++) upstream.answer();
      await Promise.all(answers);
    }
    // If surplus connections were closed immediately, ten batches would need 31 connections.
    expect(proxy.stats()?.created).toBeLessThan(31);
    await until(() => upstream.sockets.size === 1, "one connection left");
  });

  it("an idle connection is closed after freeSocketTimeout", async () => {
    const upstream = await startUpstream(false);
    const proxy = startProxy(upstream.url, { freeSocketTimeout: 100 });
    expect(await ask(proxy, "/")).toBe("200 ok");
    await until(() => upstream.sockets.size === 0, "no connection left");
    expect(proxy.stats()).toMatchObject({ created: 1, closed: 1 });
    expect(await ask(proxy, "/")).toBe("200 ok");
    expect(upstream.opened()).toBe(2);
  });

  it("an idle connection is not reused if the Keep-Alive hint is too short to be safe", async () => {
    const hint = (res: ServerResponse): void => void res.setHeader("Keep-Alive", "timeout=1");
    const upstream = await startUpstream(false, hint);
    const proxy = startProxy(upstream.url);
    await ask(proxy, "/1");
    await until(() => upstream.sockets.size === 0, "no connection left");
    await ask(proxy, "/2");
    expect(upstream.opened()).toBe(2);
  });

  it("later requests reuse an idle connection", async () => {
    const upstream = await startUpstream(false);
    const proxy = startProxy(upstream.url);
    await Promise.all([ask(proxy, "/1"), ask(proxy, "/2"), ask(proxy, "/3")]);
    for (let i = 0; i < 10; i++) await ask(proxy, "/");
    expect(upstream.opened()).toBe(3);
    expect(proxy.stats()).toMatchObject({ created: 3, requests: 13 });
  });
});

describe("close", () => {
  it("running and waiting requests finish after `close`, and new requests are refused", async () => {
    const upstream = await startUpstream(true);
    const proxy = startProxy(upstream.url, { maxSockets: 1 });
    const running = ask(proxy, "/running");
    const waiting = ask(proxy, "/waiting");
    await until(() => upstream.held === 1, "the first request");
    let closed = false;
    const closing = proxy.close().then(() => (closed = true));
    expect(await ask(proxy, "/late")).toMatch(/^503 /);
    expect(closed).toBe(false);
    upstream.answer();
    await until(() => upstream.held === 1, "the second request");
    upstream.answer();
    expect(await Promise.all([running, waiting])).toEqual(["200 ok", "200 ok"]);
    await closing;
    await until(() => upstream.sockets.size === 0, "no connection left");
  });

  it("`close` of a proxy does not close a transport that was passed to it", async () => {
    const upstream = await startUpstream(false);
    const transport = createTransport();
    const proxy = createProxy({ target: upstream.url, transport });
    await ask(proxy, "/");
    await proxy.close();
    expect(await ask(proxy, "/")).toBe("200 ok");
    await transport.close?.();
    expect(await ask(proxy, "/")).toMatch(/^503 /);
  });
});
