/** undici in place of the proxy's own client: its agent, and what goes wrong on the way. */
import { Agent, errors, Pool } from "undici";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { createProxy, type ProxyError, type ProxyOptions, type Transport } from "#proxy";
import { createUndiciTransport } from "../runtimes/undici.ts";
import { toUndiciError } from "../runtimes/undici/errors.ts";
import { Upstream } from "./_upstream.ts";
import { until, within } from "./_wait.ts";

const upstream = new Upstream();
const closing: (() => unknown)[] = [];
beforeAll(() => upstream.listen());
afterEach(async () => {
  for (const close of closing.splice(0)) await close();
  await upstream.reset();
});
afterAll(() => upstream.stop());

type Send = (path: string, init?: RequestInit & { duplex?: "half" }) => Promise<Response>;

function through(
  transport: Transport = createUndiciTransport(),
  options: ProxyOptions = {},
): Send & { transport: Transport } {
  closing.push(() => transport.destroy?.());
  const proxy = createProxy({ target: upstream.url, transport, ...options });
  const send: Send = (path, init) => proxy.fetch(new Request(`http://proxy.test${path}`, init));
  return Object.assign(send, { transport });
}

function given(options: Agent.Options = {}): Transport {
  const agent = new Agent(options);
  closing.push(() => agent.destroy());
  return createUndiciTransport(agent);
}

/** undici uses a connection again only after a turn of the event loop. */
async function untilFree(transport: Transport): Promise<void> {
  await until(() => transport.stats?.().origins[upstream.url]?.free === 1, "a free connection");
}

const errorOf = (answer: Response): string | undefined =>
  answer.headers.get("proxy-status")?.replace("fetchway; error=", "");

describe("an agent of its own", () => {
  test("keeps connections, through HEAD and DELETE, too", async () => {
    const send = through();
    // Without the field, undici closes after HEAD.
    upstream.script = async (call) => {
      await call.done;
      call.reply(200, [["Connection", "keep-alive"]]);
    };
    for (const method of ["GET", "HEAD", "DELETE", "POST", "OPTIONS"]) {
      const answer = await send("/", { method, ...(method === "POST" && { body: "x" }) });
      expect(answer.status, method).toBe(200);
      await answer.arrayBuffer();
      await untilFree(send.transport);
    }
    expect(upstream.links).toHaveLength(1);
  });

  test("a GET with a body is its connection's last request: not every upstream reads it", async () => {
    const transport = createUndiciTransport();
    const proxy = through(transport, {
      interceptors: {
        attempt: [(next) => (request, scope) => next({ ...request, method: "GET" }, scope)],
      },
    });
    await (await proxy("/", { method: "POST", body: "x" })).text();
    await (await proxy("/", { method: "POST", body: "x" })).text();
    expect(upstream.calls.map(({ method, text }) => [method, text])).toEqual([
      ["GET", "x"],
      ["GET", "x"],
    ]);
    expect(upstream.links).toHaveLength(2);
  });

  test("counts connections and requests", async () => {
    const send = through();
    const { transport } = send;
    const before = transport.stats?.();
    expect(before).toMatchObject({ created: 0, requests: 0, origins: {} });
    expect(transport.stats?.()).toBe(before);
    await (await send("/")).text();
    await untilFree(transport);
    await (await send("/")).text();
    await untilFree(transport);
    expect(transport.stats?.()).toMatchObject({
      created: 1,
      closed: 0,
      requests: 2,
      requestsPerSocket: 2,
      origins: { [upstream.url]: { inUse: 0, free: 1, waiting: 0 } },
    });
    upstream.script = (call) => call.reset();
    await send("/", { method: "POST" });
    await until(() => transport.stats?.().closed === 1, "a closed connection");
  });

  test("close() lets requests finish; later ones get 503", async () => {
    const send = through();
    let answer: (() => void) | undefined;
    upstream.script = (call) => void (answer = () => call.reply(200, [], "late"));
    const running = send("/");
    await upstream.call();
    const closed = send.transport.close?.();
    const later = await send("/later");
    expect([later.status, later.headers.get("retry-after")]).toEqual([503, "1"]);
    answer?.();
    expect(await (await running).text()).toBe("late");
    await within(closed as Promise<void>, "close()");
    await send.transport.close?.();
  });

  test("destroy(), and close() after its time, cut requests off", async () => {
    for (const end of ["destroy", "close"] as const) {
      const send = through();
      upstream.script = () => {};
      const running = send("/");
      await until(() => upstream.calls.some(({ state }) => state === "complete"), "the request");
      await send.transport[end]?.(10);
      expect((await within(running, end)).status).toBe(503);
      await upstream.reset();
    }
  });
});

