/** Several kinds of undici's dispatchers, and forward proxies in front of the upstream. */
import {
  Agent,
  BalancedPool,
  type Dispatcher,
  EnvHttpProxyAgent,
  interceptors,
  MockAgent,
  ProxyAgent,
  RetryAgent,
  Socks5ProxyAgent,
} from "undici";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { createProxy, type ProxyError } from "#fetchway";
import { createUndiciTransport } from "../../../runtimes/undici.ts";
import { type Forwarder, startHttpForwarder, startSocksForwarder } from "./_forwarders.ts";
import { Upstream } from "../../helpers/upstream.ts";

const upstream = new Upstream();
const closing: (() => unknown)[] = [];
let http: Forwarder;
let refusing: Forwarder;
let socks: Forwarder;

beforeAll(async () => {
  await upstream.listen();
  http = await startHttpForwarder();
  refusing = await startHttpForwarder(true);
  socks = await startSocksForwarder();
});
beforeEach(() => {
  for (const { asked } of [http, refusing, socks]) asked.length = 0;
});
afterEach(async () => {
  for (const close of closing.splice(0)) await close();
  await upstream.reset();
});
afterAll(async () => {
  for (const each of [http, refusing, socks]) each.close();
  await upstream.stop();
});

/** Returns a function that sends requests through a proxy with this dispatcher. The dispatcher is closed after the test. */
function through(
  dispatcher: Dispatcher,
  target: string = upstream.url,
  onError?: (error: ProxyError) => undefined,
): (path: string, init?: RequestInit) => Promise<Response> {
  // MockAgent has no destroy().
  closing.push(() => dispatcher.close());
  const transport = createUndiciTransport(dispatcher);
  const proxy = createProxy({ target, transport, ...(onError && { onError }) });
  return (path, init) => proxy.fetch(new Request(`http://proxy.test${path}`, init));
}

/** Expects that a GET, whose response has repeated fields, and POSTs of known and of unknown length are forwarded. */
async function expectForwarded(send: ReturnType<typeof through>): Promise<void> {
  upstream.script = async (call) => {
    await call.done;
    const cookies: [string, string][] = [
      ["Set-Cookie", "a=1"],
      ["Set-Cookie", "b=2"],
    ];
    call.reply(200, [...cookies, ["X-Bytes", "caf\u00e9"]], `${call.method}:${call.text}`);
  };
  const got = await send("/path?q=%2F", { headers: { "x-id": "7" } });
  expect([got.status, await got.text()]).toEqual([200, "GET:"]);
  expect(got.headers.getSetCookie()).toEqual(["a=1", "b=2"]);
  expect(got.headers.get("x-bytes")).toBe("caf\u00e9");
  const posted = await send("/", { method: "POST", body: "text" });
  expect(await posted.text()).toBe("POST:text");
  const large = "x".repeat(300_000);
  const stream = new Blob([large]).stream().pipeThrough(new TransformStream());
  const streamed = await send("/", { method: "POST", body: stream, duplex: "half" } as RequestInit);
  expect(await streamed.text()).toBe(`POST:${large}`);
  const [first, second] = upstream.calls;
  expect(first?.target).toMatch(/\/path\?q=%2F$/);
  expect(first?.get("host")).toBe(upstream.authority);
  expect(first?.get("x-id")).toBe("7");
  expect(second?.get("content-length")).toBe("4");
  expect(upstream.faults).toEqual([]);
}

const dispatchers: Record<string, () => Dispatcher> = {
  Agent: () => new Agent(),
  "ProxyAgent, absolute-form": () =>
    new ProxyAgent({ uri: `http://127.0.0.1:${http.port}`, proxyTunnel: false }),
  "ProxyAgent, tunnel": () =>
    new ProxyAgent({ uri: `http://127.0.0.1:${http.port}`, proxyTunnel: true }),
  EnvHttpProxyAgent: () =>
    new EnvHttpProxyAgent({ httpProxy: `http://127.0.0.1:${http.port}`, noProxy: "" }),
  Socks5ProxyAgent: () => new Socks5ProxyAgent(`socks5://127.0.0.1:${socks.port}`),
  BalancedPool: () => new BalancedPool(upstream.url),
  RetryAgent: () => new RetryAgent(new Agent()),
  "the interceptors dns, cache, redirect and retry": () =>
    new Agent().compose(
      interceptors.dns(),
      interceptors.cache(),
      interceptors.redirect({ maxRedirections: 3 }),
      interceptors.retry(),
    ),
};

