/** One name with several addresses: each is a server of its own on 127.0.0.x, all on one port. */
import dns from "node:dns";
import { createServer, type Server } from "node:http";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test, vi } from "vitest";
import type { NodeProxy } from "../runtimes/node.ts";
import type { PoolOptions } from "../src/options/pool.ts";
import { NameServer } from "./_dns.ts";
import { ask, pooled, statsOf } from "./_pool.ts";
import { listen } from "./_serve.ts";
import { startFull } from "./_full.ts";
import { pause, until } from "./_wait.ts";

const A = "127.0.0.1";
const B = "127.0.0.2";
const C = "127.0.0.3";

const names = new NameServer();
const servers = new Map<string, Server>();
/** Requests by address, and milliseconds that each takes. */
const seen: Record<string, number> = {};
let slowness = 0;
let port = 0;

async function startAt(address: string, on: number): Promise<number> {
  const server = createServer((_, res) => {
    seen[address] = (seen[address] ?? 0) + 1;
    setTimeout(() => res.end(address), slowness);
  });
  servers.set(address, server);
  return listen(server, on, address);
}

async function stopAt(address: string): Promise<void> {
  const server = servers.get(address);
  servers.delete(address);
  server?.closeAllConnections();
  await new Promise((resolve) => server?.close(resolve));
}

beforeAll(() => names.listen());
beforeEach(async () => {
  Object.assign(names, { zones: {}, asked: [] });
  for (const address of Object.keys(seen)) delete seen[address];
  slowness = 0;
  port = await startAt(A, 0);
  await startAt(B, port);
});
afterEach(() => Promise.all(Array.from(servers.keys(), stopAt)));
afterAll(() => names[Symbol.asyncDispose]());

function record(addresses: string[], ttl = 60): void {
  names.zones["up.test"] = { addresses, ttl };
}

function start(pool: PoolOptions = {}): NodeProxy {
  return pooled({ dns: { servers: [names.address] }, ...pool }, `http://up.test:${port}`);
}

/** So many requests, by so many at the same time. */
async function load(proxy: NodeProxy, requests: number, clients: number): Promise<string[]> {
  const answers: string[] = [];
  let left = requests;
  const work = async (): Promise<void> => {
    while (left-- > 0) answers.push(await ask(proxy));
  };
  await Promise.all(Array.from({ length: clients }, work));
  return answers;
}

describe("requests are spread evenly over two addresses, within 10 %", () => {
  test.each([
    [1, undefined],
    [3, undefined],
    [10, undefined],
    [40, 10],
    [40, 11],
  ])("by %i clients, maxSockets: %j", async (clients, maxSockets) => {
    record([A, B]);
    slowness = clients > 1 ? 2 : 0;
    const proxy = start(maxSockets === undefined ? {} : { maxSockets });
    const answers = await load(proxy, 1000, clients);
    expect(answers.filter((answer) => !answer.startsWith("200 127."))).toEqual([]);
    expect(seen[A]).toBeGreaterThan(450);
    expect(seen[B]).toBeGreaterThan(450);
    // And the connections were kept all the same.
    expect(statsOf(proxy).created).toBeLessThanOrEqual(2 * clients + 2);
  });

  test("requests are spread evenly over three addresses, within 10 %", async () => {
    record([A, B, C]);
    await startAt(C, port);
    await load(start(), 900, 5);
    for (const address of [A, B, C]) expect(Math.abs((seen[address] ?? 0) - 300)).toBeLessThan(30);
  });
});