describe("a dispatcher that was given", () => {
  test("stays its owner's to close", () => {
    const transport = given();
    for (const method of ["close", "destroy"]) expect(transport).not.toHaveProperty(method);
  });

  test("is counted once, by whatever number of transports", async () => {
    const agent = new Agent();
    closing.push(() => agent.destroy());
    const [first, second] = [createUndiciTransport(agent), createUndiciTransport(agent)];
    await (await through(first)("/")).text();
    expect(second.stats?.()).toMatchObject({ created: 1, requests: 1 });
    expect(agent.listenerCount("connect")).toBe(1);
  });

  test("that counts nothing by origin has no stats", () => {
    const pool = new Pool(upstream.url);
    closing.push(() => pool.destroy());
    expect(createUndiciTransport(pool).stats?.()).toBeUndefined();
  });

  test.each([null, {}, "http://proxy.test:3128"])("%j is refused", (wrong) => {
    expect(() => createUndiciTransport(wrong as never)).toThrow(/dispatcher.*new Agent\(\)/);
  });

  test("targets with a socket or TLS options are refused", () => {
    const transport = given();
    expect(() => createProxy({ target: "unix:/tmp/socket", transport })).toThrow(
      /the undici client cannot reach unix sockets/,
    );
    const tls = { rejectUnauthorized: false };
    expect(() => createProxy({ target: { url: "https://a.test", tls }, transport })).toThrow(
      /the undici client has no TLS options/,
    );
  });
});

describe("a connection that the upstream closes as it is reused", () => {
  const closes: Record<string, (options?: Agent.Options) => Transport> = {
    "an agent of its own": () => createUndiciTransport(),
    "an agent that was given": () => given(),
  };

  test.each(
    Object.keys(closes).flatMap((whose) => ["FIN", "RST"].map((how) => [whose, how] as const)),
  )("%s: by %s, a GET is sent again, and a POST is not", async (whose, how) => {
    const send = through(closes[whose]?.());
    upstream.script = async (call) => {
      await call.done;
      if (call.link.calls.length === 1) call.reply(200);
      else if (how === "FIN") call.close();
      else call.reset();
    };
    await (await send("/")).text();
    await untilFree(send.transport);
    const again = await send("/again");
    expect(again.status).toBe(200);
    await again.text();
    expect(upstream.calls.map(({ target }) => target)).toEqual(["/", "/again", "/again"]);
    await (await send("/")).text();
    await untilFree(send.transport);
    const posted = await send("/post", { method: "POST", body: "x" });
    expect([posted.status, errorOf(posted)]).toEqual([502, "connection_terminated"]);
    expect(upstream.calls.filter(({ target }) => target === "/post")).toHaveLength(1);
  });

  test("a GET on a new connection that is reset is not sent again", async () => {
    const send = through();
    upstream.script = (call) => call.reset();
    expect((await send("/")).status).toBe(502);
    expect(upstream.calls).toHaveLength(1);
  });
});

describe("a client that leaves", () => {
  test("while its request waits for a connection: it is never sent", async () => {
    const send = through(given({ connections: 1 }));
    let answer: (() => void) | undefined;
    upstream.script = (call) => void (answer = () => call.reply(200, [], call.target));
    const first = send("/first");
    await upstream.call();
    const leaving = new AbortController();
    const second = send("/second", { signal: leaving.signal, method: "POST", body: "x" });
    const third = send("/third");
    leaving.abort();
    expect((await within(second, "the second response")).status).toBe(499);
    answer?.();
    expect(await (await first).text()).toBe("/first");
    await upstream.call(1);
    answer?.();
    expect(await (await third).text()).toBe("/third");
    expect(upstream.calls.map(({ target }) => target)).toEqual(["/first", "/third"]);
    expect(upstream.links).toHaveLength(1);
  });

  test("before the response: the connection is closed", async () => {
    const send = through();
    upstream.script = () => {};
    const leaving = new AbortController();
    const answer = send("/", { signal: leaving.signal });
    const call = await upstream.call();
    leaving.abort();
    expect((await answer).status).toBe(499);
    await within(call.link.closed, "the connection's close");
  });
});

