import dns from "node:dns";
import { isIP } from "node:net";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test, vi } from "vitest";
import { Resolver } from "../../../runtimes/sockets/dns.ts";
import { ProxyError } from "../../../src/error.ts";
import type { DnsOptions } from "../../../src/options/pooloptions.ts";
import { NameServer } from "../../helpers/dns.ts";
import { until } from "../../helpers/wait.ts";

const server = new NameServer();
beforeAll(() => server.listen());
beforeEach(() => {
  Object.assign(server, { zones: {}, broken: false, silent: false, asked: [] });
});
afterAll(() => server[Symbol.asyncDispose]());

const names = (options: DnsOptions = {}): Resolver =>
  new Resolver({ ttl: 10_000, servers: [server.address], ...options });

async function good(resolver: Resolver, name: string): Promise<string[]> {
  return (await resolver.resolve(name)).good.map(({ address }) => address);
}

function record(name: string, addresses: string[], ttl = 60): void {
  server.zones[name] = { addresses, ttl };
}

describe("the rotation of addresses", () => {
  test("each call of `resolve` puts the next address first", async () => {
    record("a.test", ["127.0.0.1", "127.0.0.2", "127.0.0.3"]);
    const resolver = names();
    const firsts: (string | undefined)[] = [];
    for (let i = 0; i < 6; i++) firsts.push((await good(resolver, "a.test"))[0]);
    expect(new Set(firsts.slice(0, 3)).size).toBe(3);
    expect(firsts.slice(3)).toEqual(firsts.slice(0, 3));
  });

  test("an address that failed comes last for a while, and the others are used equally often", async () => {
    record("a.test", ["127.0.0.1", "127.0.0.2", "127.0.0.3"]);
    const resolver = names();
    await resolver.resolve("a.test");
    resolver.markFailed("a.test", "127.0.0.2");
    const firsts: Record<string, number> = {};
    for (let i = 0; i < 10; i++) {
      const answer = await resolver.resolve("a.test");
      expect(answer.down.map(({ address }) => address)).toEqual(["127.0.0.2"]);
      const first = answer.good[0]?.address ?? "";
      firsts[first] = (firsts[first] ?? 0) + 1;
    }
    expect(firsts).toEqual({ "127.0.0.1": 5, "127.0.0.3": 5 });
  });

  test("an address that failed for one name still counts as good for another name", async () => {
    record("a.test", ["127.0.0.1"]);
    record("b.test", ["127.0.0.1"]);
    const resolver = names();
    await Promise.all([resolver.resolve("a.test"), resolver.resolve("b.test")]);
    resolver.markFailed("a.test", "127.0.0.1");
    expect(await good(resolver, "a.test")).toEqual([]);
    expect(await good(resolver, "b.test")).toEqual(["127.0.0.1"]);
  });
});

