/** The connections to one origin, over a fake connector. */
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { rfc } from "../../conformance/rfc.ts";
import { StreamBody } from "../../../src/body/stream.ts";
import type { UpstreamResponse } from "../../../src/transport/message.ts";
import { bytes, textOf } from "../../helpers/fakes.ts";
import { EMPTY, PoolBench } from "./_http1.ts";
import { FakeSocket, settled } from "./_sockets.ts";

// Timers are fake: a pool in which requests wait starts real ones again and again, also during the tests that follow.
beforeEach(() => void vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] }));
afterEach(() => void vi.useRealTimers());

describe("the connections of a pool", () => {
  test("a request is written after the connection is established, in one write", async () => {
    const bench = new PoolBench();
    const sent = bench.send({ method: "POST", body: bytes("hello") });
    await settled();
    const socket = await bench.connector.at(0).succeed();
    expect(socket.writes).toHaveLength(1);
    expect(socket.sent).toMatch(/^POST \/ HTTP\/1\.1\r\n.*\r\n\r\nhello$/s);
    socket.receive("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nthere");
    await settled();
    expect(sent.outcome).toBe("200");
    expect(await textOf(sent.reply as UpstreamResponse)).toBe("there");
  });

  test("the idle connection that was used last is reused first, and keeps the process running only while in use", async () => {
    const bench = new PoolBench();
    const sent = [bench.send(), bench.send()];
    const sockets = [await bench.connector.at(0).succeed(), await bench.connector.at(1).succeed()];
    for (const socket of sockets) socket.receive(EMPTY);
    await settled();
    expect(sent.map(({ outcome }) => outcome)).toEqual(["200", "200"]);
    expect(sockets.map(({ isHeld }) => isHeld)).toEqual([false, false]);
    bench.send();
    expect(sockets.map(({ isHeld }) => isHeld)).toEqual([false, true]);
    expect(sockets.map(({ writes }) => writes.length)).toEqual([1, 2]);
    expect(bench.connector.attempts).toHaveLength(2);
    expect(bench.stats).toMatchObject({ created: 2, requests: 3, inUse: 1, free: 1, waiting: 0 });
  });

  test("an idle connection that has been closed is not reused", async () => {
    const bench = new PoolBench();
    const socket = await bench.exchange();
    socket.halfClose();
    bench.send();
    expect(bench.connector.attempts).toHaveLength(2);
    await settled();
    expect(bench.stats).toMatchObject({ created: 1, closed: 1 });
  });

  test("a request that requires a new connection gets one", async () => {
    const bench = new PoolBench();
    await bench.exchange();
    bench.send({ newConnection: true });
    expect(bench.connector.attempts).toHaveLength(2);
  });

  test("the address with the fewest requests is tried first", async () => {
    const bench = new PoolBench();
    const good = ["a", "b"].map((address) => ({ address, family: 4 }));
    const first: (string | undefined)[] = [];
    for (let i = 0; i < 4; i++) {
      bench.send();
      const order = bench.connector.at(i).scope.order({ good, down: [], isOrder: false });
      first.push(order[0]?.address);
    }
    expect(first).toEqual(["a", "b", "a", "b"]);
  });
});

test("if the addresses have a fixed order, a new connection drains the connections to the other addresses", async () => {
  const bench = new PoolBench();
  const both = ["a", "b"].map((address) => ({ address, family: 4 }));
  const found = { good: both, down: [], isOrder: true };
  const open = async (address: string): Promise<FakeSocket> => {
    bench.send({ newConnection: true });
    const attempt = bench.connector.attempts.at(-1);
    expect(attempt?.scope.order(found)).toEqual(both);
    const socket = new FakeSocket();
    socket.remoteAddress = address;
    await attempt?.succeed(socket);
    return socket;
  };
  const busy = await open("b");
  const idle = await open("b");
  idle.receive(EMPTY);
  await settled();
  const own = await open("a");
  expect([busy, idle, own].map(({ destroyed }) => destroyed)).toEqual([false, true, false]);
  busy.receive(EMPTY);
  own.receive(EMPTY);
  await settled();
  expect([busy, own].map(({ destroyed }) => destroyed)).toEqual([true, false]);
});

