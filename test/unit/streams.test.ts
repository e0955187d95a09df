import { afterEach, describe, expect, test, vi } from "vitest";
import { ResponseBody } from "../../src/body/responsebody.ts";
import { ProxyError } from "../../src/error.ts";
import { outcomeOf } from "../../src/exchange/repeat.ts";
import { awaitFirstByte, type FirstByteOptions, sendHeartbeats } from "../../src/streams.ts";
import type { UpstreamResponse } from "../../src/transport/message.ts";
import type { Scope } from "../../src/transport/scope.ts";
import { bytes, fakeRequest, fakeResponse, fakeScope, type Given } from "../helpers/fakes.ts";

const EVENTS = ["Content-Type", "text/event-stream; charset=utf-8"];
const OTHER = ["Content-Type", "application/x-ndjson"];
const LIMIT = 1000;

afterEach(() => void vi.useRealTimers());

interface Held {
  /** The response; undefined until it is passed on. */
  response: UpstreamResponse | undefined;
  error: unknown;
  readonly over: Promise<void>;
  readonly body: ResponseBody;
  readonly scope: Scope;
  readonly cancelled: unknown[];
  push(text: string): Promise<void>;
}

/** Passes a response through `awaitFirstByte`. The test writes the chunks of its body. */
function hold(
  headers: readonly string[] = EVENTS,
  over: Given<UpstreamResponse> = {},
  options: Partial<FirstByteOptions> = {},
): Held {
  const scope = fakeScope();
  const cancelled: unknown[] = [];
  const inlet = {
    pause() {},
    resume() {},
    cancel: (reason: unknown) => void cancelled.push(reason),
  };
  const length = headers[headers.indexOf("Content-Length") + 1];
  const body = new ResponseBody(
    scope,
    inlet,
    headers.includes("Content-Length") ? Number(length) : undefined,
  );
  scope.onAbort({ fail: (error) => body.fail(error) });
  const response = fakeResponse({ headers: [...headers], body, ...over });
  const intercept = awaitFirstByte({ firstByteTimeout: LIMIT, ...options });
  const held: Held = {
    response: undefined,
    error: undefined,
    over: intercept(async () => response)(fakeRequest(), scope).then(
      (passed) => void (held.response = passed),
      (thrown: unknown) => void (held.error = thrown),
    ),
    body,
    scope,
    cancelled,
    async push(text) {
      body.push(bytes(text));
      await settle();
    },
  };
  return held;
}

/** Waits until all promises that can settle now have done so. */
async function settle(): Promise<void> {
  for (let turn = 0; turn < 20; turn++) await Promise.resolve();
}

async function textOf({ response }: Held): Promise<string> {
  return new Response(response?.body?.stream()).text();
}

