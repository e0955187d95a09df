/** Host names, each of which becomes one upstream for each of its addresses. */
import { createServer } from "node:https";
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { afterEach, describe, expect, test } from "vitest";
import { createProxy } from "../../../runtimes/fetch.ts";
import { createProxy as createNodeProxy } from "../../../runtimes/node.ts";
import type { Transport } from "../../../src/transport/port.ts";
import { balance, type BalanceOptions, type Balancer } from "../../../src/upstreams/balance.ts";
import { makeCertificate } from "../../helpers/certificate.ts";
import type { HostnamesOutcome } from "./_hostnames.program.ts";
import { startProgram } from "../../helpers/program.ts";
import { startUpstreams } from "../../helpers/upstreams.ts";
import { until } from "../../helpers/wait.ts";

const PROGRAM = join(import.meta.dirname, "_hostnames.program.ts");

/** A fake transport whose `resolve` returns the addresses that the test sets. */
class Names {
  addresses: string[] | Error = [];
  readonly asked: string[] = [];
  readonly sent: string[] = [];
  readonly transport: Transport = {
    name: "fake",
    capabilities: { decodes: [], host: true, unixSocket: true, tls: true, address: true },
    send: async ({ upstream }) => {
      this.sent.push(`${upstream.host} at ${upstream.address}`);
      return { status: 200, statusText: "", headers: [], body: null };
    },
    resolve: async (hostname) => {
      this.asked.push(hostname);
      if (this.addresses instanceof Error) throw this.addresses;
      return this.addresses;
    },
  };
}

const made: Balancer[] = [];
afterEach(() => {
  for (const target of made.splice(0)) target.close();
});

function make(names: Names, urls: Parameters<typeof balance>[0], options: BalanceOptions = {}) {
  const target = balance(urls, { policy: "round_robin", resolve: { interval: 5 }, ...options });
  made.push(target);
  const proxy = createProxy({ target, transport: names.transport });
  const ask = async (): Promise<number> =>
    (await proxy.fetch(new Request("http://proxy.test/"))).status;
  return { target, ask };
}

const namesOf = (target: Balancer): string[] =>
  target.states().map(({ name, state }) => `${name} ${state}`);

