import { describe, expect, test, vi } from "vitest";
import { ProxyError } from "../src/error.ts";
import { badOption, MisuseError } from "../src/options/misuse.ts";
import {
  checkResults,
  convertErrors,
  compose,
  type Interceptor,
  type Send,
  sendThrough,
} from "../src/exchange/send.ts";
import type { UpstreamResponse } from "../src/transport.ts";
import {
  errorOf,
  fakeRequest,
  fakeScope,
  fakeResponse,
  FakeTransport,
  proxyError,
} from "./_fakes.ts";

/** An interceptor that logs the way in and the way out. */
const logging =
  (log: string[], name: string): Interceptor =>
  (next) =>
  async (request, scope) => {
    log.push(`${name} in`);
    const reply = await next(request, scope);
    log.push(`${name} out`);
    return reply;
  };

describe("compose", () => {
  test("the first interceptor is the outermost", async () => {
    const log: string[] = [];
    const send = compose([logging(log, "a"), logging(log, "b")], async () => {
      log.push("send");
      return fakeResponse();
    });
    await send(fakeRequest(), fakeScope());
    expect(log).toEqual(["a in", "b in", "send", "b out", "a out"]);
  });

  test("returns the given function where there are no interceptors", () => {
    const send = async (): Promise<UpstreamResponse> => fakeResponse();
    expect(compose([], send)).toBe(send);
  });

  test("each is set up once, and sees request and scope as the one before gave them", async () => {
    const setUp = vi.fn();
    const received = vi.fn(async () => fakeResponse({ status: 201 }));
    const [hop, other] = [fakeRequest(), fakeRequest({ path: "/other" })];
    const [scope, otherScope] = [fakeScope(), fakeScope()];
    const send = compose(
      [
        (next) => {
          setUp();
          return (request, given) => {
            expect([request, given]).toEqual([hop, scope]);
            return next(other, otherScope);
          };
        },
      ],
      received,
    );
    expect((await send(hop, scope)).status).toBe(201);
    await send(hop, scope);
    expect(setUp).toHaveBeenCalledOnce();
    expect(received).toHaveBeenLastCalledWith(other, otherScope);
  });
});

describe("checkResults", () => {
  const send = async (): Promise<UpstreamResponse> => fakeResponse();

  test.each([undefined, null, 5, {}, Promise.resolve()])("to return %s is misuse", (made) => {
    const wrong = checkResults((() => made) as unknown as Interceptor);
    expect(() => wrong(send)).toThrow(MisuseError);
    expect(() => wrong(send)).toThrow(/`interceptors`: return a function: \(next\) =>/);
  });

  test.each([undefined, null, 5, {}, new Response()])(
    "to resolve to %s is misuse",
    async (made) => {
      const sent = checkResults((() => async () => made) as unknown as Interceptor)(send);
      const answer = sent(fakeRequest(), fakeScope());
      await expect(answer).rejects.toThrow(/`interceptors`: resolve to a response/);
    },
  );

  test("a response that is returned without a promise is one", async () => {
    const reply = fakeResponse();
    const sent = checkResults((() => () => reply) as unknown as Interceptor)(send);
    expect(await sent(fakeRequest(), fakeScope())).toBe(reply);
  });
});

test("sendThrough sends the request as it is, to an app or over the network", async () => {
  const [network, inProcess] = [new FakeTransport(), new FakeTransport()];
  const [request, scope] = [fakeRequest(), fakeScope()];
  const send = sendThrough(network, inProcess);
  await send(request, scope);
  expect(network.hops[0]).toBe(request);
  expect(network.scopes[0]).toBe(scope);
  expect(inProcess.hops).toEqual([]);
  const app = { fetch: () => new Response() };
  await send(fakeRequest({ upstream: { ...request.upstream, app } }), scope);
  expect([network.hops.length, inProcess.hops.length]).toEqual([1, 1]);
});

test("convertErrors makes a ProxyError of every error but misuse", async () => {
  const converted = (error: unknown): Promise<unknown> => {
    const send = convertErrors(vi.fn<Send>().mockRejectedValue(error));
    return errorOf(() => send(fakeRequest(), fakeScope()));
  };
  const known = new ProxyError("dns_error");
  expect(await converted(known)).toBe(known);
  const misuse = badOption("fetch", "use a function");
  expect(await converted(misuse)).toBe(misuse);
  for (const thrown of [new TypeError("oops"), "oops", undefined, null]) {
    expect(await converted(thrown)).toEqual(proxyError("proxy_internal_error", 500));
  }
  const response = fakeResponse();
  expect(await convertErrors(async () => response)(fakeRequest(), fakeScope())).toBe(response);
});