describe("the cache of lookups", () => {
  test("a name that is in use stays in the cache, however many other names are looked up", async () => {
    const resolver = names();
    record("used.test", ["127.0.0.1"]);
    await resolver.resolve("used.test");
    for (let i = 0; i < 1_100; i++) {
      record(`once-${i}.test`, ["127.0.0.1"]);
      await resolver.resolve(`once-${i}.test`);
      if (i % 500 === 0) await resolver.resolve("used.test");
    }
    await resolver.resolve("used.test");
    expect(server.asked.filter((name) => name === "used.test")).toHaveLength(1);
  });

  test("an answer is cached for its TTL", async () => {
    record("a.test", ["127.0.0.1"]);
    const resolver = names();
    for (let i = 0; i < 5; i++) await resolver.resolve("a.test");
    expect(server.asked).toEqual(["a.test"]);
  });

  test("while the name server works, `resolve` does not return an answer whose TTL is over", async () => {
    record("a.test", ["127.0.0.1"], 0);
    const resolver = names();
    expect(await good(resolver, "a.test")).toEqual(["127.0.0.1"]);
    record("a.test", ["127.0.0.2"], 1);
    expect(await good(resolver, "a.test")).toEqual(["127.0.0.2"]);
    record("a.test", ["127.0.0.3"], 60);
    const since = performance.now();
    let now: string[] = [];
    await until(() => {
      void good(resolver, "a.test").then((found) => (now = found));
      return now[0] === "127.0.0.3";
    }, "the record that has changed");
    expect(performance.now() - since).toBeGreaterThan(500);
    expect(server.asked).toHaveLength(3);
  });

  describe("an expired answer", () => {
    /** How far `skip` has moved the resolver's clock forwards, in milliseconds. */
    let skipped = 0;
    const skip = (ms: number): void => void (skipped += ms);
    beforeEach(() => {
      skipped = 0;
      const now = performance.now.bind(performance);
      vi.spyOn(performance, "now").mockImplementation(() => now() + skipped);
    });
    afterEach(() => void vi.useRealTimers().restoreAllMocks());
    /** Stops the timer after which the resolver uses an expired answer, so that the name server answers first. */
    const stopTimers = (): void =>
      void vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
    const connect = async (resolver: Resolver): Promise<string[]> =>
      (await resolver.resolve("a.test", true)).good.map(({ address }) => address);

    test("the first connection after a pause uses the expired answer while the name server is silent", async () => {
      record("a.test", ["127.0.0.1"], 60);
      const resolver = names();
      await connect(resolver);
      skip(61_000);
      server.silent = true;
      let isOver = false;
      void good(resolver, "a.test").finally(() => (isOver = true));
      const found = await Promise.all([connect(resolver), connect(resolver)]);
      expect(found).toEqual([["127.0.0.1"], ["127.0.0.1"]]);
      expect(isOver).toBe(false);
      // The resolver may repeat a query.
      await until(() => server.asked.length >= 2, "the query of the second lookup");
      expect(server.asked.length).toBeLessThan(4);
    });

    test("the expired answer is not used if the name server answers soon, or if the caller needs a valid answer", async () => {
      record("a.test", ["127.0.0.1"], 60);
      const resolver = names();
      stopTimers();
      await connect(resolver);
      for (const [address, find] of [
        ["127.0.0.2", connect],
        ["127.0.0.3", (each: Resolver) => good(each, "a.test")],
      ] as const) {
        skip(61_000);
        record("a.test", [address], 60);
        expect(await find(resolver)).toEqual([address]);
      }
      skip(61_000);
      server.zones = {};
      await expect(connect(resolver)).rejects.toMatchObject({ code: "dns_error" });
    });

    test("an hour after its expiry, the answer is not used while a lookup runs", async () => {
      record("a.test", ["127.0.0.1"], 60);
      const resolver = names();
      await connect(resolver);
      skip(3_700_000);
      record("a.test", ["127.0.0.2"], 60);
      expect(await connect(resolver)).toEqual(["127.0.0.2"]);
    });

    test("after a failed lookup, the expired answer is used for 30 s at most, even if its TTL was longer", async () => {
      record("a.test", ["127.0.0.1"], 3_600);
      const resolver = names();
      stopTimers();
      await connect(resolver);
      skip(3_601_000);
      server.broken = true;
      expect(await connect(resolver)).toEqual(["127.0.0.1"]);
      server.broken = false;
      record("a.test", ["127.0.0.2"], 3_600);
      skip(29_000);
      expect(await connect(resolver)).toEqual(["127.0.0.1"]);
      skip(2_000);
      expect(await connect(resolver)).toEqual(["127.0.0.2"]);
    });
  });

  test("concurrent lookups of a name share one query", async () => {
    record("a.test", ["127.0.0.1"]);
    const resolver = names();
    await Promise.all(Array.from({ length: 100 }, () => resolver.resolve("a.test")));
    expect(server.asked).toEqual(["a.test"]);
  });
});

