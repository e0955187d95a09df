import { describe, expect, test, vi } from "vitest";
import { rfc } from "../../conformance/rfc.ts";
import { StreamBody } from "../../../src/body/stream.ts";
import { UnframedBody } from "../../../src/body/unframed.ts";
import { ProxyError } from "../../../src/error.ts";
import type { ProxyOptions } from "../../../src/options/proxyoptions.ts";
import type { Incoming } from "../../../src/request/incoming.ts";
import {
  type Answer,
  answering,
  bytes,
  fakeResponse,
  FakeTransport,
  type Given,
  run,
  stale,
  streamOf,
  to,
} from "../../helpers/fakes.ts";

const refused = new ProxyError("connection_refused");

describe("a further attempt", () => {
  test.each([stale, refused])("is made after %s, on a new connection", async (error) => {
    const transport = answering(error);
    expect((await run({ path: "/a" }, { transport })).status).toBe(200);
    expect(transport.hops).toMatchObject([{ path: "/a" }, { path: "/a", newConnection: true }]);
    expect(transport.hops[0]?.newConnection).toBeFalsy();
  });

  test.each(["GET", "HEAD", "OPTIONS", "PUT", "DELETE", "QUERY"])(
    "is made for the method %s",
    async (method) => {
      const transport = answering(stale);
      expect((await run({ method }, { transport })).status).toBe(200);
      expect(transport.hops).toHaveLength(2);
    },
  );

  test.each(["POST", "PATCH", "LOCK", "get"])("is not made for the method %s", async (method) => {
    const transport = answering(stale);
    const response = await run(
      { method, request: () => new Request("http://proxy.test/") },
      { transport },
    );
    expect(response.status).toBe(502);
    expect(transport.hops).toHaveLength(1);
  });

  test.each<[string, Error]>([
    ["a truncated response", new ProxyError("http_response_incomplete")],
    ["a connection that broke at its first request", new ProxyError("connection_terminated")],
    ["a deadline", new ProxyError("http_response_timeout")],
    ["an unknown host name", new ProxyError("dns_error")],
    ["an internal error", new TypeError("oops")],
  ])("is not made after %s", async (_, error) => {
    const transport = answering(error);
    await run({}, { options: { transport } });
    expect(transport.hops).toHaveLength(1);
  });

  test("is not made after the exchange was aborted", async () => {
    const transport = new FakeTransport(async (_, scope) => {
      scope.abort(new ProxyError("http_request_error", { status: 499 }));
      throw stale;
    });
    expect((await run({}, { transport })).status).toBe(499);
    expect(transport.hops).toHaveLength(1);
  });

  test("is made once by default: if it fails as well, no third attempt follows", async () => {
    rfc("9110-9.2.2-twice");
    const transport = answering(stale, stale);
    expect((await run({}, { transport })).status).toBe(502);
    expect(transport.hops).toHaveLength(2);
  });

  test("is made at most as often as `attempts` says", async () => {
    const transport = answering(stale, stale, stale, stale);
    const response = await run({}, { transport, options: { retry: { attempts: 2 } } });
    expect(response.status).toBe(502);
    expect(transport.hops).toHaveLength(3);
  });

  test.each<ProxyOptions>([{ retry: false }, { retry: { attempts: 0 } }])(
    "is not made with the options %j",
    async (options) => {
      const transport = answering(stale);
      expect((await run({}, { transport, options })).status).toBe(502);
      expect(transport.hops).toHaveLength(1);
    },
  );

  test("is made only for the methods that `methods` names", async () => {
    const options: ProxyOptions = { retry: { methods: ["POST"] } };
    expect((await run({ method: "POST" }, { transport: answering(stale), options })).status).toBe(
      200,
    );
    expect((await run({}, { transport: answering(stale), options })).status).toBe(502);
  });

  test("is made after a response whose status `statusCodes` names", async () => {
    const cancelled = vi.fn();
    const busy = (): Answer => ({ status: 503, body: streamOf(["busy"], cancelled) });
    const options: ProxyOptions = { retry: { attempts: 2, statusCodes: [503] } };
    const transport = answering(busy(), busy(), { status: 200 });
    expect((await run({}, { transport, options })).status).toBe(200);
    expect(transport.hops).toHaveLength(3);
    expect(cancelled).toHaveBeenCalledTimes(2);

    const last = await run({}, { transport: answering(busy(), busy(), busy()), options });
    expect(last.status).toBe(503);
    expect(await last.text()).toBe("busy");
    expect((await run({ method: "POST" }, { transport: answering(busy()), options })).status).toBe(
      503,
    );
  });

  test("is not made after the client has disconnected, even if `statusCodes` has the status of the response", async () => {
    const cancelled = vi.fn();
    const transport = new FakeTransport((_, scope) => {
      scope.handleEvent();
      return fakeResponse({ status: 503, body: streamOf(["busy"], cancelled) });
    });
    const options: ProxyOptions = { retry: { attempts: 2, statusCodes: [503] } };
    await run({}, { transport, options });
    expect(transport.hops).toHaveLength(1);
  });

  test("if it fails, the client gets its error, and not the earlier response that was discarded", async () => {
    const options: ProxyOptions = { retry: { attempts: 1, statusCodes: [503] } };
    const transport = answering({ status: 503 }, refused);
    const response = await run({}, { transport, options });
    expect(response.status).toBe(502);
    expect(response.headers.get("proxy-status")).toBe("fetchway; error=connection_refused");
  });
});