describe("lookups of the host name in the background", () => {
  const OWN = "192.0.2.1";

  /** Reports a lookup that has found these addresses. */
  function find(bench: PoolBench, ...addresses: string[]): void {
    const good = addresses.map((address) => ({ address, family: 4 }));
    for (const user of bench.connector.users) user.onAddresses({ good, down: [], isOrder: false });
  }

  test("a connection is closed if three lookups in a row have not found its address", async () => {
    const bench = new PoolBench();
    const socket = await bench.exchange();
    for (const address of ["b", "b", OWN, "b", "b"]) find(bench, address);
    expect(socket.destroyed).toBe(false);
    find(bench, "b");
    expect(socket.destroyed).toBe(true);
  });

  test("a connection whose address is gone is closed only after its running request", async () => {
    const bench = new PoolBench();
    await bench.exchange();
    const sent = bench.send();
    const socket = await bench.connector.at(0).promise;
    for (let i = 0; i < 3; i++) find(bench, "b");
    expect(socket.destroyed).toBe(false);
    (socket as FakeSocket).receive(EMPTY);
    await settled();
    expect(sent.outcome).toBe("200");
    expect(socket.destroyed).toBe(true);
  });

  test("a connection to an address that has failed lately is not closed", async () => {
    const bench = new PoolBench();
    const socket = await bench.exchange();
    const down = [{ address: OWN, family: 4 }];
    for (const user of bench.connector.users)
      for (let i = 0; i < 3; i++) user.onAddresses({ good: [], down, isOrder: false });
    expect(socket.destroyed).toBe(false);
  });

  test("the name is looked up while the pool has a connection, or has opened one since the last lookup", async () => {
    const bench = new PoolBench({ keepAlive: false });
    const isUsed = (): boolean[] => [...bench.connector.users].map((user) => user.checkUsed());
    await bench.exchange();
    expect(bench.stats).toMatchObject({ inUse: 0, free: 0 });
    expect(isUsed()).toEqual([true]);
    expect(isUsed()).toEqual([false]);
    bench.send();
    await bench.connector.at(1).succeed();
    expect([isUsed(), isUsed()]).toEqual([[true], [true]]);
    bench.transport.destroy();
    expect(isUsed()).toEqual([false]);
  });
});

describe("maxSockets", () => {
  test("connection attempts count as well, and the other requests wait, first in, first out", async () => {
    rfc("9112-9.4-concurrency");
    const bench = new PoolBench({ maxSockets: 1 });
    const sent = Array.from("abc", (name) => bench.send({ path: `/${name}` }));
    expect(bench.connector.attempts).toHaveLength(1);
    expect(bench.stats).toMatchObject({ inUse: 1, waiting: 2 });
    const socket = await bench.connector.at(0).succeed();
    for (let i = 0; i < 3; i++) {
      socket.receive(EMPTY);
      await settled();
    }
    expect(sent.map(({ outcome }) => outcome)).toEqual(["200", "200", "200"]);
    expect(socket.writes.map((text) => text.split(" ")[1])).toEqual(["/a", "/b", "/c"]);
    expect(bench.connector.attempts).toHaveLength(1);
  });

  test("a queued request whose client disconnects is never sent", async () => {
    const bench = new PoolBench({ maxSockets: 1 });
    const [, second, third] = [
      bench.send(),
      bench.send({ path: "/b" }),
      bench.send({ path: "/c" }),
    ];
    second.leave();
    await settled();
    expect(second.outcome).toBe("http_request_error");
    const socket = await bench.connector.at(0).succeed();
    socket.receive(EMPTY);
    socket.receive(EMPTY);
    await settled();
    expect(third.outcome).toBe("200");
    expect(socket.sent).not.toContain("/b");
  });

  test("a client that disconnects while its connection opens aborts the attempt, and the queued request connects", async () => {
    const bench = new PoolBench({ maxSockets: 1 });
    const [first, second] = [bench.send({ path: "/a" }), bench.send({ path: "/b" })];
    first.leave();
    expect(bench.connector.at(0).isCancelled).toBe(true);
    await settled();
    expect(first.outcome).toBe("http_request_error");
    expect(bench.stats).toMatchObject({ created: 0, failed: 1, inUse: 1, waiting: 0 });
    const socket = await bench.connector.at(1).succeed();
    socket.receive(EMPTY);
    await settled();
    expect(second.outcome).toBe("200");
    expect(socket.sent).toMatch(/^GET \/b /);
  });
});