describe("host names with the option `resolve`", () => {
  test("a host name is looked up before the first request, and each address becomes an upstream", async () => {
    const names = new Names();
    names.addresses = ["10.0.0.1", "::2"];
    const { target, ask } = make(names, ["http://app.test:4000"]);
    expect([await ask(), await ask()]).toEqual([200, 200]);
    expect(names.sent).toEqual(["app.test:4000 at 10.0.0.1", "app.test:4000 at ::2"]);
    expect(namesOf(target)).toEqual([
      "http://app.test:4000 (10.0.0.1) up",
      "http://app.test:4000 (::2) up",
    ]);
  });

  test.each(["localhost", "app.localhost"])(
    "a name of this machine is not looked up, and is one upstream: %s",
    async (name) => {
      const names = new Names();
      names.addresses = ["127.0.0.1", "::1"];
      const { target, ask } = make(names, [`http://${name}:4000`]);
      expect(await ask()).toBe(200);
      expect(namesOf(target)).toEqual([`http://${name}:4000 up`]);
      expect(names.asked).toEqual([]);
    },
  );

  test("upstreams are added and removed as the DNS record changes, even if an address comes back", async () => {
    const names = new Names();
    names.addresses = ["10.0.0.1"];
    const { target, ask } = make(names, ["http://app.test"]);
    await ask();
    names.addresses = ["10.0.0.1", "10.0.0.2"];
    await until(() => target.states().length === 2, "the second address");
    // An address that is added later gets its share of the requests gradually.
    expect(namesOf(target)[1]).toBe("http://app.test (10.0.0.2) starting");
    const running = target.pick(
      { method: "GET", path: "/", headers: [], clientAddress: undefined },
      [],
    );
    const busy = target.states().findIndex(({ active }) => active === 1);
    names.addresses = [busy === 0 ? "10.0.0.2" : "10.0.0.1"];
    await until(() => target.states()[busy]?.state === "draining", "the change");
    names.addresses = ["10.0.0.1", "10.0.0.2"];
    await until(() => target.states()[busy]?.state !== "draining", "the return");
    target.report({
      target: running as string,
      status: 200,
      error: undefined,
      latency: 1,
      isOver: true,
    });
    const asked = names.asked.length;
    await until(() => names.asked.length > asked + 2, "further lookups");
    expect(target.states()).toHaveLength(2);
  });

  test("upstreams are kept if a later lookup fails, and clients get 503 only until a lookup has succeeded", async () => {
    const names = new Names();
    names.addresses = new Error("no answer");
    const { target, ask } = make(names, ["http://app.test"]);
    expect(await ask()).toBe(503);
    names.addresses = ["10.0.0.1"];
    await until(() => target.states().length === 1, "the address");
    expect(await ask()).toBe(200);
    for (const wrong of [new Error("no answer"), []]) {
      names.addresses = wrong;
      const asked = names.asked.length;
      await until(() => names.asked.length > asked + 2, "lookups that fail");
      expect(await ask()).toBe(200);
    }
  });

  test("upstreams are kept if the transport's `resolve` returns no valid addresses", async () => {
    const names = new Names();
    names.addresses = ["10.0.0.1", "", "host.test", "1.2.3", null as never, "fe80::1%br-lan"];
    const { target, ask } = make(names, ["http://app.test"]);
    expect(await ask()).toBe(200);
    const expected = ["http://app.test (10.0.0.1) up", "http://app.test (fe80::1%br-lan) up"];
    expect(namesOf(target)).toEqual(expected);
    for (const wrong of ["10.0.0.2", undefined, ["nowhere"]]) {
      names.addresses = wrong as never;
      const asked = names.asked.length;
      await until(() => names.asked.length > asked + 2, "further lookups");
      expect(namesOf(target)).toEqual(expected);
    }
  });

  test("`close` and `start` during a lookup do not double the later lookups of a host name", async () => {
    const running: ((addresses: string[]) => void)[] = [];
    const names = new Names();
    names.transport.resolve = () => new Promise((resolve) => running.push(resolve));
    const target = balance(["http://app.test"], { resolve: { interval: 5 } });
    made.push(target);
    // One of two proxies with this target is closed during a lookup, and the other one gets a request.
    target.start(names.transport);
    target.close();
    target.start(names.transport);
    expect(running).toHaveLength(2);
    for (const resolve of running.splice(0)) resolve(["10.0.0.1"]);
    for (let round = 0; round < 3; round++) {
      await until(() => running.length > 0, "the next lookup");
      await new Promise((resolve) => setTimeout(resolve, 20));
      expect(running).toHaveLength(1);
      running.pop()?.(["10.0.0.1"]);
    }
  });

  test("all upstreams of a host name change in one step", async () => {
    const names = new Names();
    names.addresses = Array.from({ length: 200 }, (_, i) => `10.0.0.${i}`);
    const { target, ask } = make(names, ["http://app.test"]);
    await ask();
    const { version } = target;
    names.addresses = Array.from({ length: 200 }, (_, i) => `10.0.1.${i}`);
    await until(() => namesOf(target)[0]?.includes("(10.0.1.0)") === true, "the other addresses");
    expect(target.states()).toHaveLength(200);
    // The change of all 200 addresses makes only one new version, because for each version the balancer builds a hash table,
    // and looks at each waiting request.
    expect(target.version).toBe(version + 1);
  });

  test("an address that comes back while its last request is running gets the weight of its host name", async () => {
    const names = new Names();
    names.addresses = ["10.0.0.1", "10.0.0.2"];
    const { target, ask } = make(names, ["http://app.test"], { policy: "first", slowStart: 0 });
    await ask();
    const request = { method: "GET", path: "/", headers: [], clientAddress: undefined };
    void target.pick(request, []);
    names.addresses = ["10.0.0.2"];
    await until(() => target.states()[0]?.state === "draining", "the change");
    target.setWeight("http://app.test", 5);
    names.addresses = ["10.0.0.1", "10.0.0.2"];
    await until(() => target.states()[0]?.state === "up", "the return");
    expect(target.states().map(({ weight }) => weight)).toEqual([5, 5]);
  });

  test("`add`, `setWeight` and `remove` of a host name apply to all its upstreams", async () => {
    const names = new Names();
    names.addresses = ["10.0.0.1", "10.0.0.2"];
    const { target, ask } = make(names, [{ target: "http://app.test", weight: 3 }], {
      slowStart: 0,
    });
    await ask();
    expect(target.states().map(({ weight }) => weight)).toEqual([3, 3]);
    target.add("http://other.test");
    await until(() => target.states().length === 4, "the addresses of the other name");
    expect(() => target.add("http://other.test")).toThrow("is there twice");
    target.setWeight("http://other.test", 2);
    expect(target.states().map(({ weight }) => weight)).toEqual([3, 3, 2, 2]);
    await target.remove("http://app.test");
    expect(target.states().map(({ weight }) => weight)).toEqual([2, 2]);
    const asked = names.asked.length;
    await until(() => names.asked.length > asked + 2, "further lookups");
    expect(names.asked.slice(asked)).not.toContain("app.test");
  });

  test("an upstream that was removed by its address stays removed while DNS has the address; its name is still looked up, and can still be weighted and removed", async () => {
    const names = new Names();
    names.addresses = ["10.0.0.1", "10.0.0.2"];
    const { target, ask } = make(names, ["http://app.test"], { slowStart: 0 });
    await ask();
    await target.remove({ url: "http://app.test", address: "10.0.0.1" });
    target.setWeight("http://app.test", 2);
    const asked = names.asked.length;
    await until(() => names.asked.length > asked + 2, "further lookups");
    expect(target.states()).toMatchObject([{ name: "http://app.test (10.0.0.2)", weight: 2 }]);
    names.addresses = ["10.0.0.2", "10.0.0.3"];
    await until(() => target.states().length === 2, "the change of the record");
    names.addresses = ["10.0.0.1", "10.0.0.2", "10.0.0.3"];
    await until(() => target.states().length === 3, "the return of the address");
    await target.remove({ url: "http://app.test", address: "10.0.0.1" });
    await target.remove("http://app.test");
    expect(target.states()).toEqual([]);
  });

  test("the upstreams of a host name that is added after the first request get their shares gradually", async () => {
    const names = new Names();
    names.addresses = ["10.0.0.1"];
    const { target, ask } = make(names, ["http://app.test"]);
    await ask();
    target.add("http://other.test");
    await until(() => target.states().length === 2, "the address of the other name");
    expect(target.states().map(({ state }) => state)).toEqual(["up", "starting"]);
  });

  test("nothing is looked up for a target that is an address, a socket or an app", async () => {
    const names = new Names();
    names.addresses = ["10.0.0.9"];
    const app = { fetch: () => new Response("ok") };
    const socket = { url: "http://app.test", socketPath: "/run/app.sock" };
    const { target, ask } = make(names, ["http://10.0.0.1", "http://[::1]", socket, app]);
    await ask();
    expect(names.asked).toEqual([]);
    expect(target.states()).toHaveLength(4);
  });

  test("a host name is no longer looked up after `close`", async () => {
    const names = new Names();
    names.addresses = ["10.0.0.1"];
    const { target, ask } = make(names, ["http://app.test"]);
    await ask();
    await until(() => names.asked.length > 2, "some lookups");
    target.close();
    const asked = names.asked.length;
    await new Promise((resolve) => setTimeout(resolve, 30));
    expect(names.asked.length).toBe(asked);
  });

  test("the option `resolve` is refused if the client looks up names itself", () => {
    const target = balance(["http://app.test"], { resolve: true });
    expect(() => createProxy({ target })).toThrow(
      "option `resolve`: the fetch client looks up names itself; leave it out",
    );
  });

  test.each([
    [{ resolve: 5 }, "option `resolve`: use true, or an object"],
    [{ resolve: { interval: 0 } }, "option `resolve`: interval: use whole milliseconds from 1"],
    [{ resolve: { intervall: 1 } }, "option `resolve`: intervall: there is no such option"],
  ])("the options %j are refused, and the error names the fix", (options, message) => {
    expect(() => balance(["http://app.test"], options as BalanceOptions)).toThrow(message);
  });
});