describe("a request body", () => {
  const put = (body: Given<Incoming>["body"] = null): Given<Incoming> => ({
    method: "PUT",
    headers: ["Host", "a", "Transfer-Encoding", "chunked"],
    body,
  });

  test("a body of bytes is sent again", async () => {
    const transport = answering(stale);
    await run(put(bytes("abc")), { transport });
    expect(transport.bodies).toEqual(["abc", "abc"]);
  });

  test("a body of bytes is sent again even if it is longer than replayLimit, because no copy is needed", async () => {
    const transport = answering(stale);
    const options: ProxyOptions = { retry: {}, replayLimit: 3 };
    expect((await run(put(bytes("abcdef")), { transport, options })).status).toBe(200);
    expect(transport.bodies).toEqual(["abcdef", "abcdef"]);
  });

  test("by default, a stream is neither kept nor sent again", async () => {
    const transport = answering(stale);
    const body = streamOf(["abc"]);
    expect((await run(put(body), { transport })).status).toBe(502);
    expect(transport.hops).toHaveLength(1);
    expect(transport.hops[0]?.body).toBeInstanceOf(StreamBody);
    expect(transport.hops[0]?.body?.stream()).toBe(body);
  });

  test("with `retry`, a stream is kept up to replayLimit, and sent again", async () => {
    const options: ProxyOptions = { retry: {}, replayLimit: 6 };
    const kept = answering(stale);
    expect((await run(put(streamOf(["abc", "def"])), { transport: kept, options })).status).toBe(
      200,
    );
    expect(kept.bodies).toEqual(["abcdef", "abcdef"]);
    const longer = answering(stale);
    expect((await run(put(streamOf(["abc", "defg"])), { transport: longer, options })).status).toBe(
      502,
    );
    expect(longer.bodies).toEqual(["abcdefg"]);
  });

  test("the body of a request whose method is not retried is not kept", async () => {
    const transport = answering();
    const body = streamOf(["abc"]);
    await run({ ...put(body), method: "POST" }, { transport, options: { retry: {} } });
    expect(transport.hops[0]?.body).toBeInstanceOf(StreamBody);
    expect(transport.hops[0]?.body?.stream()).toBe(body);
  });

  test("a body whose announced length is over replayLimit is sent only once", async () => {
    const headers = ["Host", "a", "Content-Length", "7"];
    const options: ProxyOptions = { retry: {}, replayLimit: 6 };
    const transport = answering(stale);
    const body = streamOf(["abcd", "efg"]);
    expect((await run({ ...put(body), headers }, { transport, options })).status).toBe(502);
    expect(transport.bodies).toEqual(["abcdefg"]);
    expect(transport.hops[0]?.body?.replay).toBeUndefined();
  });

  test("a body of unknown length is measured before it is sent, also with bodyLimit or followRedirects", async () => {
    for (const options of [{}, { bodyLimit: 5 }, { followRedirects: true }]) {
      const transport = answering();
      await run({ method: "DELETE", body: new UnframedBody(streamOf([])) }, { transport, options });
      await run({ method: "PUT", body: new UnframedBody(streamOf(["a"])) }, { transport, options });
      expect(transport.bodies).toEqual([null, "a"]);
      expect(transport.hops.map(({ body }) => body?.replay)).toEqual([undefined, bytes("a")]);
    }
  });

  test("a body of unknown length is sent again if all of it was available", async () => {
    const transport = answering(stale);
    const body = new UnframedBody(streamOf(["abc", "def"]));
    expect((await run({ method: "PUT", body }, { transport })).status).toBe(200);
    expect(transport.bodies).toEqual(["abcdef", "abcdef"]);
  });

  test("a stream that a hook has set is sent again if all of it was available", async () => {
    const transport = answering(stale);
    const options: ProxyOptions = { onRequest: (draft) => void (draft.body = streamOf(["new"])) };
    await run({ method: "PUT", body: bytes("old") }, { transport, options });
    expect(transport.bodies).toEqual(["new", "new"]);
  });

  test("a body that was not sent is cancelled after the last attempt, but not if the request was refused before any attempt", async () => {
    const cancelled = vi.fn();
    const refusing = new FakeTransport((_, scope) => {
      scope.end();
      throw refused;
    });
    const headers = ["Host", "a", "Content-Length", "3"];
    const post = (): Given<Incoming> => ({
      method: "POST",
      headers,
      body: streamOf(["abc"], cancelled),
    });
    expect((await run(post(), { transport: refusing })).status).toBe(502);
    expect(cancelled).toHaveBeenCalledOnce();
    expect((await run(post(), { options: { bodyLimit: 1 } })).status).toBe(413);
    expect(cancelled).toHaveBeenCalledOnce();
  });

  test("with bodyLimit and followRedirects, a body within the limit is sent again, and a longer body gets 413", async () => {
    const options: ProxyOptions = { followRedirects: true, bodyLimit: 5 };
    const transport = answering(to("/next", 307));
    expect((await run(put(streamOf(["abc", "de"])), { transport, options })).status).toBe(200);
    expect(transport.bodies).toEqual(["abcde", "abcde"]);
    const over = await run(put(streamOf(["abc", "def"])), { transport: answering(), options });
    expect(over.status).toBe(413);
  });
});
