/** The connections to one origin, over a connector that connects when the test says so. */
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import type { ProxyError } from "../src/error.ts";
import { HttpTransport } from "../src/http1/client.ts";
import { RequestBody } from "../src/http1/requestbody.ts";
import type { PoolOptions } from "../src/pool.ts";
import type { Hop, Reply } from "../src/transport.ts";
import { bytes, fakeHop, startLifetime, streamOf, TARGET, textOf } from "./_fakes.ts";
import { FakeConnector, type FakeSocket, settled } from "./_sockets.ts";

/** The least that a response can be. */
const EMPTY = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

/** One request: what became of it, and how its client leaves. */
interface Sent {
  /** The status; the error's code; undefined before either. */
  outcome: string | undefined;
  reply: Reply | undefined;
  leave(): void;
}

class Bench {
  readonly connector = new FakeConnector();
  readonly transport: HttpTransport;

  constructor(options: PoolOptions = {}) {
    this.transport = new HttpTransport("fake", options, { createConnector: () => this.connector });
  }

  send(hop: Partial<Hop> = {}): Sent {
    const { lifetime, client } = startLifetime(0, 0);
    const sent: Sent = { outcome: undefined, reply: undefined, leave: () => client.leave() };
    this.transport.send(fakeHop(hop), lifetime).then(
      (reply) => Object.assign(sent, { outcome: `${reply.status}`, reply }),
      (error: unknown) => (sent.outcome = (error as ProxyError).code),
    );
    return sent;
  }

  /** Sends a request and answers it, on a new connection. */
  async exchange(hop?: Partial<Hop>): Promise<FakeSocket> {
    this.send(hop);
    const socket = await this.connector.attempts.at(-1)?.succeed();
    if (socket === undefined) throw new Error("no connection was asked for");
    socket.receive(EMPTY);
    await settled();
    return socket;
  }

  get stats(): object {
    const { created, closed, failed, timedOut, requests, origins } = this.transport.stats();
    return { created, closed, failed, timedOut, requests, ...origins[TARGET] };
  }
}

