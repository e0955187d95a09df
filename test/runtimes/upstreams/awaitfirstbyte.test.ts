/** `awaitFirstByte` with real upstreams and several HTTP clients: health, hooks, reports, and the end of a proxy. */
import { createServer as createHttp2Server } from "node:http2";
import { Agent } from "undici";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { createProxy, type NodeProxy, type ProxyOptions } from "../../../runtimes/node.ts";
import { createUndiciTransport } from "../../../runtimes/undici.ts";
import { mirrorTo } from "../../../src/exchange/mirror.ts";
import type { RequestEnd } from "../../../src/options/observationoptions.ts";
import { awaitFirstByte, type Interceptor } from "../../../src/streams.ts";
import { balance, type BalanceOptions } from "../../../src/upstreams/balance.ts";
import type { Call } from "../../helpers/link.ts";
import { listen } from "../../helpers/serve.ts";
import { Upstream } from "../../helpers/upstream.ts";
import { until, within } from "../../helpers/wait.ts";
import { chunk, lastChunk } from "../../helpers/wire.ts";

const HEAD =
  "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
const EVENT = "data: 2\n\n";
const first = new Upstream();
const second = new Upstream();
const ends: (() => unknown)[] = [];

beforeAll(() => Promise.all([first.listen(), second.listen()]));
afterEach(async () => {
  for (const end of ends.splice(0).toReversed()) await end();
  await Promise.all([first.reset(), second.reset()]);
});
afterAll(() => Promise.all([first.stop(), second.stop()]));

const stall = (call: Call): void => call.write(HEAD);
const answer = (call: Call): void => call.write(HEAD, chunk(EVENT), lastChunk);

interface Started {
  readonly proxy: NodeProxy;
  readonly target: ReturnType<typeof balance>;
  readonly ask: (init?: RequestInit) => Promise<Response>;
}

/** Starts a proxy for two upstreams. The first one stalls, and the second one answers. */
function start(
  firstByteTimeout: number,
  options: ProxyOptions = {},
  balancing: BalanceOptions = { policy: "first" },
): Started {
  first.script = stall;
  second.script = answer;
  const target = balance([first.url, second.url], balancing);
  const attempt = [awaitFirstByte({ firstByteTimeout })];
  const proxy = createProxy({ target, log: false, interceptors: { attempt }, ...options });
  ends.push(() => proxy.destroy());
  const ask = (init: RequestInit = {}): Promise<Response> =>
    proxy.fetch(new Request("http://proxy.test/a", init));
  return { proxy, target, ask };
}

const dispatcher = new Agent();
afterAll(() => dispatcher.destroy());

test.each<[client: string, options: () => ProxyOptions]>([
  ["Fetchway's own HTTP client", () => ({})],
  ["undici", () => ({ transport: createUndiciTransport(dispatcher) })],
  ["fetch", () => ({ fetch: globalThis.fetch })],
])(
  "over %s, a stalled event stream is closed, and the client gets the event stream of the next upstream",
  async (_, options) => {
    const { ask } = start(100, options());
    const response = await ask();
    expect([response.status, await response.text()]).toEqual([200, EVENT]);
    await within((await first.call()).link.closed, "the stalled connection closed");
  },
);

test("over HTTP/2, a stalled stream is reset, and its connection stays open", async () => {
  const codes: number[] = [];
  const server = createHttp2Server();
  server.on("stream", (stream, fields) => {
    stream.respond({ ":status": 200, "content-type": "text/event-stream" });
    if (fields[":path"] === "/good") stream.end(EVENT);
    stream.on("error", () => {}).on("close", () => codes.push(stream.rstCode));
  });
  const url = `http://127.0.0.1:${await listen(server)}`;
  ends.push(() => server.close());
  const { proxy } = start(200);
  proxy.destroy();
  const target = balance([{ target: { url, http2: true } }, { target: second.url }], {
    policy: "first",
  });
  const both = createProxy({
    target,
    log: false,
    interceptors: { attempt: [awaitFirstByte({ firstByteTimeout: 200 })] },
  });
  ends.push(() => both.destroy());
  const ask = async (path: string): Promise<string> =>
    (await both.fetch(new Request(`http://proxy.test${path}`))).text();
  expect(await Promise.all([ask("/good"), ask("/stalled")])).toEqual([EVENT, EVENT]);
  await until(() => codes.length === 2, "both streams closed");
  expect(new Set(codes)).toEqual(new Set([0, 8]));
  expect(both.stats()).toMatchObject({ created: 2 });
});

