import { describe, expect, test, vi } from "vitest";
import { BytesBody } from "../../../src/body/bytes.ts";
import { ProxyError } from "../../../src/error.ts";
import { forward } from "../../../src/pipeline/pipeline.ts";
import type { RequestDraft } from "../../../src/options/hookoptions.ts";
import type { ProxyOptions } from "../../../src/options/proxyoptions.ts";
import { compile } from "../../../src/plan.ts";
import type { UpstreamResponse } from "../../../src/transport/message.ts";
import {
  bytes,
  fakeIncoming,
  FakeTransport,
  fakeResponse,
  type Given,
  proxyError,
  respond,
  run,
  streamOf,
  TARGET,
} from "../../helpers/fakes.ts";

/** Forwards a request to an upstream that answers with `reply`, and returns the response for the client. */
const answerTo = (reply: Given<UpstreamResponse>, options: ProxyOptions = {}): Promise<Response> =>
  run({}, { options, transport: new FakeTransport(() => fakeResponse(reply)) });

const failing = (error: Error): FakeTransport =>
  new FakeTransport(async () => {
    throw error;
  });

describe("the response of the proxy", () => {
  test("has status and body of the upstream's response, and its fields without the hop-by-hop fields", async () => {
    const headers = ["Connection", "x-hop", "X-Hop", "1", "Set-Cookie", "a=1", "Set-Cookie", "b=2"];
    const response = await answerTo({
      status: 302,
      statusText: "There",
      headers,
      body: bytes("abc"),
    });
    expect(response).toMatchObject({ status: 302, statusText: "There" });
    expect(Array.from(response.headers)).toEqual([
      ["set-cookie", "a=1"],
      ["set-cookie", "b=2"],
    ]);
    expect(await response.text()).toBe("abc");
  });

  test.each([204, 205, 304])(
    "with the status %d has no body, and the upstream's body is cancelled",
    async (status) => {
      const cancelled = vi.fn();
      const response = await answerTo({ status, body: streamOf(["abc"], cancelled) });
      expect(response).toMatchObject({ status, body: null });
      expect(cancelled).toHaveBeenCalledOnce();
    },
  );

  test.each([0, 100, 199, 600, 999])(
    "is 502 if the upstream's status is %d, and the exchange is aborted",
    async (status) => {
      const cancelled = vi.fn();
      const transport = new FakeTransport((_, scope) => {
        scope.onAbort({ fail: cancelled });
        return fakeResponse({ status });
      });
      const response = await run({}, { transport });
      expect(response.status).toBe(502);
      expect(response.headers.get("proxy-status")).toBe("fetchway; error=http_protocol_error");
      expect(cancelled).toHaveBeenCalledOnce();
    },
  );

  test("is 502 if the upstream's status is invalid, and the body is cancelled, also after its scope has ended", async () => {
    const cancelled = vi.fn();
    const transport = new FakeTransport((_, scope) => {
      scope.end();
      return fakeResponse({ status: 999, body: streamOf(["abc"], cancelled) });
    });
    expect((await run({}, { transport })).status).toBe(502);
    expect(cancelled).toHaveBeenCalledOnce();
  });

  test.each([
    ["Très bien\t!", "Tr\u00e8s bien\t!"],
    ["a\r\nb: c", ""],
    ["\u{1f600}", ""],
    ["\u007f", ""],
  ])(
    "whose upstream sends the reason phrase %j has the reason phrase %j",
    async (statusText, sent) => {
      expect((await answerTo({ statusText })).statusText).toBe(sent);
    },
  );
});

describe("onRequest", () => {
  test("sees the request that will be sent, and may change it", async () => {
    const transport = new FakeTransport();
    const onRequest = (draft: RequestDraft): void => {
      expect(Object.fromEntries(draft.headers)).toMatchObject({
        "x-a": "1",
        "x-forwarded-for": "192.0.2.7",
      });
      draft.method = "POST";
      draft.body = "new";
    };
    await run({}, { options: { onRequest, headers: { "x-a": "1" } }, transport });
    expect(transport.hops[0]).toMatchObject({ method: "POST", body: new BytesBody(bytes("new")) });
  });

  test("may return a response, and then nothing is sent and nothing is left open", async () => {
    const incoming = fakeIncoming();
    const transport = new FakeTransport();
    const answer = new Response("mine");
    const plan = compile({ onRequest: async () => answer }, () => transport);
    expect(await forward(incoming, TARGET, plan, undefined, respond)).toBe(answer);
    expect(transport.hops).toHaveLength(0);
    expect(incoming.listeners.size).toBe(0);
  });
});