describe("connections", () => {
  test("nothing is written before there is one, and then in one write", async () => {
    const bench = new Bench();
    const sent = bench.send({ method: "POST", body: bytes("hello") });
    await settled();
    const socket = await bench.connector.at(0).succeed();
    expect(socket.writes).toHaveLength(1);
    expect(socket.sent).toMatch(/^POST \/ HTTP\/1\.1\r\n.*\r\n\r\nhello$/s);
    socket.receive("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nthere");
    await settled();
    expect(sent.outcome).toBe("200");
    expect(await textOf(sent.reply as Reply)).toBe("there");
  });

  test("a free one is used again, the last first, and holds the process only while it is used", async () => {
    const bench = new Bench();
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

  test("a free one that has been closed is not used", async () => {
    const bench = new Bench();
    const socket = await bench.exchange();
    socket.halfClose();
    bench.send();
    expect(bench.connector.attempts).toHaveLength(2);
    await settled();
    expect(bench.stats).toMatchObject({ created: 1, closed: 1 });
  });

  test("a request that asks for a new one gets it", async () => {
    const bench = new Bench();
    await bench.exchange();
    bench.send({ fresh: true });
    expect(bench.connector.attempts).toHaveLength(2);
  });

  test("the address of a name that has had the fewest requests is tried first", async () => {
    const bench = new Bench();
    const good = ["a", "b"].map((address) => ({ address, family: 4 }));
    const down = [{ address: "c", family: 4 }];
    const first: (string | undefined)[] = [];
    for (let i = 0; i < 4; i++) {
      bench.send();
      const order = bench.connector.at(i).scope.order({ good, down });
      expect(order.at(-1)?.address).toBe("c");
      first.push(order[0]?.address);
    }
    expect(first).toEqual(["a", "b", "a", "b"]);
  });
});

describe("maxSockets", () => {
  test("one that is being established counts; the rest wait, first in, first out", async () => {
    const bench = new Bench({ maxSockets: 1 });
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

  test("a client that leaves while it waits is not sent", async () => {
    const bench = new Bench({ maxSockets: 1 });
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

  test("a client that leaves while connecting stops the attempt at once, and the next connects", async () => {
    const bench = new Bench({ maxSockets: 1 });
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
  test.each([
    ["ECONNREFUSED", "connection_refused"],
    ["ETIMEDOUT", "connection_timeout"],
    ["ENOTFOUND", "dns_error"],
    ["ERR_TLS_CERT_ALTNAME_INVALID", "tls_certificate_error"],
    ["SOMETHING_ELSE", "proxy_internal_error"],
  ])("%s is %s to its request, and the next one connects", async (code, outcome) => {
    const bench = new Bench({ maxSockets: 1 });
    const [first, second] = [bench.send(), bench.send()];
    await bench.connector.at(0).fail(code);
    expect(first.outcome).toBe(outcome);
    expect(bench.stats).toMatchObject({ created: 0, closed: 0, failed: 1, inUse: 1, waiting: 0 });
    (await bench.connector.at(1).succeed()).receive(EMPTY);
    await settled();
    expect(second.outcome).toBe("200");
    expect(bench.stats).toMatchObject({ created: 1, closed: 0, failed: 1, requests: 1 });
  });

  test("a small body is read while connecting: it can be sent again", async () => {
    const bench = new Bench();
    const body = new RequestBody(streamOf(["hello"]));
    bench.send({ method: "PUT", body, contentLength: 5 });
    await expect.poll(() => body.kept).toEqual(bytes("hello"));
    await bench.connector.at(0).fail("ECONNREFUSED");
    expect(body.kept).toEqual(bytes("hello"));
  });

  test("a stream that was to be sent is cancelled", async () => {
    const bench = new Bench();
    const cancelled = vi.fn();
    const body = new ReadableStream<Uint8Array>({ cancel: cancelled });
    bench.send({ method: "POST", body });
    await bench.connector.at(0).fail("ECONNREFUSED");
    await expect.poll(() => cancelled.mock.calls.length).toBe(1);
  });
});

describe("idle connections", () => {
  beforeEach(() => {
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance"] });
  });
  afterEach(() => {
    vi.useRealTimers();
  });

  const keep = (seconds: number): string =>
    `HTTP/1.1 200 OK\r\nContent-Length: 0\r\nKeep-Alive: timeout=${seconds}\r\n\r\n`;

  async function idle(options: PoolOptions, answer = EMPTY): Promise<[Bench, FakeSocket]> {
    const bench = new Bench(options);
    bench.send();
    const socket = await bench.connector.at(0).succeed();
    socket.receive(answer);
    await settled();
    return [bench, socket];
  }

  test.each([
    ["freeSocketTimeout", 3000, EMPTY, 3000],
    ["the upstream's hint, less a second", 9000, keep(4), 3000],
    ["a hint does not lengthen it", 3000, keep(60), 3000],
  ])("%s", async (_, freeSocketTimeout, answer, ms) => {
    const [bench, socket] = await idle({ freeSocketTimeout }, answer);
    vi.advanceTimersByTime(ms - 100);
    expect(socket.destroyed).toBe(false);
    vi.advanceTimersByTime(101);
    expect(socket.destroyed).toBe(true);
    await settled();
    expect(bench.stats).toMatchObject({ closed: 1, timedOut: 1, free: 0 });
    // The timer is set again for the next.
    const next = await bench.exchange();
    vi.advanceTimersByTime(freeSocketTimeout + 1);
    expect(next.destroyed).toBe(true);
  });

  test("a hint of a second closes it at once", async () => {
    const [, socket] = await idle({}, keep(1));
    expect(socket.destroyed).toBe(true);
  });

  test("socketTTL ends it, however often it is used", async () => {
    const [bench, socket] = await idle({ socketTTL: 1000, freeSocketTimeout: 600 });
    vi.advanceTimersByTime(500);
    bench.send();
    socket.receive(EMPTY);
    vi.advanceTimersByTime(490);
    expect(socket.destroyed).toBe(false);
    vi.advanceTimersByTime(20);
    expect(socket.destroyed).toBe(true);
  });

  test("after maxFreeSockets, those that were not needed for a while are closed, oldest first", async () => {
    const bench = new Bench({ maxFreeSockets: 1, freeSocketTimeout: 60_000 });
    for (let i = 0; i < 3; i++) bench.send();
    const sockets: FakeSocket[] = [];
    for (let i = 0; i < 3; i++) sockets.push(await bench.connector.at(i).succeed());
    for (const socket of sockets) socket.receive(EMPTY);
    expect(bench.stats).toMatchObject({ free: 3 });
    vi.advanceTimersByTime(200);
    expect(sockets.map(({ destroyed }) => destroyed)).toEqual([true, true, false]);
  });
});

describe("its end", () => {
  test("destroy() stops what connects, what waits and what runs", async () => {
    const bench = new Bench({ maxSockets: 2 });
    const sent = [bench.send(), bench.send(), bench.send()];
    const socket = await bench.connector.at(0).succeed();
    bench.transport.destroy();
    expect(bench.connector.at(1).isCancelled).toBe(true);
    expect(socket.destroyed).toBe(true);
    await settled();
    expect(sent.map(({ outcome }) => outcome)).toEqual(Array(3).fill("destination_unavailable"));
    expect(bench.connector.attempts).toHaveLength(2);
    expect(bench.stats).toMatchObject({ inUse: 0, free: 0, waiting: 0 });
  });

  test("close() waits for what connects, and for its request", async () => {
    const bench = new Bench();
    const sent = bench.send();
    let isClosed = false;
    const closed = bench.transport.close(10_000).then(() => (isClosed = true));
    await settled();
    expect({ isClosed, isCancelled: bench.connector.at(0).isCancelled }).toEqual({
      isClosed: false,
      isCancelled: false,
    });
    const socket = await bench.connector.at(0).succeed();
    expect(isClosed).toBe(false);
    socket.receive(EMPTY);
    await closed;
    expect(sent.outcome).toBe("200");
    expect(socket.destroyed).toBe(true);
  });

  test("silence while it is used fails the request", async () => {
    const bench = new Bench({ timeout: 100 });
    const sent = bench.send();
    const socket = await bench.connector.at(0).succeed();
    expect(socket.timeout).toBe(100);
    socket.beSilent();
    await expect.poll(() => sent.outcome).toBe("connection_read_timeout");
    expect(bench.stats).toMatchObject({ timedOut: 1 });
  });
});
