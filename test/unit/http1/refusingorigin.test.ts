/** Connections to an origin that refuses them, over a fake connector. */
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { EMPTY, PoolBench, type Sent } from "./_http1.ts";
import { settled } from "./_sockets.ts";

// Timers are fake: a pool in which requests wait starts real ones again and again, also during the tests that follow.
beforeEach(() => void vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] }));
afterEach(() => void vi.useRealTimers());

const outcomes = (sent: readonly Sent[]): unknown[] => sent.map(({ outcome }) => outcome);

/** Returns a pool whose first attempt was refused, and three requests, for the first of which a second attempt is running. */
async function startRefused(): Promise<{ bench: PoolBench; sent: Sent[] }> {
  const bench = new PoolBench();
  const refused = bench.send();
  await bench.connector.at(0).fail("ECONNREFUSED");
  expect(refused.outcome).toBe("connection_refused");
  const sent = [bench.send(), bench.send(), bench.send()];
  expect(bench.connector.attempts).toHaveLength(2);
  return { bench, sent };
}

test("while no attempt is refused, each request makes its own attempt", async () => {
  const bench = new PoolBench();
  bench.send();
  await bench.connector.at(0).fail("EHOSTUNREACH");
  bench.send();
  bench.send();
  expect(bench.connector.attempts).toHaveLength(3);
});

test("a request that arrives during an attempt fails only by the refusal of the next attempt, which all waiting requests share", async () => {
  const { bench, sent } = await startRefused();
  await bench.connector.at(1).fail("ECONNREFUSED");
  expect(outcomes(sent)).toEqual(["connection_refused", undefined, undefined]);
  expect(bench.connector.attempts).toHaveLength(3);
  await bench.connector.at(2).fail("ECONNREFUSED");
  expect(outcomes(sent)).toEqual(Array(3).fill("connection_refused"));
  expect(bench.connector.attempts).toHaveLength(3);
  expect(bench.stats).toMatchObject({ created: 0, failed: 4, inUse: 0, waiting: 0 });
});

test("each request that shares a refusal gets its own error", async () => {
  const { bench, sent } = await startRefused();
  await bench.connector.at(1).fail("ECONNREFUSED");
  await bench.connector.at(2).fail("ECONNREFUSED");
  expect(new Set(sent.map(({ error }) => error)).size).toBe(3);
});

test("once an attempt succeeds, each waiting request makes its own attempt, and so do later ones", async () => {
  const { bench, sent } = await startRefused();
  const socket = await bench.connector.at(1).succeed();
  expect(bench.connector.attempts).toHaveLength(4);
  socket.receive(EMPTY);
  for (const index of [2, 3]) (await bench.connector.at(index).succeed()).receive(EMPTY);
  await settled();
  expect(outcomes(sent)).toEqual(["200", "200", "200"]);
  bench.send({ newConnection: true });
  bench.send({ newConnection: true });
  expect(bench.connector.attempts).toHaveLength(6);
});

test("an attempt that is cancelled, or fails for another reason than a refusal, fails only its own request", async () => {
  for (const code of ["ETIMEDOUT", "cancelled"]) {
    const { bench, sent } = await startRefused();
    if (code === "cancelled") sent[0]?.leave();
    else await bench.connector.at(1).fail(code);
    await settled();
    expect(sent[0]?.outcome, code).toBeDefined();
    expect(outcomes(sent.slice(1)), code).toEqual([undefined, undefined]);
    expect(bench.connector.attempts, code).toHaveLength(4);
  }
});

test("an attempt that is not refused within 50 ms no longer holds up the other requests", async () => {
  const { bench, sent } = await startRefused();
  await vi.advanceTimersByTimeAsync(60);
  expect(bench.connector.attempts).toHaveLength(4);
  await bench.connector.at(1).fail("ECONNREFUSED");
  expect(outcomes(sent)).toEqual(["connection_refused", undefined, undefined]);
  expect(bench.connector.attempts).toHaveLength(4);
});

test("a waiting request whose client disconnects makes no attempt", async () => {
  const { bench, sent } = await startRefused();
  sent[1]?.leave();
  await settled();
  expect(sent[1]?.outcome).toBe("http_request_error");
  await bench.connector.at(1).fail("ECONNREFUSED");
  expect(bench.connector.attempts).toHaveLength(3);
  const last = bench.send();
  last.leave();
  await bench.connector.at(2).succeed();
  expect(bench.connector.attempts).toHaveLength(3);
});

test("waiting requests count towards `maxSockets`, and fail when the transport is destroyed", async () => {
  const bench = new PoolBench({ maxSockets: 2 });
  bench.send();
  await bench.connector.at(0).fail("ECONNREFUSED");
  const sent = [bench.send(), bench.send(), bench.send()];
  expect(bench.stats).toMatchObject({ inUse: 2, waiting: 1 });
  bench.transport.destroy();
  await settled();
  expect(sent.every(({ outcome }) => outcome !== undefined)).toBe(true);
  expect(bench.stats).toMatchObject({ inUse: 0, waiting: 0 });
  expect(bench.connector.attempts).toHaveLength(2);
});