describe("onResponse", () => {
  test("may change the response without returning it", async () => {
    const response = await answerTo(
      { headers: ["server", "x"], body: bytes("abc") },
      { onResponse: ({ headers }) => headers.delete("server") },
    );
    expect(response.headers.has("server")).toBe(false);
    expect(await response.text()).toBe("abc");
  });

  test("may replace the response, and then the upstream's body is cancelled", async () => {
    const cancelled = vi.fn();
    const answer = new Response("mine");
    const body = streamOf(["abc"], cancelled);
    expect(await answerTo({ body }, { onResponse: () => answer })).toBe(answer);
    expect(cancelled).toHaveBeenCalledOnce();
  });

  test.each<[string, (response: Response) => Response]>([
    [
      "a new response with the same body",
      (response) => new Response(response.body, { status: 201 }),
    ],
    [
      "a new response with a stream through which that body is piped",
      ({ body }) => new Response(body?.pipeThrough(new TransformStream())),
    ],
    ["the response itself", (response) => response],
  ])("may return %s, and then the upstream's body is not cancelled", async (_, onResponse) => {
    const cancelled = vi.fn();
    const response = await answerTo({ body: streamOf(["a", "bc"], cancelled) }, { onResponse });
    expect(await response.text()).toBe("abc");
    expect(cancelled).not.toHaveBeenCalled();
  });

  test("is not called for gateway errors", async () => {
    const onResponse = vi.fn();
    await run({}, { options: { onResponse }, transport: failing(new ProxyError("dns_error")) });
    expect(onResponse).not.toHaveBeenCalled();
  });
});

describe("failures of an exchange", () => {
  test("become responses that name the error type", async () => {
    const transport = failing(new ProxyError("connection_refused", { message: "10.0.0.1" }));
    const response = await run({}, { transport });
    expect(response.status).toBe(502);
    expect(response.headers.get("proxy-status")).toBe("fetchway; error=connection_refused");
    expect(await response.text()).toBe("Bad Gateway: connection_refused\n");
  });

  test("are passed to onError, whose response is returned", async () => {
    const error = new ProxyError("dns_error");
    const onError = vi.fn(async () => new Response("back soon", { status: 503 }));
    const response = await run({}, { options: { onError }, transport: failing(error) });
    expect(onError).toHaveBeenCalledExactlyOnceWith(error, expect.any(Request));
    expect(response.status).toBe(503);
  });

  test("become the response when onError returns nothing", async () => {
    const transport = failing(new ProxyError("dns_error"));
    const response = await run({}, { options: { onError: () => undefined }, transport });
    expect(response.headers.get("proxy-status")).toBe("fetchway; error=dns_error");
  });

  test("a custom transport that rejects with an error that is not a ProxyError results in 500", async () => {
    const transport = failing(new Error("ECONNRESET"));
    const response = await run({}, { options: { transport } });
    expect(response.status).toBe(500);
    expect(response.headers.get("proxy-status")).toBe("fetchway; error=proxy_internal_error");
  });

  test("a failure while the response is built becomes a gateway error, and the upstream's body is cancelled", async () => {
    const cancelled = vi.fn();
    const transport = new FakeTransport(() =>
      fakeResponse({ headers: ["bad name", "1"], body: streamOf(["abc"], cancelled) }),
    );
    const response = await run({}, { transport });
    expect(response.status).toBe(500);
    expect(cancelled).toHaveBeenCalledOnce();
  });
});

describe("a client that disconnects", () => {
  const start = (options: ProxyOptions, transport: FakeTransport, incoming = fakeIncoming()) => ({
    incoming,
    response: forward(
      incoming,
      TARGET,
      compile(options, () => transport),
      undefined,
      respond,
    ),
  });

  test("a client that disconnects before the request is sent prevents sending", async () => {
    const transport = new FakeTransport();
    let go = (): void => {};
    const pathRewrite = (path: string): Promise<string> =>
      new Promise((resolve) => (go = () => resolve(path)));
    const { incoming, response } = start({ pathRewrite }, transport);
    incoming.leave();
    go();
    expect((await response).status).toBe(499);
    expect(transport.hops).toHaveLength(0);
  });

  test("a client that disconnects while the upstream is silent aborts the upstream request", async () => {
    const onError = vi.fn();
    const transport = new FakeTransport(
      (_, scope) =>
        new Promise((_resolve, reject) => {
          scope.onAbort({ fail: () => reject(new Error("socket closed")) });
        }),
    );
    const { incoming, response } = start({ onError }, transport);
    await vi.waitFor(() => expect(transport.scopes).toHaveLength(1));
    incoming.leave();
    expect((await response).status).toBe(499);
    expect(onError).toHaveBeenCalledWith(
      proxyError("http_request_error", 499),
      expect.any(Request),
    );
    expect(incoming.listeners.size).toBe(0);
  });
});
