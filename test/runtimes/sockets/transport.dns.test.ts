/** Name lookups on Bun and Deno, with a name server that the test controls. */
import { once } from "node:events";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { afterEach, describe, expect, test } from "vitest";
import { NameServer } from "../../helpers/dns.ts";
import { type RuntimeName, Served } from "./_served.ts";

const servers: Server[] = [];
afterEach(() => {
  for (const server of servers.splice(0)) {
    server.closeAllConnections();
    server.close();
  }
});

/** Starts a server on each address, all on the same port. Each answers with its own address. */
async function start(...addresses: string[]): Promise<number> {
  let port = 0;
  for (const address of addresses) {
    const server = createServer((_, res) => res.end(address));
    servers.push(server);
    server.listen(port, address);
    await once(server, "listening");
    ({ port } = server.address() as AddressInfo);
  }
  return port;
}

async function nameServer(...addresses: string[]): Promise<NameServer> {
  const names = await new NameServer().listen();
  names.zones = { "app.test": { addresses, ttl: 60 } };
  return names;
}

describe.each<RuntimeName>(["bun", "deno"])("on %s", (runtime) => {
  test("the addresses of a name share the requests evenly", async () => {
    const port = await start("127.0.0.1", "127.0.0.2");
    await using names = await nameServer("127.0.0.1", "127.0.0.2");
    const dns = { servers: [names.address] };
    await using served = new Served(runtime, `http://app.test:${port}`, { dns });
    const counts: Record<string, number> = {};
    for (let count = 0; count < 200; count++) {
      const answer = await served.ask("/");
      counts[answer] = (counts[answer] ?? 0) + 1;
    }
    expect(Object.keys(counts).toSorted()).toEqual(["200 127.0.0.1", "200 127.0.0.2"]);
    for (const count of Object.values(counts)) expect(Math.abs(count - 100)).toBeLessThan(10);
    expect((await served.stats()).created).toBeLessThan(20);
    expect(names.asked).toEqual(["app.test"]);
  });

  test("an address that refuses connections is skipped immediately", async () => {
    const port = await start("127.0.0.1");
    await using names = await nameServer("127.0.0.2", "127.0.0.1");
    const pool = { keepAlive: false, dns: { servers: [names.address] } };
    const target = `http://app.test:${port}`;
    await using served = new Served(runtime, target, pool, { retry: false });
    for (let count = 0; count < 10; count++) expect(await served.ask("/")).toBe("200 127.0.0.1");
    expect(await served.stats()).toMatchObject({ created: 10, failed: 0 });
  });

  test("an unknown name becomes dns_error, and a silent name server dns_timeout", async () => {
    await using names = await nameServer("127.0.0.1");
    const pool = { connectTimeout: 2000, dns: { servers: [names.address] } };
    await using served = new Served(runtime, "?to", pool, { retry: false });
    expect(await served.ask("/?to=http://nowhere.test")).toBe("502 Bad Gateway: dns_error\n");
    names.silent = true;
    expect(await served.ask("/?to=http://app.test")).toBe("504 Gateway Timeout: dns_timeout\n");
  });

  test("dns: false asks the operating system", async () => {
    const port = await start("127.0.0.1");
    await using served = new Served(runtime, "?to", { dns: false }, { retry: false });
    expect(await served.ask(`/?to=http://localhost:${port}`)).toBe("200 127.0.0.1");
    expect(await served.ask("/?to=http://nowhere.invalid")).toBe("502 Bad Gateway: dns_error\n");
  });
});
