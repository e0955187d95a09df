import { describe, expect, test, vi } from "vitest";
import { BytesBody } from "../src/body/bytes.ts";
import type { BodySource } from "../src/body/source.ts";
import { StreamBody } from "../src/body/stream.ts";
import { ProxyError } from "../src/error.ts";
import { badOption, MisuseError } from "../src/options/misuse.ts";
import {
  checkInterceptor,
  convertErrors,
  compose,
  type Interceptor,
  type Send,
  sendThrough,
} from "../src/exchange/send.ts";
import type { UpstreamResponse } from "../src/transport.ts";
import {
  bytes,
  errorOf,
  fakeRequest,
  fakeScope,
  fakeResponse,
  FakeTransport,
  proxyError,
  streamOf,
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

  test("each interceptor is set up once, and gets request and scope from the one before", async () => {
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

describe("checkInterceptor", () => {
  const send = async (): Promise<UpstreamResponse> => fakeResponse();
  const checked = (intercept: unknown): Interceptor => checkInterceptor(intercept as Interceptor);

  test.each([undefined, null, 5, {}, Promise.resolve()])(
    "an interceptor that returns %s is refused",
    (made) => {
      expect(() => checked(() => made)(send)).toThrow(MisuseError);
      expect(() => checked(() => made)(send)).toThrow(
        /`interceptors`: return a function: \(next\) =>/,
      );
    },
  );

  test.each<[unknown, RegExp]>([
    [undefined, /resolve to \{ status, statusText, headers, body \}/],
    [null, /resolve to \{ status/],
    [new Response(), /a web Response is none/],
    [fakeResponse({ headers: [["a", "b"]] as never }), /`headers` as a list of strings/],
    [fakeResponse({ headers: ["a"] }), /`headers` as a list of strings/],
    [{ ...fakeResponse(), body: "text" }, /new BytesBody\(bytes\) or new StreamBody\(stream\)/],
  ])("an interceptor that resolves to %o is refused", async (made, message) => {
    const answer = checked(() => async () => made)(send)(fakeRequest(), fakeScope());
    await expect(answer).rejects.toThrow(MisuseError);
    await expect(answer).rejects.toThrow(message);
  });

  test.each<[object, RegExp]>([
    [{ body: "text" }, /pass on a `body` that is null, new BytesBody/],
    [{ body: new Uint8Array(3) }, /pass on a `body`/],
    [{ body: undefined }, /pass on a `body`/],
    [{ body: streamOf(["a"]) }, /pass on a `body`/],
    [{ headers: new Headers() }, /pass on `headers` as a list of strings/],
    [{ headers: ["a", 5] }, /pass on `headers`/],
    [{ upstream: "http://other.test" }, /parseTarget\(url\)/],
  ])(
    "an interceptor that passes on %o is refused, and nothing is sent",
    async (changes, message) => {
      const sent = vi.fn(send);
      const intercept = checked(
        (next: Send): Send =>
          async (request, scope) =>
            next({ ...request, ...changes }, scope),
      );
      const answer = intercept(sent)(fakeRequest(), fakeScope());
      await expect(answer).rejects.toThrow(MisuseError);
      await expect(answer).rejects.toThrow(message);
      expect(sent).not.toHaveBeenCalled();
    },
  );

  test("a replaced body has its own length, and an unchanged one keeps its length", async () => {
    const lengths: unknown[] = [];
    const pass = (body: BodySource | null): Promise<unknown> =>
      checked(
        (next: Send): Send =>
          (request, scope) =>
            next({ ...request, body }, scope),
      )(async (request) => {
        lengths.push(request.contentLength);
        return fakeResponse();
      })(fakeRequest({ body: streamOf(["abc"]), contentLength: 3 }), fakeScope());
    await pass(new BytesBody(bytes("longer")));
    await pass(new StreamBody(streamOf(["abc"])));
    expect(lengths).toEqual([6, 3]);
  });

  test("a response returned without a promise is accepted", async () => {
    const response = fakeResponse();
    expect(await checked(() => () => response)(send)(fakeRequest(), fakeScope())).toBe(response);
  });
});

test("sendThrough sends the request unchanged, to an app or over the network", async () => {
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

test("convertErrors converts every error except misuse into a ProxyError", async () => {
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
