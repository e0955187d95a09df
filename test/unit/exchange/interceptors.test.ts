import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { BytesBody } from "../../../src/body/bytes.ts";
import { ProxyError } from "../../../src/error.ts";
import { forward } from "../../../src/pipeline/pipeline.ts";
import type { ProxyOptions } from "../../../src/options/proxyoptions.ts";
import { compile } from "../../../src/plan.ts";
import type { Interceptor } from "../../../src/transport/port.ts";
import {
  answering,
  bytes,
  errorOf,
  fakeIncoming,
  fakeResponse,
  FakeTransport,
  proxyError,
  respond,
  run,
  stale,
  streamOf,
  TARGET,
  to,
} from "../../helpers/fakes.ts";

/** Creates an interceptor that logs each request, and the status of its response or its error. */
const logging =
  (log: string[], name: string): Interceptor =>
  (next) =>
  async (request, scope) => {
    log.push(`${name}: ${request.path}`);
    try {
      const reply = await next(request, scope);
      log.push(`${name}: ${reply.status}`);
      return reply;
    } catch (error) {
      log.push(`${name}: ${(error as ProxyError).code}`);
      throw error;
    }
  };

const throwing =
  (error: unknown): Interceptor =>
  () =>
  async () => {
    throw error;
  };

describe("the order of interceptors", () => {
  test("`request` wraps redirects and retries, `attempt` wraps each attempt, and the first interceptor is outermost", async () => {
    const log: string[] = [];
    const interceptors = {
      request: [logging(log, "r1"), logging(log, "r2")],
      attempt: [logging(log, "a1"), logging(log, "a2")],
    };
    const transport = answering(stale, to("/next"), { status: 201 });
    const options: ProxyOptions = { followRedirects: true, interceptors };
    expect((await run({ path: "/a" }, { transport, options })).status).toBe(201);
    expect(log).toEqual([
      "r1: /a",
      "r2: /a",
      "a1: /a",
      "a2: /a",
      "a2: connection_terminated",
      "a1: connection_terminated",
      "a1: /a",
      "a2: /a",
      "a2: 302",
      "a1: 302",
      "a1: /next",
      "a2: /next",
      "a2: 201",
      "a1: 201",
      "r2: 201",
      "r1: 201",
    ]);
  });

  test("an `attempt` interceptor sees that the second attempt requires a new connection", async () => {
    const seen: unknown[] = [];
    const attempt: Interceptor = (next) => (request, scope) => {
      seen.push(request.newConnection ?? false);
      return next(request, scope);
    };
    await run(
      {},
      { transport: answering(stale), options: { interceptors: { attempt: [attempt] } } },
    );
    expect(seen).toEqual([false, true]);
  });

  test("interceptors run after onRequest and before onResponse, and `request` wraps bodyLimit", async () => {
    const log: string[] = [];
    const options: ProxyOptions = {
      bodyLimit: 3,
      onRequest: ({ path }) => void log.push(`onRequest: ${path}`),
      onResponse: ({ status }) => void log.push(`onResponse: ${status}`),
      interceptors: { request: [logging(log, "r")], attempt: [logging(log, "a")] },
    };
    await run({ method: "POST", body: bytes("abc") }, { options });
    expect(log).toEqual(["onRequest: /", "r: /", "a: /", "a: 200", "r: 200", "onResponse: 200"]);
    log.length = 0;
    const over = await run({ method: "POST", body: bytes("abcd") }, { options });
    expect(over.status).toBe(413);
    expect(log).toEqual(["onRequest: /", "r: /", "r: http_request_error"]);
  });
});

