import { describe, expect, test, vi } from "vitest";
import { BytesBody } from "../../../src/body/bytes.ts";
import type { BodySource } from "../../../src/body/source.ts";
import { StreamBody } from "../../../src/body/stream.ts";
import { MisuseError } from "../../../src/misuse.ts";
import { checkInterceptor, compose } from "../../../src/exchange/interceptors.ts";
import type { Interceptor } from "../../../src/transport/port.ts";
import type { Send } from "../../../src/transport/scope.ts";
import type { UpstreamResponse } from "../../../src/transport/message.ts";
import { bytes, fakeRequest, fakeScope, fakeResponse, streamOf } from "../../helpers/fakes.ts";

/** Creates an interceptor that logs each request and each response. */
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

  test("returns the given function if there are no interceptors", () => {
    const send = async (): Promise<UpstreamResponse> => fakeResponse();
    expect(compose([], send)).toBe(send);
  });

  test("each interceptor is set up once, and gets the request and the scope that the previous one passed on", async () => {
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
    "an interceptor that returns %s instead of a function is misuse",
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
    [new Response(), /not to a web Response/],
    [fakeResponse({ headers: [["a", "b"]] as never }), /`headers` as a list of strings/],
    [fakeResponse({ headers: ["a"] }), /`headers` as a list of strings/],
    [
      fakeResponse({ headers: ["Content-Length", "3", "content-length", "4"] }),
      /leave out the Content-Length of another body/,
    ],
    [
      fakeResponse({ headers: ["Content-Length", "4"], body: bytes("abc") }),
      /leave out the Content-Length of another body/,
    ],
    [{ ...fakeResponse(), body: "text" }, /new BytesBody\(bytes\) or new StreamBody\(stream\)/],
  ])("an interceptor whose function resolves to %o is misuse", async (made, message) => {
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
    "an interceptor that passes on a request with %o is misuse, and nothing is sent",
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

  test("a request whose body is replaced has the new body's length if that is known, or else the announced length", async () => {
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

  test("a response whose Content-Length repeats the same number is not misuse", async () => {
    for (const value of ["3, 3", "03", "3"]) {
      const headers = ["Content-Length", value, "content-length", "3"];
      const response = fakeResponse({ headers, body: bytes("abc") });
      const answer = checked((next: Send): Send => next)(async () => response);
      expect(await answer(fakeRequest(), fakeScope()), value).toBe(response);
    }
  });

  test("an interceptor may return a response without a promise", async () => {
    const response = fakeResponse();
    expect(await checked(() => () => response)(send)(fakeRequest(), fakeScope())).toBe(response);
  });
});
