/** The HTTP/1.1 client as a transport: its pools, and the parts that come from a runtime. */
import { describe, expect, test, vi } from "vitest";
import { HttpTransport } from "../../../src/http1/client.ts";
import type { Codec } from "../../../src/http1/codec.ts";
import { portableCodec } from "./_codec.ts";
import type { FilledPoolOptions, PoolOptions } from "../../../src/options/pooloptions.ts";
import { parseTarget, type TargetAddress } from "../../../src/target/target.ts";
import type { UpstreamResponse } from "../../../src/transport/message.ts";
import { Scope } from "../../../src/transport/scope.ts";
import { errorOf, FakeClient, fakeRequest, fakeScope } from "../../helpers/fakes.ts";
import { FakeConnector, settled } from "./_sockets.ts";

const EMPTY = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

class Bench {
  readonly connector = new FakeConnector();
  readonly transport: HttpTransport;
  options: FilledPoolOptions | undefined;
  /** The attempts that begin later, as functions that begin them. */
  readonly scheduled: (() => void)[] = [];

  constructor(options: PoolOptions = {}, codec?: Codec) {
    this.transport = new HttpTransport("fake", options, {
      createConnector: (filled) => {
        this.options = filled;
        return this.connector;
      },
      codec: codec ?? portableCodec,
      schedule: (pool, attempt) => void this.scheduled.push(() => pool.begin(attempt)),
    });
  }

  send(target: TargetAddress, method = "GET"): Promise<UpstreamResponse> {
    return this.transport.send(fakeRequest({ upstream: parseTarget(target), method }), fakeScope());
  }

  /** Sends a request to a target. If the request opens a connection, the attempt succeeds and the request is answered. */
  async exchange(target: TargetAddress): Promise<void> {
    const before = this.connector.attempts.length;
    const reply = this.send(target);
    if (this.connector.attempts.length > before) {
      const socket = await this.connector.at(before).succeed();
      socket.receive(EMPTY);
      expect((await reply).status).toBe(200);
    }
  }
}

test("the connector gets the options of the pool, completed with their defaults", () => {
  const { options } = new Bench({ connectTimeout: 123 });
  expect(options).toMatchObject({ connectTimeout: 123, maxSockets: 256 });
});

test("a request listens to its client immediately if it waits for a connection, and only later if it reuses an idle one", async () => {
  const { transport, connector } = new Bench({ maxSockets: 1 });
  const upstream = parseTarget("http://a.test");
  const clients = ["connecting", "queued", "reusing"].map(() => {
    const client = new FakeClient();
    client.listenAfter = 5_000;
    return client;
  }) as [FakeClient, FakeClient, FakeClient];
  const replies = clients.map((client, i) => {
    if (i === 2) return undefined;
    return transport.send(fakeRequest({ upstream }), new Scope(client, 0, 0));
  });
  expect(clients.map(({ listeners }) => listeners.size)).toEqual([1, 1, 0]);
  clients[1].leave();
  expect(await errorOf(() => replies[1])).toMatchObject({ status: 499 });
  const socket = await connector.at(0).succeed();
  socket.receive(EMPTY);
  await (await replies[0])?.body?.stream().cancel();
  const scope = new Scope(clients[2], 0, 0);
  const reusing = transport.send(fakeRequest({ upstream }), scope);
  expect(clients[2].listeners.size).toBe(0);
  socket.receive(EMPTY);
  expect((await reusing).status).toBe(200);
  expect(connector.attempts).toHaveLength(1);
  scope.end();
});

test("the pools of unused origins are removed within two minutes", async () => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
  try {
    const bench = new Bench({ keepAlive: false });
    for (let i = 0; i < 10; i++) await bench.exchange(`http://up${i}.test`);
    expect(Object.keys(bench.transport.stats().origins)).toHaveLength(10);
    vi.advanceTimersByTime(120_000);
    expect(bench.transport.stats().origins).toEqual({});
    expect(vi.getTimerCount()).toBe(0);
  } finally {
    vi.useRealTimers();
  }
});