describe("awaitFirstByte", () => {
  test.each([
    ["data: 1\n\n", "data: 2\n\n"],
    ["data: 1\r\n\r", "\ndata: 2\r\n\r\n"],
    [": waiting\n\n: still\n\nevent: x\n\nid: 1\ndata: 1\n\n", ""],
    ["\uFEFFevent: ping\ndata\n\n", ""],
  ])("passes an event stream on when its first event is complete: %j", async (first, rest) => {
    const held = hold();
    const chunks = Array.from(bytes(first));
    for (const [i, byte] of chunks.entries()) {
      await settle();
      expect(held.response, `before byte ${i}`).toBeUndefined();
      held.body.push(new Uint8Array([byte]));
    }
    await held.over;
    const text = textOf(held);
    held.body.push(bytes(rest));
    held.body.end();
    // `text()` drops a byte order mark.
    expect(await text).toBe((first + rest).replace("\uFEFF", ""));
  });

  test("a body that is not an event stream is passed on at its first byte, or unchanged if it has already begun", async () => {
    const held = hold(OTHER);
    await settle();
    expect(held.response).toBeUndefined();
    await held.push("{");
    expect(held.response?.body).not.toBe(held.body);
    held.body.push(bytes("}"));
    held.body.end();
    expect(await textOf(held)).toBe("{}");

    const scope = fakeScope();
    const body = new ResponseBody(scope, { pause() {}, resume() {}, cancel() {} });
    body.push(bytes("{"));
    const intercept = awaitFirstByte({ firstByteTimeout: LIMIT });
    const response = await intercept(async () => fakeResponse({ body }))(fakeRequest(), scope);
    expect(response.body).toBe(body);
  });

  test.each<[why: string, headers: string[], over: Given<UpstreamResponse>]>([
    ["has no body", EVENTS, { body: null }],
    ["is an error", EVENTS, { status: 503 }],
    ["is a redirect", OTHER, { status: 302 }],
    ["has the status 205", OTHER, { status: 205 }],
    ["has an empty body", [...OTHER, "Content-Length", "0"], {}],
    ["is compressed, on Workers", [...EVENTS, "Content-Encoding", "br"], { hints: {} }],
    ["has a length, on Workers", [...OTHER, "Content-Length", "5"], { hints: {} }],
  ])("does not hold a response that %s", async (_, headers, over) => {
    const held = hold(headers, over);
    await held.over;
    expect(held.response).toBeDefined();
    if (held.response?.body) expect(held.response.body).toBe(held.body);
  });

  test("holds a compressed event stream only until its first byte", async () => {
    const held = hold([...EVENTS, "Content-Encoding", "gzip"]);
    await held.push("\u001f");
    expect(held.response).toBeDefined();
  });

  test("an event stream without a complete event within `firstByteTimeout` fails the attempt, and is cancelled", async () => {
    vi.useFakeTimers();
    for (const begin of ["", ": comment\n\n", "data: 1\n"]) {
      const held = hold();
      if (begin !== "") await held.push(begin);
      await vi.advanceTimersByTimeAsync(LIMIT - 10);
      expect(held.error).toBeUndefined();
      await vi.advanceTimersByTimeAsync(20);
      expect(held.error).toMatchObject({ code: "http_response_timeout", status: 504 });
      expect(outcomeOf(held.error)).toBe("abandoned");
      expect([held.body.error, held.scope.error]).toEqual([held.error, undefined]);
    }
    expect(vi.getTimerCount()).toBe(0);
  });

  test("an event stream that begins in time has no further limit", async () => {
    vi.useFakeTimers();
    const held = hold();
    await held.push("data: 1\n\n");
    expect(vi.getTimerCount()).toBe(0);
    const unlimited = hold(EVENTS, {}, { firstByteTimeout: 0 });
    expect(vi.getTimerCount()).toBe(0);
    await vi.advanceTimersByTimeAsync(100 * LIMIT);
    expect([held.body.error, unlimited.error]).toEqual([undefined, undefined]);
  });

  test.each(["", ": comment\n\n", "data: 1\n", "event: x\n\n"])(
    "an event stream that ends after %j fails the attempt",
    async (text) => {
      const held = hold();
      if (text !== "") held.body.push(bytes(text));
      held.body.end();
      await held.over;
      expect(held.error).toMatchObject({ code: "http_response_incomplete", status: 502 });
      expect(outcomeOf(held.error)).toBe("abandoned");
    },
  );

  test("a body that is not an event stream may be empty, or end after one chunk", async () => {
    for (const text of ["", "{}"]) {
      const held = hold(OTHER);
      if (text !== "") held.body.push(bytes(text));
      held.body.end();
      await held.over;
      expect(await textOf(held)).toBe(text);
    }
  });

  test.each([EVENTS, OTHER])(
    "a body with %s: %s that breaks off before its first byte fails the attempt",
    async (...headers) => {
      const held = hold(headers);
      const cause = new ProxyError("connection_terminated");
      held.body.fail(cause);
      await held.over;
      expect(held.error).toMatchObject({ code: "http_response_incomplete", cause });
      expect(outcomeOf(held.error)).toBe("abandoned");
    },
  );

  test("if the exchange is aborted, the attempt fails with the reason of the abort", async () => {
    const held = hold();
    const reason = new ProxyError("http_request_error", { status: 499 });
    held.scope.abort(reason);
    await held.over;
    expect(held.error).toBe(reason);
  });

  test("an event stream is passed on after 64 KiB without an event", async () => {
    const held = hold();
    await held.push(`data: ${"x".repeat(65_000)}`);
    expect(held.response).toBeUndefined();
    await held.push("x".repeat(600));
    held.body.end();
    expect((await textOf(held)).length).toBe(65_606);
  });

  const statusOf: FirstByteOptions["statusOf"] = ({ type, data }) =>
    type === "error" ? 529 : data === "" ? undefined : 200;

  test("the status that `statusOf` returns for the first event becomes the status of the response", async () => {
    const held = hold(EVENTS, {}, { statusOf });
    await held.push("event: ping\ndata:\n\n");
    expect(held.response).toBeUndefined();
    await held.push("event: error\ndata: overloaded\n\n");
    expect(held.response).toMatchObject({ status: 529, statusText: "" });
    held.body.end();
    expect(await textOf(held)).toBe("event: ping\ndata:\n\nevent: error\ndata: overloaded\n\n");
  });

  test("`statusOf` is not called again after it has returned a status", async () => {
    const seen = vi.fn(() => 200);
    const held = hold(EVENTS, {}, { statusOf: seen });
    await held.push("data: 1\n\ndata: 2\n\n");
    await held.push("data: 3\n\n");
    expect(seen.mock.calls).toEqual([[{ type: "message", data: "1" }]]);
    expect(held.response).toMatchObject({ status: 200, statusText: "OK" });
  });

  test("a stream for whose events `statusOf` returns undefined fails when it ends or stalls", async () => {
    vi.useFakeTimers();
    const ended = hold(EVENTS, {}, { statusOf });
    ended.body.push(bytes("data:\n\n"));
    ended.body.end();
    await ended.over;
    expect(ended.error).toMatchObject({ code: "http_response_incomplete" });
    const stalled = hold(EVENTS, {}, { statusOf });
    await stalled.push("data:\n\n");
    await vi.advanceTimersByTimeAsync(LIMIT + 10);
    expect(stalled.error).toMatchObject({ code: "http_response_timeout" });
  });

  test.each([
    [
      "throws",
      () => {
        throw new Error("mine");
      },
      /mine/,
    ],
    ["returns no status", () => 99, /bad option `statusOf`: return a status from 200 to 599/],
    ["returns a promise", async () => 200, /bad option `statusOf`/],
  ])(
    "a `statusOf` that %s fails the request with an exception, and cancels the body",
    async (_, wrong, message) => {
      const held = hold(EVENTS, {}, { statusOf: wrong as never });
      // The transport, which pushes the chunk, must not see the exception.
      await held.push("data: 1\n\n");
      await held.over;
      expect(String(held.error)).toMatch(message);
      expect(held.cancelled).toHaveLength(1);
    },
  );
});

