/** A name with several addresses 127.0.0.x. Each address has its own server, all on the same port. */
import dns from "node:dns";
import http, { createServer, type Server } from "node:http";
import { isIP } from "node:net";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test, vi } from "vitest";
import type { NodeProxy } from "../../../runtimes/node.ts";
import type { PoolOptions } from "../../../src/options/pooloptions.ts";
import { NameServer } from "../../helpers/dns.ts";
import { ask, pooled, statsOf } from "./_pool.ts";
import { listen } from "../../helpers/serve.ts";
import { startFull } from "./_full.ts";
import { pause, settled, until, within } from "../../helpers/wait.ts";

const A = "127.0.0.1";
const B = "127.0.0.2";
const C = "127.0.0.3";

const names = new NameServer();
const servers = new Map<string, Server>();
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
  Object.assign(names, { zones: {}, asked: [], broken: false, silent: false });
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

/** Sends this number of requests, with up to `clients` of them at the same time. */
async function load(proxy: NodeProxy, requests: number, clients: number): Promise<string[]> {
  const answers: string[] = [];
  let left = requests;
  const work = async (): Promise<void> => {
    while (left-- > 0) answers.push(await ask(proxy));
  };
  await Promise.all(Array.from({ length: clients }, work));
  return answers;
}

describe("even spreading of requests over addresses, within 10 %", () => {
  test.each([
    [1, undefined],
    [3, undefined],
    [10, undefined],
    [40, 10],
    [40, 11],
  ])("%i clients use two addresses evenly, maxSockets: %j", async (clients, maxSockets) => {
    record([A, B]);
    slowness = clients > 1 ? 2 : 0;
    const proxy = start(maxSockets === undefined ? {} : { maxSockets });
    const answers = await load(proxy, 1000, clients);
    expect(answers.filter((answer) => !answer.startsWith("200 127."))).toEqual([]);
    expect(seen[A]).toBeGreaterThan(450);
    expect(seen[B]).toBeGreaterThan(450);
    // Although requests are spread over the addresses, connections must have been reused.
    expect(statsOf(proxy).created).toBeLessThanOrEqual(2 * clients + 2);
  });

  test("five clients use three addresses evenly", async () => {
    record([A, B, C]);
    await startAt(C, port);
    await load(start(), 900, 5);
    for (const address of [A, B, C]) expect(Math.abs((seen[address] ?? 0) - 300)).toBeLessThan(30);
  });
});

