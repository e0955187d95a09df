/** Copies of requests for a mirror. What the mirror does with them must never be visible to the client. */
import { createServer } from "node:http";
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from "vitest";
import { createProxy, type NodeProxy, proxyFetch } from "../../runtimes/node.ts";
import { mirrorTo } from "../../src/exchange/mirror.ts";
import type { ProxyOptions } from "../../src/options/proxyoptions.ts";
import { balance } from "../../src/upstreams/balance.ts";
import { connect } from "../helpers/client.ts";
import { listen } from "../helpers/serve.ts";
import { Upstream } from "../helpers/upstream.ts";
import { patience, until } from "../helpers/wait.ts";
import { chunk, lastChunk } from "../helpers/wire.ts";

const upstream = new Upstream();
const mirror = new Upstream();
const ends: (() => void | Promise<void>)[] = [];
beforeAll(() => Promise.all([upstream.listen(), mirror.listen()]));
afterEach(async () => {
  vi.restoreAllMocks();
  for (const end of ends.splice(0)) await end();
  await Promise.all([upstream.reset(), mirror.reset()]);
});
afterAll(() => Promise.all([upstream.stop(), mirror.stop()]));

/** Starts a server with a proxy, and returns its origin. */
async function serve(options: ProxyOptions): Promise<string> {
  const proxy: NodeProxy = createProxy({ target: upstream.url, ...options });
  const server = createServer(proxy.nodeHandler);
  const port = await listen(server);
  ends.push(() => {
    server.closeAllConnections();
    server.close();
    proxy.destroy();
  });
  return `http://127.0.0.1:${port}`;
}

async function post(url: string, body: string | Uint8Array<ArrayBuffer>): Promise<string> {
  const response = await fetch(url, { method: "POST", body });
  return `${response.status} ${await response.text()}`;
}

test("a copy has the same method, path, header fields and body as the request to the target, but its own Host", async () => {
  const origin = await serve({
    mirror: mirrorTo(mirror.url),
    pathRewrite: { "^/api": "/v1" },
    headers: { "x-set": "1" },
    onRequest: ({ headers }) => headers.set("x-hook", "2"),
  });
  mirror.script = (call) => call.reply(500, [["X-Mirror", "1"]], "wrong");
  expect(await post(`${origin}/api/a%2Fb?c`, "the body")).toBe("200 the body");
  const copy = await mirror.call();
  const sent = await upstream.call();
  await copy.done;
  expect([copy.method, copy.target, copy.text]).toEqual(["POST", "/v1/a%2Fb?c", "the body"]);
  const named = (name: string): unknown[] => [copy.get(name), sent.get(name)];
  for (const name of ["x-set", "x-hook", "x-forwarded-for", "content-length"]) {
    expect(named(name)).toEqual([expect.any(String), sent.get(name)]);
    expect(copy.get(name)).toBe(sent.get(name));
  }
  expect(named("host")).toEqual([mirror.authority, upstream.authority]);
});

test.each([{ changeOrigin: false }, { host: "shop.example" }])(
  "with %j, the copy has the same Host as the request to the target",
  async (options) => {
    const origin = await serve({ mirror: mirrorTo(mirror.url), ...options });
    expect(await post(`${origin}/`, "x")).toBe("200 x");
    const [copy, sent] = [await mirror.call(), await upstream.call()];
    expect(copy.get("host")).toBe(sent.get("host"));
    expect(copy.get("host")).not.toBe(mirror.authority);
  },
);