describe("an address that fails", () => {
  test("is skipped at once, and not tried for a while", async () => {
    record([C, A, B]);
    const proxy = start();
    const answers = await load(proxy, 300, 5);
    expect(answers.filter((answer) => !answer.startsWith("200 "))).toEqual([]);
    expect(seen[C]).toBeUndefined();
    expect(Math.abs((seen[A] ?? 0) - 150)).toBeLessThan(20);
    expect(statsOf(proxy).failed).toBe(0);
  });

  test("because it accepts no connection is skipped within connectTimeout", async () => {
    await using full = await startFull(C, port);
    expect(full.sockets.length).toBeGreaterThan(0);
    record([C, A]);
    const proxy = start({ connectTimeout: 2000, keepAlive: false });
    // Whichever comes first.
    expect(await ask(proxy)).toBe(`200 ${A}`);
    expect(await ask(proxy)).toBe(`200 ${A}`);
    const since = performance.now();
    for (let i = 0; i < 40; i++) expect(await ask(proxy)).toBe(`200 ${A}`);
    // If it were tried in its turn, each time would take a second.
    expect(performance.now() - since).toBeLessThan(10_000);
  });

  test("because it accepts no connection and is the only one becomes 504 after connectTimeout", async () => {
    await using full = await startFull(C, port);
    expect(full.sockets.length).toBeGreaterThan(0);
    record([C]);
    const proxy = start({ connectTimeout: 300 });
    expect(await ask(proxy)).toBe("504 Gateway Timeout: connection_timeout\n");
    expect(await ask(pooled({ connectTimeout: 300 }, `http://${C}:${port}`))).toBe(
      "504 Gateway Timeout: connection_timeout\n",
    );
    await expect.poll(() => statsOf(proxy)).toMatchObject({ created: 0, failed: 1 });
  });

  test("in the middle of traffic is skipped by the following requests", async () => {
    record([A, B]);
    const proxy = start();
    await load(proxy, 100, 5);
    await stopAt(B);
    await until(() => statsOf(proxy).origins[`http://up.test:${port}`]?.free !== 0, "all settled");
    const answers = await load(proxy, 200, 5);
    expect(answers.filter((answer) => answer === `200 ${A}`).length).toBeGreaterThanOrEqual(195);
  });

  test("like all others becomes connection_refused", async () => {
    record([C, "127.0.0.4"]);
    expect(await ask(start())).toBe("502 Bad Gateway: connection_refused\n");
  });
});

describe("a record that changes", () => {
  test("is used within its TTL and socketTTL under steady traffic", async () => {
    record([A], 1);
    const proxy = start({ socketTTL: 200 });
    expect(await ask(proxy)).toBe(`200 ${A}`);
    record([B], 1);
    const since = performance.now();
    let answer = "";
    await until(() => {
      void ask(proxy).then((text) => (answer = text));
      return answer === `200 ${B}`;
    }, "the new address");
    // The old answer held for its second.
    expect(performance.now() - since).toBeGreaterThan(500);
    // And from then on nothing goes to the old address, once its connections have had their time.
    await pause(300);
    const before = seen[A];
    expect(await load(proxy, 50, 3)).toEqual(Array(50).fill(`200 ${B}`));
    expect(seen[A]).toBe(before);
  });

  test("one look-up serves many connections", async () => {
    record([A, B]);
    const proxy = start({ keepAlive: false });
    await load(proxy, 100, 10);
    expect(statsOf(proxy).created).toBe(100);
    expect(names.asked).toEqual(["up.test"]);
  });
});

describe("names", () => {
  test("that do not exist become dns_error", async () => {
    expect(await ask(start())).toBe("502 Bad Gateway: dns_error\n");
  });

  test("that no name server answers for become dns_timeout after connectTimeout", async () => {
    names.silent = true;
    const proxy = start({ connectTimeout: 200 });
    expect(await ask(proxy)).toBe("504 Gateway Timeout: dns_timeout\n");
    names.silent = false;
    await expect.poll(() => statsOf(proxy)).toMatchObject({ created: 0, failed: 1 });
  });

  test("that are IP addresses are not looked up", async () => {
    const lookup = vi.spyOn(dns, "lookup");
    expect(await ask(pooled({}, `http://${A}:${port}`))).toBe(`200 ${A}`);
    expect(lookup).not.toHaveBeenCalled();
    lookup.mockRestore();
    expect(names.asked).toEqual([]);
  });

  test.each([undefined, false, { ttl: 0 }] as const)(
    "are looked up by the operating system with dns: %j",
    async (given) => {
      const proxy = pooled(given === undefined ? {} : { dns: given }, `http://localhost:${port}`);
      expect(await ask(proxy)).toBe(`200 ${A}`);
    },
  );
});