describe("with several upstreams", () => {
  test("an upstream whose streams stall is ejected, and gets no further request", async () => {
    const { target, ask } = start(30);
    for (let i = 0; i < 6; i++) expect(await (await ask()).text()).toBe(EVENT);
    const [stalling, answering] = target.states();
    expect(stalling).toMatchObject({ state: "ejected", failures: 5, active: 0 });
    expect(answering).toMatchObject({ state: "up", failures: 0, requests: 6, active: 0 });
    expect(first.calls).toHaveLength(5);
  });

  test("if `statusOf` returns an error status for the first event, the response counts as a failure", async () => {
    const statusOf = (): number => 503;
    const { target, ask } = start(1000, {
      interceptors: { attempt: [awaitFirstByte({ firstByteTimeout: 1000, statusOf })] },
    });
    first.script = answer;
    for (let i = 0; i < 5; i++) expect((await ask()).status).toBe(503);
    expect(target.states()[0]).toMatchObject({ state: "ejected", failures: 5 });
  });

  test("a POST is sent again only if `retry.methods` contains it", async () => {
    const post = { method: "POST", body: "text" };
    const once = start(50);
    expect((await once.ask(post)).status).toBe(504);
    expect([first.calls.length, second.calls.length]).toEqual([1, 0]);
    const again = start(50, { retry: { methods: ["POST"] } });
    expect((await again.ask(post)).status).toBe(200);
    await second.calls[0]?.done;
    expect(second.calls[0]?.text).toBe("text");
  });

  test("with `retry.attempts: 0`, a request whose response stalls is not sent again", async () => {
    const { ask } = start(30, { retry: { attempts: 0 } });
    expect((await ask()).status).toBe(504);
    expect(second.calls).toHaveLength(0);
  });

  test("hooks see only the response that the client gets, and `onRequestEnd` reports both attempts", async () => {
    const seen: unknown[] = [];
    const mirror = new Upstream();
    await mirror.listen();
    ends.push(() => mirror.stop());
    let end: RequestEnd | undefined;
    const { ask } = start(50, {
      mirror: mirrorTo(mirror.url),
      onRequest: () => void seen.push("request"),
      onResponse: ({ status }) => void seen.push(`response ${status}`),
      onError: () => void seen.push("error"),
      onRequestEnd: (event) => void (end = event),
    });
    expect(await (await ask()).text()).toBe(EVENT);
    await until(() => end !== undefined && mirror.calls.length > 0, "the report and the copy");
    expect(seen).toEqual(["request", "response 200"]);
    expect(end).toMatchObject({ status: 200, attempts: 2, upstream: second.url, bytesOut: 9 });
    expect(end?.error).toBeUndefined();
    expect(mirror.calls).toHaveLength(1);
  });

  test("if all attempts stall, the error names firstByteTimeout and the last upstream", async () => {
    const { explainError } = await import("../../../src/explain/errors.ts");
    let line = "";
    const { ask } = start(50, { onError: (error) => void (line = explainError(error)) });
    second.script = stall;
    expect((await ask()).status).toBe(504);
    expect(line).toBe(
      `http_response_timeout: ${second.authority} does not answer: no first byte of the body within 50 ms (see its log; the limit is firstByteTimeout)`,
    );
  });

  test("`attemptTimeout` also limits the time until the body begins", async () => {
    const { ask } = start(0, { attemptTimeout: 1500 });
    expect(await (await ask()).text()).toBe(EVENT);
  });

  test("the option `wait` does not hold requests whose event stream does not begin", async () => {
    const { proxy, ask } = start(50, { wait: 10_000 });
    expect(await (await ask()).text()).toBe(EVENT);
    second.script = stall;
    expect((await ask()).status).toBe(504);
    expect(proxy.stats()).toMatchObject({ held: 0 });
  });
});

test("with a single upstream, a request whose response stalls is sent again on a new connection", async () => {
  first.script = (call) => (first.calls.length === 1 ? stall(call) : answer(call));
  const proxy = createProxy({
    target: first.url,
    log: false,
    interceptors: { attempt: [awaitFirstByte({ firstByteTimeout: 50 })] },
  });
  ends.push(() => proxy.destroy());
  const response = await proxy.fetch(new Request("http://proxy.test/"));
  expect([response.status, await response.text(), first.links.length]).toEqual([200, EVENT, 2]);
});

describe("while `awaitFirstByte` holds the response head", () => {
  test("the option `signal` ends the request, and the request is not sent again", async () => {
    const controller = new AbortController();
    const { ask } = start(10_000, { signal: controller.signal });
    const asking = ask();
    const call = await first.call();
    controller.abort();
    expect((await asking).status).toBe(499);
    await within(call.link.closed, "the connection closed");
    expect(second.calls).toHaveLength(0);
  });

  test("`close` waits for the response", async () => {
    const { proxy, ask } = start(10_000);
    const asking = ask();
    const call = await first.call();
    const closing = proxy.close();
    call.write(chunk(EVENT), lastChunk);
    expect(await (await asking).text()).toBe(EVENT);
    await within(closing, "close");
  });

  test("`destroy` ends the request", async () => {
    const { proxy, ask } = start(10_000);
    const asking = ask();
    await first.call();
    proxy.destroy();
    expect((await asking).status).toBeGreaterThanOrEqual(500);
    await until(() => first.openLinks === 0, "the connection closed");
  });
});

test("a response body that no code reads ends after `idleTimeout`", async () => {
  let pour = (): void => {};
  const held = new Promise<void>((resolve) => (pour = resolve));
  const noteHead: Interceptor = (next) => async (request, scope) => {
    const response = await next(request, scope);
    // Fill the body later, after the outer interceptor `awaitFirstByte` has received the head.
    setImmediate(pour);
    return response;
  };
  const attempt = [awaitFirstByte({ firstByteTimeout: 5000 }), noteHead];
  const { ask } = start(0, { idleTimeout: 100, interceptors: { attempt } });
  first.script = async (call) => {
    call.write("HTTP/1.1 200 OK\r\nContent-Length: 3000000\r\n\r\n");
    await held;
    await call.pour(3_000_000);
  };
  expect((await ask()).status).toBe(200);
  await within((await first.call()).link.closed, "the connection closed");
});
