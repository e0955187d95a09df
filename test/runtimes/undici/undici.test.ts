/** undici in place of Fetchway's own HTTP client: its agent and its errors. */
import { Agent, Pool } from "undici";
import { describe, expect, test } from "vitest";
import { createProxy, type ProxyError } from "#fetchway";
import { explainError } from "../../../src/explain/errors.ts";
import { createUndiciTransport } from "../../../runtimes/undici.ts";
import {
  closing,
  createAgentTransport,
  errorTypeOf,
  through,
  untilFree,
  upstream,
} from "./_undici.ts";
import { type Interceptor, parseTarget } from "../../../src/transport.ts";
import { until, within } from "../../helpers/wait.ts";

describe("the transport's own agent", () => {
  test("connections are kept, even after HEAD and DELETE", async () => {
    const send = through();
    // Without this field, undici closes the connection after HEAD.
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

  test("the connection is closed after a GET with a body, because not every upstream reads that body", async () => {
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

  test("stats() counts connections and requests", async () => {
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
      tunnels: 0,
      origins: { [upstream.url]: { inUse: 0, free: 1, waiting: 0, tunnels: 0 } },
    });
    upstream.script = (call) => call.reset();
    await send("/", { method: "POST" });
    await until(() => transport.stats?.().closed === 1, "a closed connection");
  });

  test("close() lets running requests finish, and later ones get 503", async () => {
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

  test("destroy(), and close() after its timeout, abort requests", async () => {
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

describe("a given dispatcher", () => {
  test("a transport does not close a dispatcher that was passed to it", () => {
    const transport = createAgentTransport();
    for (const method of ["close", "destroy"]) expect(transport).not.toHaveProperty(method);
  });

  test("connections of a dispatcher are counted once, even if several transports use it", async () => {
    const agent = new Agent();
    closing.push(() => agent.destroy());
    const [first, second] = [createUndiciTransport(agent), createUndiciTransport(agent)];
    await (await through(first)("/")).text();
    expect(second.stats?.()).toMatchObject({ created: 1, requests: 1 });
    expect(agent.listenerCount("connect")).toBe(1);
  });

  test("a transport has no `stats` if its dispatcher has no counters per origin", () => {
    const pool = new Pool(upstream.url);
    closing.push(() => pool.destroy());
    expect(createUndiciTransport(pool).stats?.()).toBeUndefined();
  });

  test.each([null, [], "http://proxy.test:3128"])("%j is refused as a dispatcher", (wrong) => {
    expect(() => createUndiciTransport(wrong as never)).toThrow(/dispatcher.*new Agent\(\)/);
  });

  test("targets with a socket or TLS options are refused", () => {
    const transport = createAgentTransport();
    expect(() => createProxy({ target: "unix:/tmp/socket", transport })).toThrow(
      /the undici client cannot reach unix sockets/,
    );
    const tls = { rejectUnauthorized: false };
    expect(() => createProxy({ target: { url: "https://a.test", tls }, transport })).toThrow(
      /the undici client has no TLS options/,
    );
  });
});

/** Sends a request to another upstream, which refuses the connection. */
const elsewhere: Interceptor = (next) => (request, scope) =>
  next({ ...request, upstream: parseTarget("http://127.0.0.1:1") }, scope);

describe("errors of undici", () => {
  test("a refused connection becomes 502, and onError gets undici's error", async () => {
    const seen: ProxyError[] = [];
    const proxy = createProxy({
      target: "http://127.0.0.1:1",
      transport: createAgentTransport(),
      onError: (error) => void seen.push(error),
    });
    const answer = await proxy.fetch(new Request("http://proxy.test/", { method: "POST" }));
    expect([answer.status, errorTypeOf(answer)]).toEqual([502, "connection_refused"]);
    expect(seen[0]?.cause).toMatchObject({ code: "ECONNREFUSED" });
    expect(await answer.text()).not.toContain("127.0.0.1");
  });

  test("explainError names the upstream for a refused connection, a silent upstream and a truncated response", async () => {
    const seen: string[] = [];
    const explain = (error: ProxyError): void => void seen.push(explainError(error));
    const send = through(createAgentTransport(), { onError: explain, timeout: 1000 });
    upstream.script = () => {};
    await (await send("/silent")).text();
    upstream.script = (call) => {
      call.write("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc");
      call.close();
    };
    await (await send("/cut")).text().catch(explain);
    await through(createAgentTransport(), {
      onError: explain,
      interceptors: { attempt: [elsewhere] },
    })("/");
    const { host } = new URL(upstream.url);
    expect(seen).toEqual([
      `http_response_timeout: ${host} does not answer: no response headers within 1000 ms (see its log; the limit is timeout)`,
      `http_response_incomplete: ${host} closed the connection in the middle of the response (see its log)`,
      "connection_refused: 127.0.0.1:1 (is it running?)",
    ]);
  });

  test("the proxy's `timeout` applies, and not the agent's timeouts", async () => {
    const send = through(createAgentTransport({ headersTimeout: 1, bodyTimeout: 1 }), {
      timeout: 3000,
    });
    upstream.script = (call) => {
      if (call.target === "/never") return;
      setTimeout(() => call.reply(200, [], "late"), 1200);
    };
    const [late, never] = await Promise.all([send("/"), send("/never")]);
    expect(await late.text()).toBe("late");
    expect([never.status, errorTypeOf(never)]).toEqual([504, "http_response_timeout"]);
  });
});
