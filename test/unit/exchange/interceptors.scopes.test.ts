/** The scopes of requests that are sent more than once, by an interceptor or because of an option. */
import { describe, expect, test, vi } from "vitest";
import { forward } from "../../../src/pipeline/pipeline.ts";
import type { ProxyOptions } from "../../../src/options/proxyoptions.ts";
import { compile } from "../../../src/plan.ts";
import type { Interceptor } from "../../../src/transport/port.ts";
import {
  errorOf,
  fakeIncoming,
  fakeResponse,
  FakeTransport,
  respond,
  run,
  TARGET,
  to,
} from "../../helpers/fakes.ts";

describe("the scopes of several attempts", () => {
  /** Creates a transport that registers with the scope but does not end it, so that the core must end it. */
  const answeringIn = (...statuses: number[]): FakeTransport =>
    new FakeTransport((_, scope) => {
      scope.onAbort({ fail: () => {} });
      const status = statuses.shift() ?? 200;
      return fakeResponse(status === 302 ? to("/next") : { status });
    });

  test("all scopes end when a response without a body has arrived, also after a redirect", async () => {
    vi.useFakeTimers();
    const incoming = fakeIncoming();
    const plan = compile({ followRedirects: true }, () => answeringIn(302, 204));
    expect((await forward(incoming, TARGET, plan, undefined, respond)).status).toBe(204);
    expect(incoming.listeners.size).toBe(0);
    expect(vi.getTimerCount()).toBe(0);
    vi.useRealTimers();
  });

  test("a scope that has ended is refused for another attempt, which it could not abort", async () => {
    const twice: Interceptor = (next) => async (request, scope) => {
      await next(request, scope);
      scope.end();
      return next(request, scope);
    };
    const transport = answeringIn();
    const options: ProxyOptions = { interceptors: { request: [twice] } };
    const error = await errorOf(() => run({}, { transport, options }));
    expect(String(error)).toMatch(/bad option `interceptors`: .*scope\.again\(\)/);
  });
});