test.each(Object.keys(dispatchers))("%s forwards requests and responses", async (name) => {
  await expectForwarded(through((dispatchers[name] as () => Dispatcher)()));
  const asked = [...http.asked, ...socks.asked].join();
  if (name.includes("tunnel")) expect(asked).toContain(`CONNECT ${upstream.authority}`);
  else if (name.includes("Socks")) expect(asked).toContain(upstream.authority);
  else if (name.includes("roxy")) expect(asked).toContain(`GET ${upstream.url}/path?q=%2F`);
  else expect(asked).toBe("");
});

test.each(["ProxyAgent, absolute-form", "ProxyAgent, tunnel"])(
  "%s sends repeated fields as separate lines",
  async (name) => {
    const dispatcher = (dispatchers[name] as () => Dispatcher)();
    closing.push(() => dispatcher.destroy());
    const proxy = createProxy({
      target: upstream.url,
      transport: createUndiciTransport(dispatcher),
      // A web Request joins repeated fields. An interceptor, like Node's server, can pass them separately.
      interceptors: {
        attempt: [
          (next) => (request, scope) =>
            next({ ...request, headers: ["X-A", "1", "x-b", "2", "X-A", "3"] }, scope),
        ],
      },
    });
    await proxy.fetch(new Request("http://proxy.test/"));
    expect(upstream.calls[0]?.all("x-a")).toEqual(["1", "3"]);
    expect(upstream.calls[0]?.all("x-b")).toEqual(["2"]);
  },
);

test.each([true, false])(
  "if a forward proxy refuses (tunnel: %s), the client gets a 5xx",
  async (tunnel) => {
    const uri = `http://127.0.0.1:${refusing.port}`;
    const send = through(new ProxyAgent({ uri, proxyTunnel: tunnel }));
    const answer = await send("/");
    expect(answer.status).toBe(tunnel ? 502 : 500);
    expect(await answer.text()).not.toContain("who are you");
    expect(upstream.calls).toHaveLength(0);
  },
);

test("interceptors: a cached response is reused, and a redirect is followed", async () => {
  const send = through(
    new Agent().compose(interceptors.cache(), interceptors.redirect({ maxRedirections: 1 })),
  );
  upstream.script = (call) => {
    if (call.target === "/old") call.reply(302, [["Location", "/new"]]);
    else call.reply(200, [["Cache-Control", "max-age=60"]], "kept");
  };
  expect(await (await send("/new")).text()).toBe("kept");
  const again = await send("/new");
  expect([await again.text(), again.headers.has("age")]).toEqual(["kept", true]);
  expect(upstream.calls).toHaveLength(1);
  expect(await (await send("/old")).text()).toBe("kept");
});

test("RetryAgent retries by undici's own rules", async () => {
  const send = through(new RetryAgent(new Agent(), { minTimeout: 1, maxRetries: 1 }));
  upstream.script = (call) =>
    upstream.calls.length === 1 ? call.reset() : call.reply(200, [], "at last");
  expect(await (await send("/")).text()).toBe("at last");
  expect(upstream.calls).toHaveLength(2);
});

describe("MockAgent", () => {
  function mock(): MockAgent {
    const agent = new MockAgent();
    agent.disableNetConnect();
    return agent;
  }

  test("a mocked request gets the response of its mock", async () => {
    const agent = mock();
    const pool = agent.get("http://mocked.test");
    pool.intercept({ path: "/a", method: "POST", body: /^text$/ }).reply(201, "made", {
      headers: { "x-id": "7" },
    });
    const answer = await through(agent, "http://mocked.test")("/a", {
      method: "POST",
      body: "text",
    });
    expect([answer.status, answer.headers.get("x-id")]).toEqual([201, "7"]);
    expect(await answer.text()).toBe("made");
    agent.assertNoPendingInterceptors();
  });

  test("a request without a mock gets 500, and onError gets undici's error", async () => {
    const errors: ProxyError[] = [];
    const note = (error: ProxyError): undefined => void errors.push(error);
    const agent = mock();
    agent.get("http://mocked.test").intercept({ path: "/a" }).reply(200, "a");
    const answer = await through(agent, "http://mocked.test", note)("/b");
    expect(answer.status).toBe(500);
    expect(String(errors[0]?.cause)).toMatch(/MockNotMatchedError.*\/b/s);
    expect(await answer.text()).not.toContain("mocked");
  });
});