describe("addresses that fail", () => {
  test("an address that refuses connections is skipped immediately, and is not tried again for a while", async () => {
    record([C, A, B]);
    const proxy = start();
    const answers = await load(proxy, 300, 5);
    expect(answers.filter((answer) => !answer.startsWith("200 "))).toEqual([]);
    expect(seen[C]).toBeUndefined();
    expect(Math.abs((seen[A] ?? 0) - 150)).toBeLessThan(20);
    expect(statsOf(proxy).failed).toBe(0);
  });

  test("an address that does not answer is skipped within connectTimeout, and is not tried again for a while", async () => {
    await using full = await startFull(C, port);
    expect(full.sockets.length).toBeGreaterThan(0);
    record([C, A]);
    const proxy = start({ connectTimeout: 2000, keepAlive: false });
    // The first two requests may try either address first.
    expect(await ask(proxy)).toBe(`200 ${A}`);
    expect(await ask(proxy)).toBe(`200 ${A}`);
    const connecting = vi.spyOn(http.Agent.prototype, "createConnection");
    for (let i = 0; i < 40; i++) expect(await ask(proxy)).toBe(`200 ${A}`);
    const tried = connecting.mock.calls.filter(([{ host }]) => host === C);
    connecting.mockRestore();
    // If the failed address were not skipped, every second request would try it first.
    expect(tried.length).toBeLessThan(15);
  });

  test("if the only address does not answer, the client gets 504 after connectTimeout", async () => {
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

  test("an attempt to connect ends when its request is aborted, or when another address has connected", async () => {
    await using full = await startFull(C, port);
    expect(full.sockets.length).toBeGreaterThan(0);
    const connecting = (): number =>
      process.getActiveResourcesInfo().filter((name) => name === "ConnectWrap").length;
    // Attempts that fill the backlog of the server stay pending, so count them first.
    const before = connecting();
    record([C]);
    const alone = start();
    const abort = new AbortController();
    const left = ask(alone, "/", { signal: abort.signal });
    await until(() => connecting() > before, "an attempt");
    abort.abort();
    expect(await left).toMatch(/^499 /);
    await until(() => connecting() === before, "the end of the attempt");
    expect(statsOf(alone)).toMatchObject({ created: 0, failed: 1 });

    record([C, A]);
    const proxy = start({ keepAlive: false });
    await ask(proxy);
    await ask(proxy);
    expect(connecting()).toBe(before);
    expect(statsOf(proxy)).toMatchObject({ created: 2, failed: 0 });
  });

  test("requests skip an address that fails while the proxy is busy", async () => {
    record([A, B]);
    const proxy = start();
    await load(proxy, 100, 5);
    await stopAt(B);
    await until(() => statsOf(proxy).origins[`http://up.test:${port}`]?.free !== 0, "all settled");
    const answers = await load(proxy, 200, 5);
    expect(answers.filter((answer) => answer === `200 ${A}`).length).toBeGreaterThanOrEqual(195);
  });

  test("the client gets connection_refused if all addresses refuse connections", async () => {
    record([C, "127.0.0.4"]);
    expect(await ask(start())).toBe("502 Bad Gateway: connection_refused\n");
  });
});

describe("DNS records", () => {
  test("a changed record is used after the old record's TTL and socketTTL, even with steady traffic", async () => {
    record([A], 1);
    const proxy = start({ socketTTL: 200 });
    expect(await ask(proxy)).toBe(`200 ${A}`);
    record([B], 1);
    const since = performance.now();
    let answer = "";
    const asked: Promise<unknown>[] = [];
    await until(() => {
      asked.push(ask(proxy).then((text) => (answer = text)));
      return answer === `200 ${B}`;
    }, "the new address");
    // The old DNS answer was used for its TTL of one second.
    expect(performance.now() - since).toBeGreaterThan(500);
    // When the requests have ended, and the connections to the old address have expired, no further request goes there.
    await Promise.all(asked);
    await pause(300);
    const before = seen[A];
    expect(await load(proxy, 50, 3)).toEqual(Array(50).fill(`200 ${B}`));
    expect(seen[A]).toBe(before);
  });

  test("a record is looked up only once for many connections within its TTL", async () => {
    record([A, B]);
    const proxy = start({ keepAlive: false });
    await load(proxy, 100, 10);
    expect(statsOf(proxy).created).toBe(100);
    expect(names.asked).toEqual(["up.test"]);
  });
});

describe("lookups in the background while the pool is used", () => {
  /** Sets the addresses that each lookup finds, from the first one on. */
  function recordEach(answer: (lookup: number) => string[], ttl = 1): void {
    let lookups = 0;
    names.zones["up.test"] = {
      ttl,
      get addresses() {
        return answer(lookups++);
      },
    };
  }

  /** Sends requests on two connections until a condition holds, and returns the answers other than 200. */
  async function loadUntil(proxy: NodeProxy, condition: () => boolean): Promise<string[]> {
    const failed: string[] = [];
    let isOver = false;
    const work = async (): Promise<void> => {
      while (!isOver && !condition()) {
        const answer = await ask(proxy);
        if (!answer.startsWith("200 ")) failed.push(answer);
      }
    };
    const loads = Promise.all([work(), work()]);
    await within(loads, "the condition").finally(() => (isOver = true));
    return failed;
  }

  const lookups = (): number => names.asked.length;

  test("requests reach an address that is added to the record", async () => {
    recordEach((lookup) => (lookup === 0 ? [A] : [A, B]));
    expect(await loadUntil(start(), () => seen[B] !== undefined)).toEqual([]);
  });

  test("a connection is kept although two lookups in a row have not found its address", async () => {
    // Each lookup finds the next two of six addresses.
    const addresses = [1, 2, 3, 4, 5, 6].map((host) => `127.0.0.${host}`);
    for (const address of addresses.slice(2)) await startAt(address, port);
    recordEach((lookup) => addresses.slice((lookup % 3) * 2, (lookup % 3) * 2 + 2));
    const proxy = start({ freeSocketTimeout: 60_000 });
    const failed = await loadUntil(proxy, () => lookups() > 7);
    expect(failed).toEqual([]);
    expect(statsOf(proxy)).toMatchObject({ closed: 0 });
    expect(statsOf(proxy).created).toBeLessThanOrEqual(4);
  });

  test("lookups that fail close no connection", async () => {
    // The name server fails when two lookups have found only the other address.
    recordEach((lookup) => {
      if (lookup === 2) names.broken = true;
      return lookup === 0 ? [A] : [B];
    });
    // A lookup without a record has no TTL, so the option `ttl` applies.
    const proxy = start({ dns: { servers: [names.address], ttl: 500 } });
    expect(await loadUntil(proxy, () => names.broken === true)).toEqual([]);
    const before = lookups();
    // Wait for more than three failing lookups, each of which sends two queries.
    expect(await loadUntil(proxy, () => lookups() > before + 6)).toEqual([]);
    expect(statsOf(proxy)).toMatchObject({ closed: 0 });
    expect(seen[B]).toBeUndefined();
    // A deleted name closes no connection either.
    Object.assign(names, { broken: false, zones: {} });
    const deleted = lookups();
    expect(await loadUntil(proxy, () => lookups() > deleted + 4)).toEqual([]);
    expect(statsOf(proxy)).toMatchObject({ closed: 0 });
  });

  test("no request waits for a lookup in the background", async () => {
    record([A], 1);
    // A lookup takes 3 s while the name server is silent.
    const proxy = start({ keepAlive: false, connectTimeout: 2000 });
    expect(await ask(proxy)).toBe(`200 ${A}`);
    names.silent = true;
    const before = lookups();
    expect(await loadUntil(proxy, () => lookups() > before)).toEqual([]);
    for (let i = 0; i < 20; i++) expect(await ask(proxy)).toBe(`200 ${A}`);
  });

  test("lookups in the background stop when the pool is no longer used", async () => {
    record([A], 1);
    const proxy = start({ freeSocketTimeout: 100 });
    expect(await loadUntil(proxy, () => lookups() > 2)).toEqual([]);
    // Wait until there was no lookup for more than two TTLs.
    await settled(lookups, undefined, 2500);
    expect(await ask(proxy)).toBe(`200 ${A}`);
  });

  test("a name is looked up once per TTL, even if several pools use it", async () => {
    record([A], 1);
    const other = createServer((_, res) => res.end());
    const targets = [port, await listen(other)].map((each) => `http://up.test:${each}`);
    let next = 0;
    const target = (): string => targets[next++ % 2] as string;
    const proxy = pooled({ dns: { servers: [names.address] } }, target);
    const since = performance.now();
    expect(await loadUntil(proxy, () => lookups() > 3)).toEqual([]);
    expect(performance.now() - since).toBeGreaterThan(2900);
    other.close();
  });
});

describe("host names of upstreams", () => {
  test("a name that does not exist becomes dns_error", async () => {
    expect(await ask(start())).toBe("502 Bad Gateway: dns_error\n");
  });

  test("a name becomes dns_timeout after connectTimeout if no name server answers", async () => {
    names.silent = true;
    const proxy = start({ connectTimeout: 200 });
    expect(await ask(proxy)).toBe("504 Gateway Timeout: dns_timeout\n");
    names.silent = false;
    await expect.poll(() => statsOf(proxy)).toMatchObject({ created: 0, failed: 1 });
  });

  test("if a name has IPv4 and IPv6 addresses, the families are tried alternately", async () => {
    const ipv6 = ["1", "2"].map((end) =>
      Buffer.from(`20010db800000000000000000000000${end}`, "hex"),
    );
    names.zones["up.test"] = { addresses: [C, "127.0.0.4"], ipv6, ttl: 60 };
    const connecting = vi.spyOn(http.Agent.prototype, "createConnection");
    await ask(start({ connectTimeout: 5000 }));
    const families = connecting.mock.calls.map(([{ host }]) => isIP(host ?? ""));
    connecting.mockRestore();
    expect(families).toEqual([4, 6, 4, 6]);
  });

  test("an IP address is not looked up", async () => {
    const lookup = vi.spyOn(dns, "lookup");
    expect(await ask(pooled({}, `http://${A}:${port}`))).toBe(`200 ${A}`);
    expect(lookup).not.toHaveBeenCalled();
    lookup.mockRestore();
    expect(names.asked).toEqual([]);
  });

  test.each([undefined, false, { ttl: 0 }] as const)(
    "with `dns: %j`, the operating system looks up names",
    async (given) => {
      const proxy = pooled(given === undefined ? {} : { dns: given }, `http://localhost:${port}`);
      expect(await ask(proxy)).toBe(`200 ${A}`);
    },
  );
});