describe.each([
  ["node", [PROGRAM]],
  ["bun", [PROGRAM]],
  ["deno", ["run", "-A", PROGRAM]],
] as const)("on %s", (command, args) => {
  test("the upstreams of a host name follow its DNS record, and get the host name as Host", async () => {
    await using program = startProgram(command, [...args]);
    await program.ended();
    const line = program.output().match(/^\{.*\}$/m)?.[0];
    expect(line, program.output()).toBeDefined();
    const { answered, states, ...outcome } = JSON.parse(line as string) as HostnamesOutcome;
    const { host } = outcome;
    expect(answered.slice(0, 2)).toEqual([["127.0.0.1"], ["127.0.0.1", "127.0.0.2"]]);
    // The address that was removed gets no request any more; the other one gets all.
    const [, , [kept] = [], [last] = []] = answered;
    expect(answered.slice(2)).toEqual([[kept], [kept]]);
    expect(last).toBe(kept);
    expect(states[0]).toEqual([`http://${host} (127.0.0.1) up`]);
    expect(states[2]?.map((state) => state.endsWith("draining")).toSorted()).toEqual([false, true]);
    expect(outcome).toMatchObject({ hosts: [host], held: "held", unknown: 503, retryAfter: "1" });
  });
});

describe("targets with the option `address`", () => {
  test("the proxy connects to the address, and uses the name of the URL in Host and TLS", async () => {
    const { cert, key } = await makeCertificate();
    const server = createServer({ cert, key }, (req, res) => {
      const { servername } = req.socket as { servername?: string };
      res.end(`${req.socket.localAddress} ${servername} ${req.headers.host}`);
    });
    server.listen(0, "127.0.0.2");
    await once(server, "listening");
    const { port } = server.address() as AddressInfo;
    const url = `https://localhost:${port}`;
    const proxy = createNodeProxy({ target: { url, address: "127.0.0.2", tls: { ca: cert } } });
    const response = await proxy.fetch(new Request("http://proxy.test/"));
    expect(await response.text()).toBe(`127.0.0.2 localhost localhost:${port}`);
    proxy.destroy();
    server.close();
    server.closeAllConnections();
  });

  test("no request is sent if the certificate is not valid for the name of the URL", async () => {
    const { cert, key } = await makeCertificate();
    let requests = 0;
    const server = createServer({ cert, key }, (_, res) => {
      requests++;
      res.end();
    });
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    const url = `https://other.test:${(server.address() as AddressInfo).port}`;
    // The certificate is valid for the address, but not for the name.
    const proxy = createNodeProxy({ target: { url, address: "127.0.0.1", tls: { ca: cert } } });
    const response = await proxy.fetch(new Request("http://proxy.test/"));
    expect(response.status).toBe(502);
    expect(response.headers.get("proxy-status")).toContain("tls_certificate_error");
    expect(requests).toBe(0);
    proxy.destroy();
    server.close();
    server.closeAllConnections();
  });

  test("targets with the same URL and different addresses share no connections", async () => {
    await using upstreams = await startUpstreams(["127.0.0.1", "127.0.0.2"]);
    const url = `http://app.test:${new URL(upstreams.urls[0] as string).port}`;
    const texts: string[] = [];
    const proxy = createNodeProxy({
      target: ({ url: asked }) => ({
        url,
        address: asked.endsWith("2") ? "127.0.0.2" : "127.0.0.1",
      }),
    });
    for (const path of ["/1", "/2", "/1", "/2"]) {
      texts.push(await (await proxy.fetch(new Request(`http://proxy.test${path}`))).text());
    }
    expect(texts).toEqual(["0", "1", "0", "1"]);
    expect(proxy.stats()?.created).toBe(2);
    proxy.destroy();
  });

  test.each([
    [{ url: "http://a.test", address: "b.test" }, "address: use an IP address"],
    [{ url: "http://a.test", address: "" }, "address: use an IP address"],
    [{ url: "http://a.test", address: "::1", socketPath: "/a" }, "set `address` or `socketPath`"],
  ])("the target %j is refused, and the error names the fix", (target, fix) => {
    expect(() => createNodeProxy({ target })).toThrow(fix);
  });

  test("`address` is refused if the client looks up names itself", () => {
    const target = { url: "http://a.test", address: "10.0.0.1" };
    expect(() => createProxy({ target })).toThrow("the fetch client looks up names itself");
  });
});