describe("sendHeartbeats", () => {
  test.each<[string, string[], Given<UpstreamResponse>]>([
    ["is no event stream", OTHER, {}],
    ["is an error", EVENTS, { status: 500 }],
    ["has no body", EVENTS, { body: null }],
    ["has a Content-Length", [...EVENTS, "content-length", "9"], {}],
    ["has a content coding", [...EVENTS, "Content-Encoding", "zstd"], {}],
    ["has a digest", [...EVENTS, "Repr-Digest", "sha-256=:x:"], {}],
  ])("does not change a response that %s", async (_, headers, over) => {
    const response = fakeResponse({ headers, body: bytes("data: 1\n\n"), ...over });
    const intercept = sendHeartbeats({ interval: 5 });
    expect(await intercept(async () => response)(fakeRequest(), fakeScope())).toBe(response);
  });
});

test.each([
  [() => awaitFirstByte({} as never), "awaitFirstByte needs `firstByteTimeout`"],
  [() => awaitFirstByte(5 as never), "awaitFirstByte needs `firstByteTimeout`"],
  [() => awaitFirstByte({ firstByteTimeout: -1 }), "bad option `firstByteTimeout`: use whole"],
  [() => awaitFirstByte({ firstByteTimeout: 1, statusOf: 5 } as never), "bad option `statusOf`"],
  [() => awaitFirstByte({ firstByteTimeout: 1, statusof: 5 } as never), "did you mean"],
  [() => sendHeartbeats({} as never), "sendHeartbeats needs `interval`"],
  [() => sendHeartbeats({ interval: 0 }), "bad option `interval`: use whole milliseconds from 1"],
])("%s is refused", (call, message) => {
  expect(call).toThrow(TypeError);
  expect(call).toThrow(message);
});
