import { describe, expect, test, vi } from "vitest";
import { ReplayBody } from "../../../src/body/replay.ts";
import { StreamBody } from "../../../src/body/stream.ts";
import type { ProxyError } from "../../../src/error.ts";
import { type FetchLike, STANDARD } from "../../../src/fetch/fetchtransport.ts";
import { MisuseError } from "../../../src/misuse.ts";
import { compile } from "../../../src/plan.ts";
import {
  bytes,
  errorOf,
  fakeScope,
  FakeTransport,
  proxyError,
  run,
  sendBy as send,
  streamOf,
  streamed,
  textOf,
} from "../../helpers/fakes.ts";

describe("the request to `fetch`", () => {
  test("is sent with the members of the upstream request, and redirects are not followed", async () => {
    const fetch = vi.fn<FetchLike>(() => new Response());
    const headers = ["X-A", "1", "x-a", "2", "accept-encoding", "br"];
    await send(fetch, { method: "DELETE", path: "/v1/a?b", headers });
    expect(fetch).toHaveBeenCalledOnce();
    const [url, init] = fetch.mock.lastCall ?? [];
    expect(url).toBe("http://up.test:4000/v1/a?b");
    expect(init).toMatchObject({ method: "DELETE", redirect: "manual" });
    expect(init?.signal?.aborted).toBe(false);
    expect(init).not.toHaveProperty("body");
    expect(Array.from(init?.headers as Headers)).toEqual([
      ["accept-encoding", "br"],
      ["x-a", "1, 2"],
    ]);
  });

  test.each([
    ["bytes", bytes("abc")],
    ["a stream", streamOf(["a", "bc"])],
    ["a body that is kept", new ReplayBody(new StreamBody(streamOf(["abc"])), 10, undefined)],
  ])("is sent with the body: %s", async (_, body) => {
    const fetch: FetchLike = async (url, init) => {
      expect(init).toMatchObject({ duplex: "half" });
      return new Response(await new Request(url, init).text());
    };
    expect(await textOf(await send(fetch, { method: "POST", body }))).toBe("abc");
  });

  test.each(["GET", "HEAD"])(
    "with the method %s and a body is refused, because no fetch sends it",
    async (method) => {
      const fetch = vi.fn<FetchLike>(() => new Response());
      const sent = send(fetch, { method, body: bytes("abc") });
      await expect(sent).rejects.toEqual(proxyError("http_request_error", 501));
      expect(fetch).not.toHaveBeenCalled();
    },
  );

  test.each(["CONNECT", "TRACE", "TRACK"])(
    "with the method %s is refused, because no fetch sends it",
    async (method) => {
      const fetch = vi.fn<FetchLike>(() => new Response());
      await expect(send(fetch, { method })).rejects.toEqual(proxyError("http_request_error", 501));
      expect(fetch).not.toHaveBeenCalled();
    },
  );

  test.each(["a\u0000b", "a\nb", "a\rb", "\u007f"])(
    "with the field value %j is refused",
    async (value) => {
      const fetch = vi.fn<FetchLike>(() => new Response());
      const sent = send(fetch, { headers: ["x-a", value] });
      await expect(sent).rejects.toEqual(proxyError("http_request_error", 400));
      expect(fetch).not.toHaveBeenCalled();
    },
  );
});

/** Creates a Response with a URL, as from the network. A Response that user code constructs has no URL. */
function fetched(body: string, headers: Record<string, string>): Response {
  return Object.defineProperty(new Response(body, { headers }), "url", { value: "http://up.test" });
}

const pairs = (list: string[]): [string, string][] =>
  Array.from({ length: list.length / 2 }, (_, i) => [list[2 * i] ?? "", list[2 * i + 1] ?? ""]);

