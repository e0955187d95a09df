/** Exceptions of hooks: `onError` answers them, or the call rejects with them. */
import { describe, expect, test, vi } from "vitest";
import { ProxyError } from "../../../src/error.ts";
import type { ProxyOptions } from "../../../src/options/proxyoptions.ts";
import {
  errorOf,
  FakeTransport,
  fakeIncoming,
  fakeResponse,
  proxyError,
  respond,
  run,
  streamOf,
  TARGET,
  to,
} from "../../helpers/fakes.ts";
import { forward } from "../../../src/pipeline/pipeline.ts";
import { compile } from "../../../src/plan.ts";

const exception = new Error("10.0.0.1 is secret");
const oops = (): never => {
  throw exception;
};
const rejects = (): Promise<never> => Promise.reject(exception);

/** Each failing hook: its name, the options that set it, the number of requests sent before it fails, and a target. */
const FAILING: [string, ProxyOptions, number, (() => string)?][] = [
  ["target", {}, 0, oops],
  ["a target that rejects", {}, 0, rejects as unknown as () => string],
  ["clientAddress", { clientAddress: oops }, 0],
  ["trustProxy", { trustProxy: oops }, 0],
  ["pathRewrite", { pathRewrite: oops }, 0],
  ["onRequest", { onRequest: oops }, 0],
  ["an onRequest that rejects", { onRequest: rejects }, 0],
  ["redirectTargets", { followRedirects: true, redirectTargets: oops }, 1],
  ["onResponse", { onResponse: oops }, 1],
  ["an onResponse that rejects", { onResponse: rejects }, 1],
];

/** Creates a transport that answers with a redirect whose body has not ended. */
function startReply(): { transport: FakeTransport; fail: () => void; cancelled: () => void } {
  const fail = vi.fn();
  const cancelled = vi.fn();
  const transport = new FakeTransport((_, scope) => {
    scope.onAbort({ fail });
    return fakeResponse({ ...to("/next"), body: streamOf(["abc"], cancelled) });
  });
  return { transport, fail, cancelled };
}

describe.each(FAILING)("an exception from %s", (_, options, sent, target = () => TARGET) => {
  test("rejects the call with that exception and aborts the request that was sent", async () => {
    const { transport, fail, cancelled } = startReply();
    expect(await errorOf(() => run({}, { options, target, transport }))).toBe(exception);
    expect(transport.hops).toHaveLength(sent);
    expect(fail).toHaveBeenCalledTimes(sent);
    expect(cancelled).toHaveBeenCalledTimes(sent);
  });

  test("is passed to onError, whose response is returned", async () => {
    const { transport, fail } = startReply();
    const onError = vi.fn(() => new Response("sorry", { status: 503 }));
    const response = await run({}, { options: { ...options, onError }, target, transport });
    expect(response.status).toBe(503);
    const error: unknown = expect.objectContaining({
      code: "proxy_internal_error",
      cause: exception,
    });
    expect(onError).toHaveBeenCalledExactlyOnceWith(error, expect.any(Request));
    expect(fail).toHaveBeenCalledTimes(sent);
  });

  test("rejects the call with that exception when onError returns nothing", async () => {
    const { transport } = startReply();
    const all = { ...options, onError: () => undefined };
    expect(await errorOf(() => run({}, { options: all, target, transport }))).toBe(exception);
  });
});

test("an exception from onError rejects the call, no matter which error onError was called for", async () => {
  const transport = new FakeTransport(() => Promise.reject(new ProxyError("dns_error")));
  for (const onError of [oops, rejects]) {
    for (const options of [
      { onError },
      { onError, onRequest: () => Promise.reject(new Error("first")) },
    ]) {
      expect(await errorOf(() => run({}, { options, transport }))).toBe(exception);
    }
  }
});

test("a hook that throws a value that is not an Error rejects the call with that value", async () => {
  for (const thrown of [undefined, null, "text", 0]) {
    const onRequest = (): never => {
      // oxlint-disable-next-line typescript/only-throw-error -- any value can be thrown
      throw thrown;
    };
    expect(await errorOf(() => run({}, { options: { onRequest } }))).toBe(thrown);
  }
});

test("a ProxyError that a hook throws becomes its gateway response", async () => {
  const onRequest = (): never => {
    throw new ProxyError("http_request_error", { status: 451 });
  };
  const response = await run({}, { options: { onRequest } });
  expect(response.status).toBe(451);
  expect(response.headers.get("proxy-status")).toBe("fetchway; error=http_request_error");
});

test("a promise returned by a hook that must be synchronous rejects the call with a TypeError that names the hook", async () => {
  const options = { clientAddress: async () => "192.0.2.1" } as unknown as ProxyOptions;
  const error = await errorOf(() => run({}, { options }));
  expect(error).toBeInstanceOf(TypeError);
  expect((error as Error).message).toMatch(/`clientAddress`: return the value itself/);
});

test("a hook that fails after the client has disconnected does not reject the call", async () => {
  const incoming = fakeIncoming();
  const onError = vi.fn();
  const onRequest = (): never => {
    incoming.leave();
    throw exception;
  };
  const plan = compile({ onRequest, onError }, () => new FakeTransport());
  const response = await forward(incoming, TARGET, plan, undefined, respond);
  expect(response.status).toBe(499);
  expect(onError).toHaveBeenCalledExactlyOnceWith(
    proxyError("http_request_error", 499),
    expect.any(Request),
  );
});

test.each(["onRequest", "onResponse", "onError"])(
  "a string returned by %s rejects the call with a TypeError that names the hook",
  async (hook) => {
    const path = "/what/it/was/to/set";
    const options = { [hook]: () => path } as unknown as ProxyOptions;
    const target = hook === "onError" ? "http://a.test/base" : TARGET;
    const incoming = fakeIncoming(hook === "onError" ? { path: "/../x" } : {});
    const plan = compile(options, () => new FakeTransport());
    const error = await errorOf(() => forward(incoming, target, plan, undefined, respond));
    expect(error).toBeInstanceOf(TypeError);
    expect((error as Error).message).toMatch(
      new RegExp(`\`${hook}\`: it returned a value of type string`),
    );
  },
);
