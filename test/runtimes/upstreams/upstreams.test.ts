/** Several upstreams, of which one fails in some way, through a real proxy on Node. */
import { once } from "node:events";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import { afterEach, describe, expect, test } from "vitest";
import { createProxy, type Proxy, type ProxyOptions } from "../../../runtimes/node.ts";
import { type BalanceOptions, Balancer } from "../../../src/upstreams/balance.ts";
import type { Chance } from "../../../src/upstreams/policy.ts";
import { until } from "../../helpers/wait.ts";

type Fault = "none" | "hangs" | "500" | "flaps";

/** An upstream that fails in a way that the test sets. */
class Host {
  fault: Fault = "none";
  /** The fault in answers to health checks; undefined if it is the same as in answers to requests. */
  health: Fault | undefined;
  readonly seen: string[] = [];
  readonly #sockets: Set<Socket> = new Set();
  #held: ServerResponse[] = [];
  readonly server: Server;
  port = 0;

  constructor() {
    this.server = createServer((req, res) => {
      this.seen.push(`${req.method} ${req.url}`);
      const fault = (req.url === "/health" && this.health) || this.fault;
      if (fault === "hangs") return void this.#held.push(res);
      if (fault === "flaps" && this.seen.length % 2 === 0) return void req.socket.destroy();
      res.writeHead(fault === "500" ? 500 : 200).end(String(this.port));
    });
    this.server.on("connection", (socket) => {
      this.#sockets.add(socket);
      socket.on("close", () => this.#sockets.delete(socket));
    });
  }

  async listen(): Promise<string> {
    this.server.listen(0, "127.0.0.1");
    await once(this.server, "listening");
    this.port = (this.server.address() as AddressInfo).port;
    return `http://127.0.0.1:${this.port}`;
  }

  /** Answers the requests that hang. */
  release(): void {
    for (const res of this.#held.splice(0)) res.end(String(this.port));
  }

  /** Refuses connections from now on, and breaks off those that are open. */
  kill(): void {
    this.server.close();
    for (const socket of this.#sockets) socket.destroy();
  }
}

let hosts: Host[] = [];
let proxy: Proxy;

async function start(
  count: number,
  balancing: BalanceOptions = {},
  options: ProxyOptions = {},
  chance?: Chance,
): Promise<Balancer> {
  hosts = Array.from({ length: count }, () => new Host());
  const urls = await Promise.all(hosts.map(async (host) => host.listen()));
  const target = new Balancer(urls, { policy: "round_robin", ...balancing }, chance);
  proxy = createProxy({ ...options, target });
  return target;
}

async function ask(path = "/", method = "GET"): Promise<Response> {
  const init = method === "POST" ? { method, body: "x" } : { method };
  return proxy.fetch(new Request(`http://proxy.test${path}`, init));
}

/** Sends requests one after the other. Returns the number of each status. */
async function askMany(count: number, method = "GET"): Promise<Record<number, number>> {
  const statuses: Record<number, number> = {};
  for (let i = 0; i < count; i++) {
    const response = await ask(`/${i}`, method);
    await response.text();
    statuses[response.status] = (statuses[response.status] ?? 0) + 1;
  }
  return statuses;
}

afterEach(async () => {
  proxy.destroy();
  for (const host of hosts) host.kill();
  await Promise.resolve();
});

describe("several upstreams", () => {
  test("upstreams take turns, and no request counts as running after its end", async () => {
    const target = await start(3);
    expect(await askMany(9)).toEqual({ 200: 9 });
    expect(hosts.map(({ seen }) => seen.length)).toEqual([3, 3, 3]);
    expect(target.active).toBe(0);
    const response = await ask();
    await response.text();
    expect(target.states().map(({ active }) => active)).toEqual([0, 0, 0]);
  });

  test("no request fails if an upstream is killed, and the upstream is ejected", async () => {
    const target = await start(3);
    await askMany(3);
    hosts[0]?.kill();
    expect(await askMany(30)).toEqual({ 200: 30 });
    expect(target.states()[0]?.state).toBe("ejected");
  });

  test("each attempt and each failure of an upstream is counted", async () => {
    const target = await start(3, { outliers: false });
    await askMany(3);
    hosts[0]?.kill();
    (hosts[1] as Host).fault = "500";
    expect(await askMany(30)).toMatchObject({ 200: expect.any(Number) as number });
    const [dead, broken, good] = target.states();
    expect(dead?.failures).toBeGreaterThan(5);
    expect(dead?.requests).toBe(1 + (dead?.failures ?? 0));
    expect(broken?.failures).toBeGreaterThan(5);
    expect(broken?.requests).toBe(1 + (broken?.failures ?? 0));
    expect(good).toMatchObject({ requests: hosts[2]?.seen.length, failures: 0 });
  });

  test("no upload is lost if an upstream is killed, and no upload arrives twice", async () => {
    await start(3);
    hosts[0]?.kill();
    expect(await askMany(20, "POST")).toEqual({ 200: 20 });
    const seen = hosts.flatMap((host) => host.seen);
    expect(new Set(seen).size).toBe(20);
    expect(seen).toHaveLength(20);
  });

  test("an upload of any length reaches another upstream unchanged if the first upstream refuses the connection", async () => {
    let sent = 0;
    const chunks = Array.from({ length: 40 }, (_, n) => new Uint8Array(100_000).fill(n));
    const received: Buffer[] = [];
    await start(2, { policy: "first" });
    hosts[0]?.kill();
    const [, other] = hosts as [Host, Host];
    other.server.removeAllListeners("request");
    other.server.on("request", (req: IncomingMessage, res: ServerResponse) => {
      req.on("data", (chunk: Buffer) => received.push(chunk));
      req.on("end", () => res.end("got it"));
    });
    const body = new ReadableStream<Uint8Array>({
      pull(controller) {
        const next = sent < chunks.length ? chunks[sent++] : undefined;
        if (next === undefined) controller.close();
        else controller.enqueue(next);
      },
    });
    const init = { method: "POST", body, duplex: "half" } as RequestInit;
    const response = await proxy.fetch(new Request("http://proxy.test/", init));
    expect([response.status, await response.text()]).toEqual([200, "got it"]);
    expect(Buffer.concat(received).equals(Buffer.concat(chunks))).toBe(true);
  });

  test("no request that may be sent again fails if an upstream closes connections", async () => {
    await start(3, {}, { retry: { attempts: 2 } });
    (hosts[0] as Host).fault = "flaps";
    expect(await askMany(60)).toEqual({ 200: 60 });
  });

  test("no request fails if an upstream with many idle connections is stopped", async () => {
    await start(2);
    for (const host of hosts) host.fault = "hangs";
    const held = Promise.all(Array.from({ length: 100 }, (_, n) => ask(`/${n}`)));
    await until(() => hosts.every(({ seen }) => seen.length === 50), "50 requests at each");
    for (const host of hosts) {
      host.fault = "none";
      host.release();
    }
    for (const response of await held) await response.text();
    hosts[0]?.kill();
    for (let round = 0; round < 5; round++) {
      // Send all requests at the same time, so that the proxy does not yet know which idle connections are closed.
      const asked = await Promise.all(Array.from({ length: 20 }, (_, n) => ask(`/${n}`)));
      expect(asked.map(({ status }) => status)).toEqual(Array(20).fill(200));
      for (const response of asked) await response.text();
    }
  });

  test("no client gets the 500 of an upstream if `retry` names the status", async () => {
    const target = await start(3, {}, { retry: { statusCodes: [500] } });
    (hosts[0] as Host).fault = "500";
    expect(await askMany(30)).toEqual({ 200: 30 });
    expect(target.states()[0]?.state).toBe("ejected");
  });

  test("with attemptTimeout, no request fails if an upstream hangs", async () => {
    const outliers = { consecutiveFailures: 2 };
    const target = await start(3, { outliers }, { attemptTimeout: 1000 });
    (hosts[0] as Host).fault = "hangs";
    expect(await askMany(24)).toEqual({ 200: 24 });
    expect(target.states()[0]?.state).toBe("ejected");
    expect(target.active).toBe(0);
  });

  test("an upload to an upstream that hangs is not sent again", async () => {
    await start(3, {}, { attemptTimeout: 1000, timeout: 2000 });
    (hosts[0] as Host).fault = "hangs";
    expect(await askMany(3, "POST")).toEqual({ 200: 2, 504: 1 });
    expect(hosts.flatMap(({ seen }) => seen)).toHaveLength(3);
  });
});

test("an ejected upstream gets a single probe, and gets more requests only after the probe has succeeded", async () => {
  const clock = { now: 0 };
  const chance = { now: () => clock.now, random: () => 0 };
  const outliers = { consecutiveFailures: 1 };
  const target = await start(2, { policy: "first", outliers, slowStart: 0 }, {}, chance);
  const [first] = hosts as [Host];
  first.fault = "500";
  expect(await askMany(1)).toEqual({ 500: 1 });
  first.fault = "hangs";
  clock.now = 30_001;
  const probe = ask("/probe");
  await until(() => first.seen.length === 2, "the probe");
  const others = await Promise.all(Array.from({ length: 20 }, (_, n) => ask(`/${n}`)));
  for (const response of others) expect(await response.text()).toBe(String(hosts[1]?.port));
  expect(first.seen).toEqual(["GET /0", "GET /probe"]);
  expect(proxy.stats()?.upstreams?.map(({ state }) => state)).toEqual(["half-open", "up"]);
  first.fault = "none";
  first.release();
  expect((await probe).status).toBe(200);
  await (await probe).text();
  expect(await (await ask()).text()).toBe(String(first.port));
  expect(target.states()[0]?.state).toBe("up");
});

test("if all upstreams are down, the client gets 503 with Retry-After", async () => {
  const target = await start(2, {
    check: { path: "/health", interval: 20, unhealthyThreshold: 1 },
  });
  for (const host of hosts) host.fault = "500";
  await askMany(1);
  await until(() => target.states().every(({ state }) => state === "down"), "both down");
  const response = await ask();
  expect(response.status).toBe(503);
  expect(response.headers.get("retry-after")).toBe("1");
  for (const host of hosts) host.fault = "none";
  await until(() => target.states().every(({ state }) => state !== "down"), "both up");
  expect(await askMany(4)).toEqual({ 200: 4 });
});

describe("upstreams that are out of use", () => {
  const clock = { now: 0 };
  const chance = { now: () => clock.now, random: () => 0 };
  const outliers = { consecutiveFailures: 2, ejectionTime: 1_000 };
  const check = { path: "/health", interval: 5, timeout: 60_000 };
  const changes: string[] = [];
  const onStateChange: BalanceOptions["onStateChange"] = ({ previous, state, reason }) =>
    void changes.push(`${previous} → ${state}: ${reason}`);
  const options: BalanceOptions = { policy: "first", outliers, check, onStateChange };

  afterEach(() => {
    changes.length = 0;
    clock.now = 0;
  });

  /** Makes the first upstream fail requests until it is ejected. Its checks hang. */
  async function eject(target: Balancer): Promise<void> {
    const [first] = hosts as [Host];
    first.health = "hangs";
    first.fault = "500";
    expect(await askMany(2)).toEqual({ 500: 2 });
    expect(target.states()[0]?.state).toBe("ejected");
    first.fault = "none";
  }

  test("an ejected upstream returns when its checks succeed, and its next ejection lasts longer", async () => {
    const target = await start(2, options, {}, chance);
    await eject(target);
    const [first] = hosts as [Host];
    first.health = "none";
    first.release();
    // The clock does not move, so that only checks can end the ejection.
    await until(() => target.states()[0]?.state === "starting", "the return");
    expect(target.members[0]?.weight).toBe(0.1);
    await until(() => changes.length === 2, "the changes");
    expect(changes).toEqual([
      "up → ejected: 2 failures in a row, last: 500",
      "ejected → up: 2 checks succeeded",
    ]);
    // Because checks may be wrong, one failure ejects the upstream again, as long as no request to it has succeeded.
    first.health = "hangs";
    first.fault = "500";
    await (await ask()).text();
    expect(target.states()[0]?.state).toBe("ejected");
    // The second ejection takes twice the time of the first.
    clock.now = 1_001;
    expect(target.states()[0]?.state).toBe("ejected");
    clock.now = 2_001;
    expect(target.states()[0]?.state).toBe("half-open");
  });

  test("a check that began before the ejection does not end the ejection", async () => {
    const target = await start(
      2,
      { ...options, check: { ...check, healthyThreshold: 1 } },
      {},
      chance,
    );
    const [first] = hosts as [Host];
    const checks = (): number => first.seen.filter((each) => each === "GET /health").length;
    first.health = "hangs";
    await until(() => checks() === 1, "a check");
    await eject(target);
    first.release();
    await until(() => checks() === 2, "the next check");
    expect(target.states()[0]?.state).toBe("ejected");
    first.release();
    await until(() => target.states()[0]?.state === "starting", "the return");
    await until(() => changes.length === 2, "the changes");
    expect(changes[1]).toBe("ejected → up: a check succeeded");
  });

  test("a half-open upstream returns when its checks succeed, even without a probe", async () => {
    const target = await start(2, options, {}, chance);
    await eject(target);
    clock.now = 1_001;
    expect(target.states()[0]?.state).toBe("half-open");
    const [first] = hosts as [Host];
    first.health = "none";
    first.release();
    await until(() => target.states()[0]?.state === "starting", "the return");
    first.health = "hangs";
    first.fault = "500";
    expect(await askMany(1)).toEqual({ 500: 1 });
    expect(target.states()[0]?.state).toBe("ejected");
  });

  test("an upstream that is down returns when its checks succeed, and gets its share of requests gradually", async () => {
    const target = await start(2, { ...options, outliers: false }, {}, chance);
    const [first] = hosts as [Host];
    first.health = "500";
    await until(() => target.states()[0]?.state === "down", "failed checks");
    first.health = "none";
    await until(() => target.states()[0]?.state !== "down", "good checks");
    expect(target.states()[0]?.state).toBe("starting");
    expect(target.members[0]?.weight).toBe(0.1);
    clock.now = 5_000;
    expect(target.members[0]?.weight).toBe(0.5);
  });

  test("without checks, an ejected upstream stays out until its ejectionTime is over", async () => {
    const { check: _, ...unchecked } = options;
    const target = await start(2, unchecked, {}, chance);
    await eject(target);
    expect(await askMany(20)).toEqual({ 200: 20 });
    expect(target.states()[0]?.state).toBe("ejected");
    clock.now = 1_001;
    expect(target.states()[0]?.state).toBe("half-open");
  });
});

test("requests above maxRequests wait, and requests above maxQueue get 503", async () => {
  const target = await start(1, { maxRequests: 1, maxQueue: 1 }, { timeout: 5_000 });
  const [host] = hosts as [Host];
  host.fault = "hangs";
  const first = ask("/first");
  await until(() => host.seen.length === 1, "the first request");
  const second = ask("/second");
  expect((await ask("/third")).status).toBe(503);
  host.fault = "none";
  host.server.closeAllConnections();
  expect((await first).status).toBe(502);
  expect((await second).status).toBe(200);
  await (await second).text();
  expect(target.active).toBe(0);
});

test("upstreams can be added and removed between requests", async () => {
  const target = await start(2);
  const added = new Host();
  hosts.push(added);
  target.add(await added.listen());
  await target.remove(`http://127.0.0.1:${hosts[0]?.port}`);
  const before = hosts[0]?.seen.length;
  expect(await askMany(12)).toEqual({ 200: 12 });
  expect(hosts[0]?.seen.length).toBe(before);
  expect(added.seen.length).toBeGreaterThan(0);
});