describe("an interceptor may", () => {
  test("change the request and the response", async () => {
    const transport = new FakeTransport(() => fakeResponse({ body: bytes("abc") }));
    const attempt: Interceptor = (next) => async (request, scope) => {
      const reply = await next({ ...request, path: "/other", headers: ["X-A", "1"] }, scope);
      return { ...reply, status: 203, headers: [...reply.headers, "X-Seen", "1"] };
    };
    const options: ProxyOptions = { interceptors: { attempt: [attempt] } };
    const response = await run({}, { transport, options });
    expect(response.status).toBe(203);
    expect(response.headers.get("x-seen")).toBe("1");
    expect(await response.text()).toBe("abc");
    expect(transport.hops[0]).toMatchObject({ path: "/other", headers: ["X-A", "1"] });
  });

  test("respond without sending anything", async () => {
    const transport = new FakeTransport();
    const answer = fakeResponse({ status: 418, body: new BytesBody(bytes("tea")) });
    const options: ProxyOptions = { interceptors: { request: [() => async () => answer] } };
    const response = await run({}, { transport, options });
    expect([response.status, await response.text()]).toEqual([418, "tea"]);
    expect(transport.hops).toHaveLength(0);
  });

  test("send the request again in the scope that `scope.again()` returns", async () => {
    const cancelled = vi.fn();
    const transport = answering(
      { status: 503, body: streamOf(["busy"], cancelled) },
      { status: 200 },
    );
    const again: Interceptor = (next) => async (request, scope) => {
      const reply = await next(request, scope);
      if (reply.status !== 503) return reply;
      reply.body?.cancel();
      return next(request, scope.again());
    };
    const response = await run({}, { transport, options: { interceptors: { request: [again] } } });
    expect(response.status).toBe(200);
    expect(transport.hops).toHaveLength(2);
    expect(transport.scopes[1]).not.toBe(transport.scopes[0]);
    expect(cancelled).toHaveBeenCalledOnce();
  });
});

describe("an exception of an interceptor", () => {
  const oops = new TypeError("oops");

  test.each(["request", "attempt"] as const)("in `%s` is passed to onError", async (where) => {
    const onError = vi.fn(
      (error: ProxyError) => new Response(error.code, { status: error.status }),
    );
    const interceptors = { [where]: [throwing(oops)] };
    const response = await run({}, { options: { interceptors, onError } });
    expect(response.status).toBe(500);
    expect(onError).toHaveBeenCalledOnce();
    expect(onError.mock.lastCall?.[0]).toMatchObject({ code: "proxy_internal_error", cause: oops });
  });

  test.each(["request", "attempt"] as const)(
    "in `%s` rejects the call when onError returns nothing",
    async (where) => {
      const interceptors = { [where]: [throwing(oops)] };
      expect(await errorOf(() => run({}, { options: { interceptors } }))).toBe(oops);
    },
  );

  test("an exception that is thrown synchronously rejects the call", async () => {
    const attempt: Interceptor = () => () => {
      throw oops;
    };
    const options: ProxyOptions = { interceptors: { attempt: [attempt] } };
    expect(await errorOf(() => run({}, { options }))).toBe(oops);
  });

  test("an exception aborts the request that was sent", async () => {
    const fail = vi.fn();
    const transport = new FakeTransport((_, scope) => {
      scope.onAbort({ fail });
      return fakeResponse();
    });
    const late: Interceptor = (next) => async (request, scope) => {
      await next(request, scope);
      throw oops;
    };
    const options: ProxyOptions = { interceptors: { request: [late] } };
    expect(await errorOf(() => run({}, { transport, options }))).toBe(oops);
    expect(fail).toHaveBeenCalledExactlyOnceWith(proxyError("proxy_internal_error", 500));
  });

  test("an exception of the transport itself reaches the interceptor as a ProxyError, and becomes a response", async () => {
    const log: string[] = [];
    const transport = new FakeTransport(async () => {
      throw new TypeError("a transport's own");
    });
    const options: ProxyOptions = { transport, interceptors: { attempt: [logging(log, "a")] } };
    expect((await run({}, { options })).status).toBe(500);
    expect(log).toEqual(["a: /", "a: proxy_internal_error"]);
  });

  test("a ProxyError becomes its gateway response", async () => {
    const error = new ProxyError("http_request_error", { status: 401 });
    const options: ProxyOptions = { interceptors: { request: [throwing(error)] } };
    expect((await run({}, { options })).status).toBe(401);
  });
});

describe("no timer and no listener is left", () => {
  beforeEach(() => void vi.useFakeTimers());
  afterEach(() => void vi.useRealTimers());

  test("when an interceptor responds without sending", async () => {
    const incoming = fakeIncoming();
    const interceptors = {
      request: [(): (() => Promise<never>) => async () => fakeResponse() as never],
    };
    const plan = compile({ interceptors }, () => new FakeTransport());
    await forward(incoming, TARGET, plan, undefined, respond);
    expect(incoming.listeners.size).toBe(0);
    expect(vi.getTimerCount()).toBe(0);
  });
});