describe("a connection that fails", () => {
  test.each(["ETIMEDOUT", "EHOSTUNREACH", "ENETUNREACH", "ECONNRESET"])(
    "with %s after it was established fails its request with connection_terminated",
    async (code) => {
      const bench = new PoolBench({ maxSockets: 1 });
      const sent = bench.send();
      (await bench.connector.at(0).succeed()).fail(code);
      await settled();
      expect(sent.outcome).toBe("connection_terminated");
    },
  );

  test.each([
    ["ECONNREFUSED", "connection_refused"],
    ["ETIMEDOUT", "connection_timeout"],
    ["ENOTFOUND", "dns_error"],
    ["ERR_TLS_CERT_ALTNAME_INVALID", "tls_certificate_error"],
    ["SOMETHING_ELSE", "proxy_internal_error"],
  ])(
    "with %s before it was established fails its request with %s, and the next request connects",
    async (code, outcome) => {
      const bench = new PoolBench({ maxSockets: 1 });
      const [first, second] = [bench.send(), bench.send()];
      await bench.connector.at(0).fail(code);
      expect(first.outcome).toBe(outcome);
      expect(bench.stats).toMatchObject({ created: 0, closed: 0, failed: 1, inUse: 1, waiting: 0 });
      (await bench.connector.at(1).succeed()).receive(EMPTY);
      await settled();
      expect(second.outcome).toBe("200");
      expect(bench.stats).toMatchObject({ created: 1, closed: 0, failed: 1, requests: 1 });
    },
  );

  test("a connection that is not established leaves the request's body unread", async () => {
    const bench = new PoolBench();
    const pulled = vi.fn();
    const stream = new ReadableStream<Uint8Array>({ pull: pulled }, { highWaterMark: 0 });
    const body = new StreamBody(stream);
    bench.send({ method: "POST", body });
    await settled();
    await bench.connector.at(0).fail("ECONNREFUSED");
    expect([pulled.mock.calls.length, body.isUntouched]).toEqual([0, true]);
    bench.send({ method: "POST", body });
    await bench.connector.at(1).succeed();
    await expect.poll(() => pulled.mock.calls.length).toBe(1);
    expect(body.isUntouched).toBe(false);
  });
});

describe("connections that name their client (`proxyProtocol`)", () => {
  const [a, b] = ["192.0.2.1", "192.0.2.2"];

  /** Returns the clients that the connections have named, in the order in which they were opened. */
  const namedBy = ({ connector }: PoolBench): unknown[] =>
    connector.attempts.map(({ scope }) => scope.clientAddress);

  async function answer(bench: PoolBench, at: number): Promise<FakeSocket> {
    const socket = await bench.connector.at(at).succeed();
    socket.receive(EMPTY);
    await settled();
    return socket;
  }

  test("a connection is reused for the same client only", async () => {
    const bench = new PoolBench({ proxyProtocol: "v1" });
    for (const [at, client] of [a, b, undefined].entries()) {
      bench.send({}, client);
      await answer(bench, at);
    }
    for (const client of [a, undefined, b]) bench.send({}, client);
    expect(namedBy(bench)).toEqual([a, b, undefined]);
    bench.send({}, a);
    bench.send({ upgrade: "x" }, b);
    expect(namedBy(bench)).toEqual([a, b, undefined, a, b]);
  });

  test("a connection is closed to make room for another client, when it is idle or when its request ends", async () => {
    const bench = new PoolBench({ proxyProtocol: "v1", maxSockets: 1 });
    bench.send({}, a);
    const first = await answer(bench, 0);
    const sent = [b, a, a].map((client) => bench.send({}, client));
    expect(first.destroyed).toBe(true);
    const second = await answer(bench, 1);
    expect(second.destroyed).toBe(true);
    const third = await answer(bench, 2);
    expect(third.writes).toHaveLength(2);
    third.receive(EMPTY);
    await settled();
    expect(sent.map(({ outcome }) => outcome)).toEqual(["200", "200", "200"]);
    expect(namedBy(bench)).toEqual([a, b, a]);
  });

  test("without the option, a connection is reused for any client", async () => {
    const bench = new PoolBench();
    bench.send({}, a);
    await answer(bench, 0);
    bench.send({}, b);
    expect(namedBy(bench)).toEqual([undefined]);
  });
});
