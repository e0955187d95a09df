import { describe, expect, test, vi } from "vitest";
import { Scope } from "../../../src/transport/scope.ts";
import { ProxyError } from "../../../src/error.ts";
import type { FetchLike } from "../../../src/fetch/fetchtransport.ts";
import {
  bytes,
  errorOf,
  FakeClient,
  fakeScope,
  proxyError,
  run,
  sendBy as send,
  streamed,
  streamOf,
  textOf,
} from "../../helpers/fakes.ts";
import { within } from "../../helpers/wait.ts";

/** A `fetch` that does not settle until it is aborted. */
const never: FetchLike = (_, { signal }) =>
  new Promise((_resolve, reject) => {
    signal?.addEventListener("abort", () => reject(signal.reason as Error));
  });

describe("the scope of an exchange over `fetch`", () => {
  test.each([
    ["that has no body", () => new Response(null), true],
    ["whose body has been read", () => new Response("abc"), false],
  ])("ends with a response %s", async (_, answer, atOnce) => {
    const client = new FakeClient();
    const reply = await send(answer, {}, new Scope(client, 0, 0));
    expect(client.listeners.size).toBe(atOnce ? 0 : 1);
    await textOf(reply);
    expect(client.listeners.size).toBe(0);
  });

  test.each([
    ["without idleTimeout", "text/plain", 0, undefined, true],
    ["with idleTimeout", "text/plain", 1_000, undefined, false],
    [
      "with idleTimeout, which event streams do not have",
      "text/event-stream",
      1_000,
      undefined,
      true,
    ],
    ["with a signal", "text/event-stream", 0, AbortSignal.any([]), false],
  ])(
    "%s, ends when a %s body is passed through, or else when it has been read",
    async (_, type, idleTimeout, signal, through) => {
      const client = new FakeClient();
      const answer = new Response("abc", { headers: { "content-type": type } });
      const { body } = answer;
      const options = { handsBodiesThrough: true };
      const reply = await send(
        () => answer,
        {},
        new Scope(client, 0, idleTimeout, signal),
        options,
      );
      expect(reply.body?.stream() === body).toBe(through);
      expect(client.listeners.size).toBe(through ? 0 : 1);
      expect(await textOf(reply)).toBe("abc");
      expect(client.listeners.size).toBe(0);
    },
  );

  test("each chunk of an upload restarts the time limit", async () => {
    const scope = fakeScope();
    const touch = vi.spyOn(scope, "touch");
    let touched = 0;
    const fetch: FetchLike = async (url, init) => {
      const text = await new Request(url, init).text();
      touched = touch.mock.calls.length;
      return new Response(text);
    };
    const hop = { method: "POST", body: streamOf(["a", "b", "c"]) };
    expect(await textOf(await send(fetch, hop, scope))).toBe("abc");
    expect(touched).toBeGreaterThanOrEqual(3);
  });

  test("if `fetch` cancels an upload, the source of the upload is cancelled", async () => {
    const cancelled = vi.fn();
    const fetch: FetchLike = async (_, { body }) => {
      await (body as ReadableStream).cancel("enough");
      return new Response();
    };
    await send(fetch, { method: "POST", body: streamOf(["a", "b"], cancelled) });
    expect(cancelled).toHaveBeenCalledExactlyOnceWith("enough");
  });

  test("an upload that an early redirect ends does not abort the request that follows the redirect", async () => {
    let markCancelled = (): void => {};
    const cancelled = new Promise<void>((resolve) => (markCancelled = resolve));
    const body = new ReadableStream<Uint8Array>({
      start: (controller) => controller.enqueue(bytes("a")),
      cancel: () => markCancelled(),
    });
    const fetch: FetchLike = async (_, init) => {
      if (init.method === "POST") {
        const reader = (init.body as ReadableStream).getReader();
        await reader.read();
        reader.read().catch(() => {});
        return new Response(null, { status: 303, headers: { location: "/next" } });
      }
      await cancelled;
      await new Promise((resolve) => setImmediate(resolve));
      init.signal?.throwIfAborted();
      return new Response("here");
    };
    const options = { followRedirects: true, fetch };
    const response = await within(run({ method: "POST", body }, { options }), "the response");
    expect([response.status, await response.text()]).toEqual([200, "here"]);
  });

  test("an interrupted upload is reported as the client's error, whatever error fetch throws", async () => {
    let broken = false;
    const body = new ReadableStream({
      pull() {
        throw new Error("broken off");
      },
    });
    const fetch: FetchLike = async (url, init) => {
      init.signal?.addEventListener("abort", () => (broken = true));
      await new Request(url, init).text().catch(() => {});
      throw new TypeError("Network connection lost.");
    };
    const client = new FakeClient();
    const sent = send(fetch, { method: "POST", body }, new Scope(client, 0, 0));
    await expect(sent).rejects.toEqual(proxyError("http_request_error", 400));
    expect(broken).toBe(true);
    expect(client.listeners.size).toBe(0);
  });

  test("ends when the response body is cancelled, and the request is aborted", async () => {
    const client = new FakeClient();
    let signal: AbortSignal | null | undefined;
    const cancelled = vi.fn();
    const fetch: FetchLike = (_, init) => {
      signal = init.signal;
      return new Response(streamOf(["a", "b"], cancelled));
    };
    const reply = await send(fetch, {}, new Scope(client, 0, 0));
    await streamed(reply).cancel("enough");
    expect(signal?.aborted).toBe(true);
    expect(cancelled).toHaveBeenCalledWith("enough");
    expect(client.listeners.size).toBe(0);
  });

  test("a body that is cancelled while a chunk is awaited is not reported as a failure", async () => {
    const scope = fakeScope();
    const failed = vi.spyOn(scope, "failed");
    const reader = streamed(
      await send(() => new Response(new ReadableStream()), {}, scope),
    ).getReader();
    const read = reader.read();
    await reader.cancel("enough");
    expect(await read).toMatchObject({ done: true });
    await new Promise((resolve) => setImmediate(resolve));
    expect(failed).not.toHaveBeenCalled();
  });

  test("aborts the request if the client disconnects before the response headers", async () => {
    const client = new FakeClient();
    const sent = send(never, {}, new Scope(client, 0, 0));
    client.leave();
    await expect(sent).rejects.toEqual(proxyError("http_request_error", 499));
  });

  test("a scope that was aborted before the request is sent prevents sending", async () => {
    const client = new FakeClient();
    const fetch = vi.fn<FetchLike>(() => new Response());
    const scope = new Scope(client, 0, 0);
    client.leave();
    const sent = send(fetch, {}, scope);
    await expect(sent).rejects.toEqual(proxyError("http_request_error", 499));
    expect(fetch).not.toHaveBeenCalled();
  });

  test("aborting the scope after the response headers fails the body with the reason of the abort", async () => {
    const scope = fakeScope();
    const fetch: FetchLike = (_, { signal }) =>
      new Response(
        new ReadableStream({
          start: (controller) =>
            signal?.addEventListener("abort", () => controller.error(signal.reason)),
        }),
      );
    const reader = streamed(await send(fetch, {}, scope)).getReader();
    const read = reader.read();
    scope.abort(new ProxyError("connection_read_timeout"));
    await expect(read).rejects.toEqual(proxyError("connection_read_timeout", 504));
  });

  test("after its timeout, a scope does not wait for a `fetch` that ignores its signal, and cancels the late response", async () => {
    const cancelled = vi.fn();
    let answer: ((late: Response) => void) | undefined;
    const deaf: FetchLike = () => new Promise((resolve) => (answer = resolve));
    const sent = send(deaf, {}, new Scope(new FakeClient(), 10, 0));
    await expect(within(sent, "the timeout")).rejects.toEqual(
      proxyError("http_response_timeout", 504),
    );
    answer?.(new Response(streamOf(["a"], cancelled)));
    await vi.waitFor(() => expect(cancelled).toHaveBeenCalledOnce());
  });
});