describe("an attempt that begins later", () => {
  const target = "http://up.test";

  /** Begins the attempt, and answers it on the only connection. */
  async function answer({ scheduled, connector }: Bench): Promise<void> {
    for (const begin of scheduled.splice(0)) begin();
    const socket = await connector.at(0).succeed();
    socket.receive(EMPTY);
  }

  test("keeps its pool from being removed", async () => {
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
    try {
      const bench = new Bench();
      const reply = bench.send(target, "POST");
      vi.advanceTimersByTime(120_000);
      for (const begin of bench.scheduled.splice(0)) begin();
      expect(Object.keys(bench.transport.stats().origins)).toEqual([target]);
      bench.transport.destroy();
      expect(await errorOf(() => reply)).toMatchObject({ status: 503 });
    } finally {
      vi.useRealTimers();
    }
  });

  test("is a running request for close()", async () => {
    const bench = new Bench();
    const reply = bench.send(target, "POST");
    let isClosed = false;
    const closing = bench.transport.close().then(() => (isClosed = true));
    await settled();
    expect(isClosed).toBe(false);
    expect(await errorOf(() => bench.send(target, "POST"))).toMatchObject({ status: 503 });
    await answer(bench);
    expect((await reply).status).toBe(200);
    await closing;
  });

  test("lets close() finish if it is aborted before", async () => {
    const bench = new Bench();
    const client = new FakeClient();
    const request = fakeRequest({ upstream: parseTarget(target), method: "POST" });
    const reply = bench.transport.send(request, new Scope(client, 0, 0));
    const closing = bench.transport.close();
    client.leave();
    expect(await errorOf(() => reply)).toMatchObject({ status: 499 });
    for (const begin of bench.scheduled.splice(0)) begin();
    await closing;
    expect(bench.connector.attempts).toEqual([]);
  });

  test("fails if the transport is destroyed before", async () => {
    const bench = new Bench();
    const reply = bench.send(target, "POST");
    bench.transport.destroy();
    for (const begin of bench.scheduled.splice(0)) begin();
    expect(await errorOf(() => reply)).toMatchObject({ status: 503 });
    expect(bench.connector.attempts).toEqual([]);
  });
});

describe("the destinations of targets", () => {
  test("the connector gets the destination of each connection", async () => {
    const bench = new Bench({ tls: { ca: "pool's" } });
    for (const target of [
      "http://up.test:4000/base",
      "https://up.test",
      { url: "http://up.test", socketPath: "/a.sock" },
      { url: "https://up.test", tls: { ca: "its own" } },
    ]) {
      await bench.exchange(target);
    }
    expect(bench.connector.attempts.map(({ destination }) => destination)).toMatchObject([
      { origin: "http://up.test:4000", hostname: "up.test", secure: false, tls: undefined },
      { origin: "https://up.test", secure: true, tls: { ca: "pool's" } },
      { origin: "http://up.test", socketPath: "/a.sock" },
      { origin: "https://up.test", tls: { ca: "its own" } },
    ]);
  });

  test("targets with equal destinations share connections", async () => {
    const bench = new Bench();
    await bench.exchange("http://up.test/a");
    void bench.send("http://up.test/b");
    expect(bench.connector.attempts).toHaveLength(1);
    void bench.send({ url: "http://up.test/a", socketPath: "/a.sock" });
    expect(bench.connector.attempts).toHaveLength(2);
  });

  test("equal destinations are the same object, which a connector can use as the key of a cache", async () => {
    const bench = new Bench();
    void bench.send("http://up.test/a").catch(() => {});
    void bench.send("http://up.test/b").catch(() => {});
    expect(bench.connector.at(0).destination).toBe(bench.connector.at(1).destination);
  });
});

test("after close() no connection is opened", async () => {
  const bench = new Bench();
  await bench.exchange("http://up.test");
  await bench.transport.close();
  for (const target of ["http://up.test", "http://other.test"]) {
    expect(await errorOf(() => bench.send(target))).toMatchObject({ name: "ProxyError" });
  }
  expect(bench.connector.attempts).toHaveLength(1);
});

describe("the codec of the HTTP/1.1 client", () => {
  test("the client uses the codec of the runtime, which keeps bytes above 0x7f", async () => {
    const used = { decode: 0, encode: 0, allocate: 0, copy: 0 };
    const counting: Codec = {
      decode: (...args) => (used.decode++, portableCodec.decode(...args)),
      encode: (text) => (used.encode++, portableCodec.encode(text)),
      allocate: (length) => (used.allocate++, portableCodec.allocate(length)),
      copy: (bytes) => (used.copy++, portableCodec.copy(bytes)),
      copyToRead: () => expect.fail("a chunk of a body may be transferred"),
    };
    for (const codec of [undefined, counting]) {
      const bench = new Bench({}, codec);
      const upstream = parseTarget("http://up.test");
      const headers = ["X-A", "\u0080\u00ff"];
      const sent = bench.transport.send(fakeRequest({ upstream, headers }), fakeScope());
      const socket = await bench.connector.at(0).succeed();
      expect(socket.sent).toContain("X-A: \u0080\u00ff\r\n");
      socket.receive("HTTP/1.1 200 OK\r\nX-B: \u0080\u00ff\r\nContent-Length: 1\r\n\r\nx");
      const reply = await sent;
      expect(reply.headers.slice(0, 2)).toEqual(["X-B", "\u0080\u00ff"]);
      await settled();
    }
    expect(used).toEqual({ decode: 1, encode: 0, allocate: 1, copy: 1 });
  });
});