describe("request bodies", () => {
  /** A stream of which other code has said how long it is. */
  async function sendAs(length: number, ...chunks: (string | Error)[]): Promise<Response> {
    const body = new ReadableStream<Uint8Array>({
      async pull(controller) {
        const next = chunks.shift();
        // A body that arrives at once would be measured first.
        await new Promise((resolve) => setTimeout(resolve, 20));
        if (next === undefined) controller.close();
        else if (next instanceof Error) controller.error(next);
        else controller.enqueue(Buffer.from(next));
      },
    });
    // The agent does not check lengths: the proxy does.
    const send = through(given({ strictContentLength: false }), {
      interceptors: {
        attempt: [(next) => (request, scope) => next({ ...request, contentLength: length }, scope)],
      },
    });
    return send("/", { method: "POST", body, duplex: "half" });
  }

  test.each<[string, number, (string | Error)[]]>([
    ["too long", 5, ["123", "456"]],
    ["too short", 5, ["123"]],
    ["broken off", 5, ["123", new Error("gone")]],
  ])("%s: the request is broken off", async (_, length, chunks) => {
    upstream.script = async (call) => {
      await call.done;
      if (call.state === "complete") call.reply(200);
    };
    const answer = await sendAs(length, ...chunks);
    expect([answer.status, errorOf(answer)]).toEqual([400, "http_request_error"]);
    const [call] = upstream.calls;
    await call?.done;
    expect(call?.state).not.toBe("complete");
  });

  test("of the announced length: it arrives", async () => {
    expect(await (await sendAs(6, "123", "456")).text()).toBe("123456");
  });
});

describe("errors", () => {
  test("a refused connection is 502, and onError sees undici's error", async () => {
    const seen: ProxyError[] = [];
    const proxy = createProxy({
      target: "http://127.0.0.1:1",
      transport: given(),
      onError: (error) => void seen.push(error),
    });
    const answer = await proxy.fetch(new Request("http://proxy.test/", { method: "POST" }));
    expect([answer.status, errorOf(answer)]).toEqual([502, "connection_refused"]);
    expect(seen[0]?.cause).toMatchObject({ code: "ECONNREFUSED" });
    expect(await answer.text()).not.toContain("127.0.0.1");
  });

  test("the proxy's deadlines count, not the agent's", async () => {
    const send = through(given({ headersTimeout: 1, bodyTimeout: 1 }), { timeout: 1500 });
    upstream.script = (call) => {
      if (call.target === "/never") return;
      setTimeout(() => call.reply(200, [], "late"), 1200);
    };
    const [late, never] = await Promise.all([send("/"), send("/never")]);
    expect(await late.text()).toBe("late");
    expect([never.status, errorOf(never)]).toEqual([504, "http_response_timeout"]);
  });

  const start = { isStarted: true, isAnswered: false, isStale: false };
  test.each<[Error, Partial<typeof start>, string, number]>([
    [new errors.ConnectTimeoutError(), { isStarted: false }, "connection_timeout", 504],
    [new errors.HeadersTimeoutError(), {}, "http_response_timeout", 504],
    [new errors.BodyTimeoutError(), { isAnswered: true }, "connection_read_timeout", 504],
    [new errors.HeadersOverflowError(), {}, "http_response_header_section_size", 502],
    [new errors.SocketError("other side closed"), {}, "connection_terminated", 502],
    [new errors.SocketError("closed"), { isAnswered: true }, "http_response_incomplete", 502],
    [new errors.SocketError("bad upgrade"), {}, "http_protocol_error", 502],
    [new errors.ResponseContentLengthMismatchError(), {}, "http_response_incomplete", 502],
    [new errors.InvalidArgumentError(), { isStarted: false }, "http_request_error", 400],
    [new errors.ClientClosedError(), { isStarted: false }, "destination_unavailable", 503],
    [new errors.ClientDestroyedError(), {}, "destination_unavailable", 503],
    [new errors.BalancedPoolMissingUpstreamError(), {}, "destination_unavailable", 503],
    [new errors.MaxOriginsReachedError(), {}, "connection_limit_reached", 503],
    [new errors.ProxyConnectionError(), { isStarted: false }, "connection_refused", 502],
    [new errors.SecureProxyConnectionError(), { isStarted: false }, "tls_certificate_error", 502],
    [new errors.HTTPParserError("bad"), {}, "http_protocol_error", 502],
    [new Error("unknown"), {}, "proxy_internal_error", 500],
  ])("%s (%j) is %s", (error, progress, code, status) => {
    expect(toUndiciError(error, { ...start, ...progress })).toMatchObject({ code, status });
  });
});