describe("faults of name servers", () => {
  const failure = (resolver: Resolver): Promise<unknown> =>
    resolver.resolve("a.test").then(
      () => "found",
      (error: unknown) => (error instanceof ProxyError ? error.code : error),
    );

  test("an unknown name becomes dns_error", async () => {
    expect(await failure(names())).toBe("dns_error");
  });

  test("a failing name server becomes dns_error", async () => {
    server.broken = true;
    expect(await failure(names())).toBe("dns_error");
  });

  test("a name server that refuses connections becomes a DNS error, not connection_refused", async () => {
    expect(await failure(names({ servers: ["127.0.0.1:1"] }))).toMatch(/^dns_/);
  });

  test("a silent name server becomes dns_timeout", async () => {
    server.silent = true;
    expect(await failure(names())).toBe("dns_timeout");
  });

  test("an expired answer is used while the name server fails, but not after the name is deleted", async () => {
    record("a.test", ["127.0.0.1"], 0);
    const resolver = names();
    await resolver.resolve("a.test");
    server.broken = true;
    expect(await good(resolver, "a.test")).toEqual(["127.0.0.1"]);
    server.broken = false;
    server.zones = {};
    expect(await failure(resolver)).toBe("dns_error");
    record("a.test", ["127.0.0.9"], 0);
    expect(await good(resolver, "a.test")).toEqual(["127.0.0.9"]);
  });

  test("if the query for one address family fails, the known addresses of that family are kept", async () => {
    const ipv6 = [Buffer.from("20010db8000000000000000000000001", "hex")];
    server.zones["a.test"] = { addresses: ["127.0.0.1"], ipv6, ttl: 0 };
    const resolver = names();
    const both = await good(resolver, "a.test");
    expect(both.toSorted()).toEqual(["127.0.0.1", "2001:db8::1"]);
    for (const family of [4, 6] as const) {
      server.broken = family;
      expect((await good(resolver, "a.test")).toSorted()).toEqual(both.toSorted());
    }
    server.broken = false;
    delete server.zones["a.test"].ipv6;
    expect(await good(resolver, "a.test")).toEqual(["127.0.0.1"]);
  });

  test("a name server that is not an address is refused", () => {
    expect(() => names({ servers: ["no.such.host"] })).toThrow(
      /^fetchway: bad option `dns`: servers: use addresses such as /,
    );
  });
});

describe("localhost", () => {
  const system = (...addresses: string[]): void =>
    void vi.spyOn(dns, "lookup").mockImplementation(((
      _name: string,
      _options: object,
      found: (error: Error | null, addresses: object[]) => void,
    ) => {
      const error = addresses.length === 0 ? new Error("unknown") : null;
      found(
        error,
        addresses.map((address) => ({ address, family: isIP(address) })),
      );
    }) as never);
  afterEach(() => void vi.restoreAllMocks());

  test.each(["localhost", "app.localhost", "localhost."])(
    "%s: the operating system is asked instead of the name servers, and its order of addresses is kept",
    async (name) => {
      system("::1", "127.0.0.1");
      const resolver = names();
      for (let count = 0; count < 3; count++) {
        expect(await good(resolver, name)).toEqual(["::1", "127.0.0.1"]);
      }
      expect(await resolver.resolve(name)).toMatchObject({ isOrder: true });
      expect(server.asked).toEqual([]);
    },
  );

  test.each([
    [["127.0.0.1"], ["127.0.0.1", "::1"]],
    [["::1"], ["::1", "127.0.0.1"]],
    [[], ["127.0.0.1", "::1"]],
    [["192.0.2.1"], ["192.0.2.1"]],
  ])("both loopback addresses are used unless the system has others: %j", async (known, found) => {
    system(...known);
    expect(await good(names({ servers: [] }), "localhost")).toEqual(found);
  });

  test.each(["localhost.test", "mylocalhost"])("%s does not count as localhost", async (name) => {
    record(name, ["127.0.0.1"]);
    expect(await names().resolve(name)).toMatchObject({ isOrder: false });
    expect(server.asked).toEqual([name]);
  });

  test("with `dns: false`, the operating system's order of addresses is kept for other names as well", async () => {
    system("192.0.2.1", "192.0.2.2");
    const resolver = new Resolver(false);
    for (let count = 0; count < 3; count++) {
      expect(await good(resolver, "a.test")).toEqual(["192.0.2.1", "192.0.2.2"]);
    }
    expect(dns.lookup).toHaveBeenCalledTimes(3);
  });
});

test("the resolver asks the operating system when no name server is given", async () => {
  const resolver = names({ servers: [] });
  const { good: found } = await resolver.resolve("localhost");
  expect(found.map(({ address, family }) => isIP(address) === family)).toContain(true);
});