describe("errors of `fetch`", () => {
  test.each([
    [{ code: "ECONNREFUSED" }, "connection_refused", 502],
    [{ code: "ConnectionRefused" }, "connection_refused", 502],
    [{ code: "ENOTFOUND" }, "dns_error", 502],
    [{ code: "EAI_AGAIN" }, "dns_error", 502],
    [{ code: "ECONNRESET" }, "connection_terminated", 502],
    [undefined, "connection_terminated", 502],
  ] as const)("with the cause %j become %s", async (cause, code, status) => {
    const failed = new TypeError("fetch failed", { cause });
    const scope = fakeScope();
    const error = await errorOf(() => send(() => Promise.reject(failed), {}, scope));
    expect(error).toEqual(proxyError(code, status));
    expect((error as ProxyError).cause).toBe(failed);
  });

  test("an error that is not a network error is reported as an error of the fetch function", async () => {
    const sent = send(() => Promise.reject(new RangeError("oops")));
    await expect(sent).rejects.toEqual(proxyError("proxy_internal_error", 500));
  });

  test("after an error, no listener is left at the client", async () => {
    const client = new FakeClient();
    await errorOf(() =>
      send(() => Promise.reject(new TypeError("x")), {}, new Scope(client, 0, 0)),
    );
    expect(client.listeners.size).toBe(0);
  });
});