test("the mirror gets copies of a request without a body and of a request with a chunked body", async () => {
  const origin = await serve({ mirror: mirrorTo(mirror.url) });
  expect((await fetch(`${origin}/a`)).status).toBe(200);
  await mirror.call();
  const chunks = new ReadableStream({
    async start(controller) {
      for (const text of ["one ", "two"]) {
        controller.enqueue(new TextEncoder().encode(text));
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
      controller.close();
    },
  });
  const init = { method: "PUT", body: chunks, duplex: "half" } as RequestInit;
  expect(await (await fetch(origin, init)).text()).toBe("one two");
  const copy = await mirror.call(1);
  await copy.done;
  expect([copy.method, copy.text]).toEqual(["PUT", "one two"]);
});

test.each<[string, ProxyOptions]>([
  ["a short `Request`", {}],
  ["`onRequest`", { onRequest: (draft) => void (draft.body = "x") }],
])(
  "a POST with the body of %s gets past a dead upstream, and is copied once",
  async (_, options) => {
    const target = balance(["http://127.0.0.1:1", upstream.url], { policy: "round_robin" });
    const proxy = createProxy({ target, mirror: mirrorTo(mirror.url), ...options });
    ends.push(() => proxy.destroy());
    for (let i = 0; i < 2; i++) {
      const init = { method: "POST", body: "x" };
      const response = await proxy.fetch(new Request(`http://proxy.test/${i}`, init));
      expect([response.status, await response.text()]).toEqual([200, "x"]);
      const copy = await mirror.call(i);
      await copy.done;
      expect([copy.method, copy.target, copy.text]).toEqual(["POST", `/${i}`, "x"]);
    }
    expect(mirror.calls).toHaveLength(2);
  },
);

test("requests that wait for their upstream and move to another proxy are copied once", async () => {
  const options = { mirror: mirrorTo(mirror.url), wait: 30_000 };
  const before = createProxy({ ...options, target: "http://127.0.0.1:1" });
  const after = createProxy({ ...options, target: upstream.url });
  const server = createServer(before.nodeHandler);
  const origin = `http://127.0.0.1:${await listen(server)}`;
  ends.push(() => {
    server.closeAllConnections();
    server.close();
    before.destroy();
    after.destroy();
  });
  const init = { method: "POST", body: "x" };
  const answers = Promise.all([
    fetch(`${origin}/get`),
    fetch(`${origin}/post`, init),
    before.fetch(new Request("http://proxy.test/bytes", init)),
  ]);
  await until(() => before.stats()?.held === 3, "the wait of all requests");
  before.moveWaiting(() => after);
  expect((await answers).map(({ status }) => status)).toEqual([200, 200, 200]);
  // A copy that is sent later than these would be a second one.
  expect((await after.fetch(new Request("http://proxy.test/last"))).status).toBe(200);
  await until(() => new Set(mirror.calls.map(({ target }) => target)).size === 4, "a copy of each");
  const targets = mirror.calls.map(({ target }) => target);
  expect(targets.toSorted()).toEqual(["/bytes", "/get", "/last", "/post"]);
});

describe("responses and failures of the mirror", () => {
  test("the client gets the target's response although the mirror, which gets at most 100 copies, never responds", async () => {
    mirror.script = () => {};
    const origin = await serve({ mirror: mirrorTo(mirror.url) });
    for (let batch = 0; batch < 12; batch++) {
      const all = Array.from({ length: 10 }, (_, i) => post(`${origin}/${batch}`, `body ${i}`));
      expect(await Promise.all(all)).toEqual(all.map((_, i) => `200 body ${i}`));
    }
    expect(upstream.calls).toHaveLength(120);
    await until(() => mirror.calls.length === 100, "100 copies");
  });

  test("cookies, redirects and interim responses of the mirror never reach the client", async () => {
    const elsewhere = new Upstream();
    await elsewhere.listen();
    ends.push(() => elsewhere.stop());
    mirror.script = (call) => {
      call.write("HTTP/1.1 103 Early Hints\r\nLink: </mirror>\r\n\r\n");
      const fields: [string, string][] = [
        ["Location", `${elsewhere.url}/stolen`],
        ["Set-Cookie", "session=mirror"],
      ];
      call.reply(307, fields, "mirror");
    };
    const informed: number[] = [];
    const origin = await serve({
      mirror: mirrorTo(mirror.url),
      followRedirects: true,
      redirectTargets: "any",
      retry: { statusCodes: [500] },
      onInformational: (status) => void informed.push(status),
    });
    const init = { method: "PUT", body: "x", headers: { cookie: "session=1" } };
    const response = await fetch(origin, init);
    expect([response.status, await response.text()]).toEqual([200, "x"]);
    expect(response.headers.get("set-cookie")).toBeNull();
    const copy = await mirror.call();
    await copy.done;
    // The copy has the client's credentials, so the proxy must not send it elsewhere when the mirror redirects.
    expect(copy.get("cookie")).toBe("session=1");
    await fetch(origin);
    await mirror.call(1);
    expect([elsewhere.calls.length, informed]).toEqual([0, []]);
  });

  test("the client gets the target's response if the mirror is dead or resets connections", async () => {
    mirror.script = (call) => call.reset();
    for (const target of ["http://127.0.0.1:1", mirror.url]) {
      const origin = await serve({ mirror: mirrorTo(target) });
      for (let i = 0; i < 5; i++) expect(await post(origin, "x")).toBe("200 x");
    }
    // A copy is sent only once, even if it fails.
    await mirror.call(4);
    expect(mirror.calls).toHaveLength(5);
  });

  test("the connection to the mirror is closed if the mirror sends a long response", async () => {
    mirror.script = (call) => {
      call.write("HTTP/1.1 200 OK\r\nContent-Length: 10000000\r\n\r\n");
      for (let i = 0; i < 20; i++) call.write("x".repeat(10_000));
    };
    const origin = await serve({ mirror: mirrorTo(mirror.url) });
    expect(await post(origin, "x")).toBe("200 x");
    await mirror.call();
    await until(() => mirror.openLinks === 0, "the end of the mirror's connection");
  });

  test("uploads continue although the mirror does not read, and a body over `maxBody` is not copied", async () => {
    // The mirror's socket is paused when its first bytes have arrived.
    mirror.script = (call) => void call.link.socket.pause();
    const origin = await serve({ mirror: mirrorTo({ target: mirror.url, maxBody: 3_000_000 }) });
    const [fitting, tooLong] = [new Uint8Array(3_000_000), new Uint8Array(3_000_001)];
    upstream.script = async (call) => {
      await call.done;
      call.reply(200, [], String(call.length));
    };
    expect(await post(`${origin}/fits`, fitting)).toBe("200 3000000");
    expect(await post(`${origin}/fits`, fitting)).toBe("200 3000000");
    expect(await post(`${origin}/long`, tooLong)).toBe("200 3000001");
    const body = new Blob([tooLong]).stream();
    const init = { method: "POST", body, duplex: "half" } as RequestInit;
    expect(await (await fetch(`${origin}/chunked`, init)).text()).toBe("3000001");
    expect((await fetch(`${origin}/last`)).status).toBe(200);
    await until(() => mirror.calls.some(({ target }) => target === "/last"), "the last copy");
    const targets = mirror.calls.map(({ target }) => target);
    expect(targets.toSorted()).toEqual(["/fits", "/fits", "/last"]);
  });
});

test("a request whose body is over `bodyLimit` is not copied", async () => {
  const origin = await serve({ mirror: mirrorTo(mirror.url), bodyLimit: 1_000 });
  const client = await connect(Number(new URL(origin).port));
  ends.push(() => client.leave("RST"));
  // One packet, so that the whole body has arrived when the request is read.
  const head = "POST /long HTTP/1.1\r\nHost: proxy.test\r\nTransfer-Encoding: chunked\r\n\r\n";
  client.send(head, chunk("x".repeat(1_001)), lastChunk);
  expect((await client.readHead()).status).toBe(413);
  expect(await post(`${origin}/fits`, "x".repeat(1_000))).toMatch(/^200 /);
  await mirror.call();
  expect(mirror.calls.map(({ target }) => target)).toEqual(["/fits"]);
});

test("a copy continues after the client has disconnected, and the mirror's connection is reused", async () => {
  const origin = await serve({ mirror: mirrorTo(mirror.url) });
  let respond = (): void => {};
  const gone = new Promise<void>((resolve) => (respond = resolve));
  mirror.script = async (call) => {
    await gone;
    call.reply(200, [], "late");
  };
  expect((await fetch(origin, { headers: { connection: "close" } })).status).toBe(200);
  const copy = await mirror.call();
  respond();
  await until(() => copy.state === "complete", "the copy");
  await vi.waitFor(async () => {
    expect((await fetch(origin)).status).toBe(200);
    expect(mirror.links[0]?.calls.length).toBeGreaterThan(1);
  }, patience);
});

test("a copy is aborted after `timeout`", async () => {
  mirror.script = () => {};
  const origin = await serve({ mirror: mirrorTo(mirror.url), timeout: 2_500 });
  expect((await fetch(origin)).status).toBe(200);
  await mirror.call();
  await until(() => mirror.openLinks === 0, "the end of the copy");
});

test("`sample` is the share of requests that are copied", async () => {
  const random = vi.spyOn(Math, "random");
  const origin = await serve({ mirror: mirrorTo({ target: mirror.url, sample: 0.25 }) });
  for (const [path, value] of [
    ["/in", 0.2],
    ["/out", 0.25],
    ["/too", 0],
  ] as const) {
    random.mockReturnValue(value);
    expect((await fetch(origin + path)).status).toBe(200);
  }
  await mirror.call(1);
  expect(mirror.calls.map(({ target }) => target)).toEqual(["/in", "/too"]);
});

test("`waitUntil`, from the third argument of `fetch` or from the options, gets the promise of the copy", async () => {
  let respond = (): void => {};
  const asked = new Promise<void>((resolve) => (respond = resolve));
  mirror.script = async (call) => {
    await asked;
    call.reply(204);
  };
  const waiting: Promise<unknown>[] = [];
  const waitUntil = (promise: Promise<unknown>): void => void waiting.push(promise);
  const request = new Request("http://proxy.test/");
  const proxy = createProxy({ target: upstream.url, mirror: mirrorTo(mirror.url) });
  ends.push(() => proxy.destroy());
  expect((await proxy.fetch(request, {}, { waitUntil })).status).toBe(200);
  const options = { mirror: mirrorTo(mirror.url), waitUntil };
  expect((await proxyFetch(request.clone(), upstream.url, options)).status).toBe(200);
  expect(waiting).toHaveLength(2);
  const all = Promise.all(waiting).then(() => "over");
  await mirror.call(1);
  expect(await Promise.race([all, Promise.resolve("running")])).toBe("running");
  respond();
  expect(await all).toBe("over");
});

test.each<[unknown, RegExp]>([
  ["http://127.0.0.1:4001/path", /^fetchway: bad option `mirror`: use an origin such as/],
  [undefined, /bad option `mirror`: use an origin/],
  [{ target: "http://127.0.0.1:4001?q" }, /bad option `mirror`: target: use an origin/],
  [{ target: "http://127.0.0.1:4001", sample: 0 }, /sample: use a number above 0, up to 1/],
  [{ target: "http://127.0.0.1:4001", sample: 2 }, /sample: use a number above 0, up to 1/],
  [{ url: "http://127.0.0.1:4001" }, /url: there is no such option; there are target/],
  [{}, /bad option `mirror`: it needs a `target`/],
])("`mirrorTo` refuses %j, and the error names the fix", (given, message) => {
  expect(() => mirrorTo(given as string)).toThrow(message);
});

test.each(["http://127.0.0.1:4001", { target: "http://127.0.0.1:4001", sample: 0.1 }])(
  "`createProxy` refuses %j as `mirror`, and the error names the import of `mirrorTo`",
  (value) => {
    expect(() => createProxy({ target: upstream.url, mirror: value as never })).toThrow(
      /^fetchway: bad option `mirror`: write `mirrorTo\("http:.*from fetchway\/mirror$/,
    );
  },
);

test("`createProxy` refuses a mirror that its HTTP client cannot reach", () => {
  const unreachable = mirrorTo({ target: "unix:/run/mirror.sock" });
  const options = { target: upstream.url, fetch, mirror: unreachable };
  expect(() => createProxy(options)).toThrow("cannot reach unix sockets");
});