describe("the response of `fetch`", () => {
  test("is returned unchanged", async () => {
    const answer = new Response("abc", {
      status: 302,
      statusText: "Over There",
      headers: [
        ["set-cookie", "a=1"],
        ["set-cookie", "b=2"],
        ["location", "/b"],
      ],
    });
    const reply = await send(() => answer);
    expect(reply).toMatchObject({ status: 302, statusText: "Over There" });
    expect(reply.headers).toEqual(
      expect.arrayContaining(["location", "/b", "set-cookie", "a=1", "b=2"]),
    );
    expect(await textOf(reply)).toBe("abc");
  });

  test.each([
    ["gzip", 'W/"x"', true],
    ["br, gzip", 'W/"x"', true],
    ["GZIP", 'W/"x"', true],
    ["unknown", '"x"', false],
    ["gzip, unknown", '"x"', false],
  ])(
    "with the content coding %s has the fields of the body that `fetch` returns",
    async (coding, etag, undone) => {
      const headers = { "content-encoding": coding, "content-length": "9", etag: '"x"', vary: "a" };
      const reply = await send(() => fetched("abc", headers));
      const left = Object.fromEntries(
        new Response(null, { headers: pairs(reply.headers) }).headers,
      );
      const kept = { "content-encoding": coding, "content-length": "9" };
      expect(left).toMatchObject({ etag, vary: "a", ...(undone ? {} : kept) });
      expect("content-encoding" in left).toBe(!undone);
      expect("content-length" in left).toBe(!undone);
    },
  );

  test("a Response that an app constructs from encoded bytes keeps its content coding", async () => {
    const headers = { "content-encoding": "gzip", "content-length": "3", etag: '"x"' };
    const answer = (): Response => new Response("abc", { headers });
    const reply = await send(answer, {}, fakeScope(), { constructsResponses: true });
    expect(
      Object.fromEntries(new Response(null, { headers: pairs(reply.headers) }).headers),
    ).toMatchObject(headers);
  });

  test("keeps its content coding if `fetch` does not decode", async () => {
    const capabilities = { ...STANDARD, decodes: [] };
    const answer = (): Response => fetched("abc", { "content-encoding": "gzip" });
    const { headers } = await send(answer, {}, fakeScope(), { capabilities });
    expect(headers).toEqual(expect.arrayContaining(["content-encoding", "gzip"]));
  });

  test("is read no faster than the client reads", async () => {
    const pull = vi.fn((controller: ReadableStreamDefaultController<Uint8Array>) =>
      controller.enqueue(bytes("x")),
    );
    const reply = await send(
      () => new Response(new ReadableStream({ pull }, { highWaterMark: 0 })),
    );
    await new Promise((resolve) => setTimeout(resolve, 20));
    expect(pull).not.toHaveBeenCalled();
    await streamed(reply).getReader().read();
    expect(pull).toHaveBeenCalledOnce();
  });

  test("fails when it is read if its body is truncated", async () => {
    const cause = new TypeError("terminated");
    const broken = new ReadableStream<Uint8Array>({
      start(controller) {
        controller.enqueue(bytes("ab"));
      },
      pull(controller) {
        controller.error(cause);
      },
    });
    const reader = streamed(await send(() => new Response(broken))).getReader();
    expect(await reader.read()).toMatchObject({ done: false });
    const error = await errorOf(() => reader.read());
    expect(error).toEqual(proxyError("http_response_incomplete", 502));
    expect((error as ProxyError).cause).toBe(cause);
  });
});

describe("a fetch method called without its object", () => {
  class Service {
    #status = 201;
    status = 202;
    async fetch(): Promise<Response> {
      return new Response(null, { status: this.#status });
    }
    async open(): Promise<Response> {
      return new Response(null, { status: this.status });
    }
  }
  const service = new Service();
  const illegal = (): never => {
    throw new TypeError("Illegal invocation: function called with incorrect `this` reference.");
  };

  /** Reads a method without binding it to its object, as in the option `fetch: service.fetch`. */
  const take = (object: object, name: string): FetchLike => Reflect.get(object, name) as FetchLike;

  test.each<[string, FetchLike]>([
    ["a method with private fields", take(service, "fetch")],
    ["a method", take(service, "open")],
    ["a method of a class of the runtime", take(new Response(), "text")],
    ["a binding of workerd", illegal],
  ])("%s without its object rejects with a TypeError", async (_, fetch) => {
    const error = await errorOf(() => send(fetch));
    expect(error).toBeInstanceOf(MisuseError);
    expect((error as Error).message).toMatch(
      /^fetchway: bad option `fetch`: .+; bind it, or wrap it as in `fetch: \(url, init\) =>/,
    );
  });

  test("rejects the call of the proxy as misuse, and does not become a gateway error", async () => {
    const options = { fetch: take(service, "fetch") };
    const plan = compile(options, () => new FakeTransport());
    const error = await errorOf(() => run({}, { options, transport: plan.transport }));
    expect(error).toBeInstanceOf(TypeError);
  });

  test("works once it is bound to the object or wrapped in a function", async () => {
    expect((await send(service.fetch.bind(service))).status).toBe(201);
    expect((await send(() => service.open())).status).toBe(202);
  });

  test("the proxy calls it without `this`, because the global `fetch` of some runtimes allows no other `this`", async () => {
    const receivers: unknown[] = [];
    await send(function (this: unknown) {
      receivers.push(this);
      return new Response();
    });
    expect(receivers).toEqual([undefined]);
  });
});
