/** How long the connections to one origin are kept, over a fake connector. */
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import type { PoolOptions } from "../../../src/options/pooloptions.ts";
import { EMPTY, PoolBench } from "./_http1.ts";
import { type FakeSocket, settled } from "./_sockets.ts";

describe("idle connections", () => {
  beforeEach(() => {
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "performance"] });
  });
  afterEach(() => {
    vi.useRealTimers();
  });

  const keep = (seconds: number): string =>
    `HTTP/1.1 200 OK\r\nContent-Length: 0\r\nKeep-Alive: timeout=${seconds}\r\n\r\n`;

  async function idle(options: PoolOptions, answer = EMPTY): Promise<[PoolBench, FakeSocket]> {
    const bench = new PoolBench(options);
    bench.send();
    const socket = await bench.connector.at(0).succeed();
    socket.receive(answer);
    await settled();
    return [bench, socket];
  }

  test.each([
    ["are closed after freeSocketTimeout", 3000, EMPTY, 3000],
    ["are closed one second before the upstream's `Keep-Alive: timeout`", 9000, keep(4), 3000],
    ["are not kept longer because of `Keep-Alive: timeout`", 3000, keep(60), 3000],
  ])("%s", async (_, freeSocketTimeout, answer, ms) => {
    const [bench, socket] = await idle({ freeSocketTimeout }, answer);
    vi.advanceTimersByTime(ms - 100);
    expect(socket.destroyed).toBe(false);
    vi.advanceTimersByTime(101);
    expect(socket.destroyed).toBe(true);
    await settled();
    expect(bench.stats).toMatchObject({ closed: 1, timedOut: 1, free: 0 });
    // The timer must be started again for the next idle connection.
    const next = await bench.exchange();
    vi.advanceTimersByTime(freeSocketTimeout + 1);
    expect(next.destroyed).toBe(true);
  });

  test("a Keep-Alive hint of one second closes the connection immediately", async () => {
    const [, socket] = await idle({}, keep(1));
    expect(socket.destroyed).toBe(true);
  });

  test("socketTTL closes a connection even if it is used often", async () => {
    const [bench, socket] = await idle({ socketTTL: 1000, freeSocketTimeout: 600 });
    vi.advanceTimersByTime(500);
    bench.send();
    socket.receive(EMPTY);
    vi.advanceTimersByTime(490);
    expect(socket.destroyed).toBe(false);
    vi.advanceTimersByTime(20);
    expect(socket.destroyed).toBe(true);
  });

  test("idle connections over maxFreeSockets are closed after a while, oldest first", async () => {
    const bench = new PoolBench({ maxFreeSockets: 1, freeSocketTimeout: 60_000 });
    for (let i = 0; i < 3; i++) bench.send();
    const sockets: FakeSocket[] = [];
    for (let i = 0; i < 3; i++) sockets.push(await bench.connector.at(i).succeed());
    for (const socket of sockets) socket.receive(EMPTY);
    expect(bench.stats).toMatchObject({ free: 3 });
    vi.advanceTimersByTime(200);
    expect(sockets.map(({ destroyed }) => destroyed)).toEqual([true, true, false]);
  });

  test("connections above maxFreeSockets are kept as long as they are needed from time to time", async () => {
    const bench = new PoolBench({ maxFreeSockets: 1, freeSocketTimeout: 60_000 });
    const sockets: FakeSocket[] = [];
    const sendAndReceive = async (): Promise<void> => {
      for (let i = 0; i < 3; i++) bench.send();
      for (let i = sockets.length; i < 3; i++) sockets.push(await bench.connector.at(i).succeed());
      for (const socket of sockets) socket.receive(EMPTY);
    };
    await sendAndReceive();
    vi.advanceTimersByTime(50);
    await sendAndReceive();
    vi.advanceTimersByTime(51);
    expect(bench.stats).toMatchObject({ free: 3, closed: 0 });
    vi.advanceTimersByTime(101);
    expect(sockets.map(({ destroyed }) => destroyed)).toEqual([true, true, false]);
  });
});

describe("the end of the pool", () => {
  test("destroy() aborts connecting, queued and running requests", async () => {
    const bench = new PoolBench({ maxSockets: 2 });
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

  test("close() waits for a connection attempt and its request", async () => {
    const bench = new PoolBench();
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

  test("silence for `timeout` on a connection in use fails its request", async () => {
    const bench = new PoolBench({ timeout: 100 });
    const sent = bench.send();
    const socket = await bench.connector.at(0).succeed();
    expect(socket.timeout).toBe(100);
    socket.beSilent();
    await expect.poll(() => sent.outcome).toBe("connection_read_timeout");
    expect(bench.stats).toMatchObject({ timedOut: 1 });
  });
});
