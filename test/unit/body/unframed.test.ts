import { describe, expect, test, vi } from "vitest";
import { createProxy } from "../../../runtimes/fetch.ts";
import { BytesBody } from "../../../src/body/bytes.ts";
import type { BodySource } from "../../../src/body/source.ts";
import { StreamBody } from "../../../src/body/stream.ts";
import { UnframedBody } from "../../../src/body/unframed.ts";
import { ProxyError } from "../../../src/error.ts";
import { bytes, streamOf } from "../../helpers/fakes.ts";

const MEBIBYTE = 1_048_576;

function nextTurn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

/** Creates a stream that delivers a chunk of ten bytes at each pull, and ends after `last` chunks. */
function counting(last: number, before: () => unknown = () => {}): ReadableStream<Uint8Array> {
  let count = 0;
  return new ReadableStream({
    async pull(controller) {
      if (count === last) return controller.close();
      await before();
      controller.enqueue(bytes(String(count++).padStart(10, "0")));
    },
  });
}

async function read(body: BodySource | null): Promise<string> {
  return new Response(body?.stream()).text();
}

describe("measure() returns the bytes of a body that is available immediately:", () => {
  const form = new FormData();
  form.append("name", "value");
  form.append("file", new Blob(["x".repeat(100_000)]), "file.txt");

  test.each<[string, BodyInit, number | undefined]>([
    ["a string", "né", 3],
    ["bytes", new Uint8Array(10), 10],
    ["an ArrayBuffer", new ArrayBuffer(10), 10],
    ["URLSearchParams", new URLSearchParams({ a: "b c" }), 5],
    ["a Blob of one part", new Blob(["abc"]), 3],
    ["a Blob of many parts", new Blob(Array.from({ length: 20 }, () => "abc")), 60],
    ["a form", form, undefined],
    ["many megabytes", new Uint8Array(5 * MEBIBYTE), 5 * MEBIBYTE],
  ])("%s", async (_, body, length) => {
    const request = new Request("http://a.test/", { method: "POST", body });
    const expected = await request.clone().arrayBuffer();
    const measured = await new UnframedBody(request.body as ReadableStream<Uint8Array>).measure();
    expect(measured).toBeInstanceOf(BytesBody);
    expect(Buffer.from(measured?.whole() as Uint8Array).equals(Buffer.from(expected))).toBe(true);
    if (length !== undefined) expect(expected.byteLength).toBe(length);
  });

  test("a Blob of several parts while each turn of the event loop takes 5 ms", async () => {
    const stream = new Blob(["abc", "def", "ghi"]).stream();
    const measuring = new UnframedBody(stream).measure();
    let isOver = false;
    const over = measuring.finally(() => (isOver = true));
    while (!isOver) {
      const until = performance.now() + 5;
      while (performance.now() < until);
      await nextTurn();
    }
    expect((await over)?.whole()).toEqual(bytes("abcdefghi"));
  });

  test("one chunk, without a copy", async () => {
    const chunk = bytes("abc");
    const stream = new ReadableStream<Uint8Array>({
      start(controller) {
        controller.enqueue(chunk);
        controller.close();
      },
    });
    expect((await new UnframedBody(stream).measure())?.whole()).toBe(chunk);
  });

  test("a body with empty chunks around its bytes", async () => {
    const measured = await new UnframedBody(streamOf(["", "a", ""])).measure();
    expect(measured?.whole()).toEqual(bytes("a"));
  });
});

test.each([[[]], [["", ""]]])(
  "measure() returns null for an empty body, with the chunks %j",
  async (chunks) => {
    expect(await new UnframedBody(streamOf(chunks)).measure()).toBeNull();
  },
);

describe("measure() returns a stream of the whole body:", () => {
  test("a body that delivers no chunk for a few turns of the event loop", async () => {
    const gate = Promise.withResolvers<void>();
    let pulls = 0;
    const stream = counting(3, () => pulls++ === 2 && gate.promise);
    const body = await new UnframedBody(stream).measure();
    expect(body).toBeInstanceOf(StreamBody);
    gate.resolve();
    expect(await read(body)).toBe("000000000000000000010000000002");
  });

  test("an endless body with a chunk in each turn of the event loop", async () => {
    const body = await new UnframedBody(counting(Infinity, nextTurn)).measure();
    expect(body).toBeInstanceOf(StreamBody);
    body?.cancel();
  });

  test("a body of more than 1 MiB in several chunks", async () => {
    let made = 0;
    const half = "x".repeat(MEBIBYTE / 2);
    const stream = new ReadableStream<Uint8Array>(
      {
        pull(controller) {
          if (made++ === 10) return controller.close();
          controller.enqueue(bytes(half));
        },
      },
      { highWaterMark: 0 },
    );
    const body = await new UnframedBody(stream).measure();
    expect(body).toBeInstanceOf(StreamBody);
    // Only the buffered bytes have been requested from the source.
    expect(made).toBe(3);
    expect((await read(body)).length).toBe(5 * MEBIBYTE);
  });

  test("a body of many small chunks", async () => {
    const body = await new UnframedBody(counting(5000)).measure();
    expect(body).toBeInstanceOf(StreamBody);
    const text = await read(body);
    expect(text).toBe(Array.from({ length: 5000 }, (_, i) => String(i).padStart(10, "0")).join(""));
  });

  test("the stream fails when the body fails, and cancelling it cancels the body", async () => {
    const gate = Promise.withResolvers<void>();
    const failing = counting(3, () => gate.promise);
    const pieces = [bytes("first")];
    const source = failing.getReader();
    const cancelled = vi.fn();
    const joined = (): ReadableStream<Uint8Array> =>
      new ReadableStream({
        async pull(controller) {
          const piece = pieces.shift();
          if (piece) return controller.enqueue(piece);
          await source.read();
          throw new Error("broken");
        },
        cancel: cancelled,
      });
    const body = await new UnframedBody(joined()).measure();
    gate.resolve();
    await expect(read(body)).rejects.toMatchObject({ code: "http_request_error" });

    pieces.push(bytes("first"));
    const late = Promise.withResolvers<void>();
    const silent = new ReadableStream<Uint8Array>({
      start: (controller) => controller.enqueue(bytes("first")),
      pull: () => late.promise,
      cancel: cancelled,
    });
    const other = await new UnframedBody(silent).measure();
    other?.cancel("enough");
    expect(cancelled).toHaveBeenCalledExactlyOnceWith("enough");
    late.resolve();
  });
});

describe("a body that fails", () => {
  test("is reported as a client error", async () => {
    const stream = new ReadableStream<Uint8Array>({
      pull: (controller) => controller.error(new Error("broken")),
    });
    const measuring = new UnframedBody(stream).measure();
    await expect(measuring).rejects.toBeInstanceOf(ProxyError);
    await expect(measuring).rejects.toMatchObject({ code: "http_request_error", status: 400 });
  });

  test("is cancelled if its chunks are not bytes, and the error names the fix", async () => {
    const cancel = vi.fn();
    const stream = new ReadableStream<unknown>({
      start: (controller) => controller.enqueue("text"),
      cancel,
    }) as ReadableStream<Uint8Array>;
    await expect(new UnframedBody(stream).measure()).rejects.toThrow(
      /not bytes; use Uint8Array, or .*TextEncoderStream/,
    );
    expect(cancel).toHaveBeenCalledOnce();
  });
});

test("`measure()` leaves no timer, whether it returns bytes or a stream", async () => {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
  try {
    await new UnframedBody(streamOf(["a", "b"])).measure();
    await new UnframedBody(counting(5000)).measure();
    const silent = new ReadableStream<Uint8Array>({
      start: (controller) => controller.enqueue(bytes("first")),
    });
    const measuring = new UnframedBody(silent).measure();
    await vi.advanceTimersByTimeAsync(10);
    expect(await measuring).toBeInstanceOf(StreamBody);
    expect(vi.getTimerCount()).toBe(0);
  } finally {
    vi.useRealTimers();
  }
});

describe("a body of unknown length that is sent through a proxy", () => {
  const inits: RequestInit[] = [];
  const proxy = createProxy({
    target: "http://up.test",
    fetch(_url, init) {
      inits.push(init);
      return new Response();
    },
    retry: { attempts: 1, methods: ["POST"], statusCodes: [503] },
    bodyLimit: 10,
  });

  test("reaches `fetch` as bytes if it is the body of a constructed Request", async () => {
    await proxy.fetch(new Request("http://a.test/", { method: "POST", body: "hello" }));
    expect(inits.pop()?.body).toEqual(bytes("hello"));
  });

  test("gets 413 before anything is sent if it is over bodyLimit", async () => {
    const request = new Request("http://a.test/", { method: "POST", body: "hello hello" });
    expect((await proxy.fetch(request)).status).toBe(413);
    expect(inits).toEqual([]);
  });

  test("gets 504 with an error about the body, not about the upstream, if no chunk arrives within `timeout`", async () => {
    let reported: ProxyError | undefined;
    const impatient = createProxy({
      target: "http://up.test",
      timeout: 20,
      onError: (error) => void (reported = error),
    });
    const init = { method: "POST", body: new ReadableStream(), duplex: "half" } as RequestInit;
    expect((await impatient.fetch(new Request("http://a.test/", init))).status).toBe(504);
    expect(reported?.message).toMatch(/the request body stopped after 0 bytes/);
  });

  test("is cancelled, and nothing is sent, if the client disconnects before the body arrives", async () => {
    const cancelled = Promise.withResolvers<unknown>();
    const controller = new AbortController();
    const { signal } = controller;
    const body = new ReadableStream({ cancel: (reason) => cancelled.resolve(reason) });
    const init = { method: "POST", body, duplex: "half", signal } as RequestInit;
    const answer = proxy.fetch(new Request("http://a.test/", init));
    controller.abort();
    expect((await answer).status).toBe(499);
    await cancelled.promise;
    expect(inits).toEqual([]);
  });

  test("makes the call reject with a TypeError, and nothing is sent, if it is a stream of strings", async () => {
    const body = new Blob(["text"]).stream().pipeThrough(new TextDecoderStream());
    const init = { method: "POST", body, duplex: "half" } as unknown as RequestInit;
    const response = proxy.fetch(new Request("http://a.test/", init));
    await expect(response).rejects.toThrow(TypeError);
    expect(inits).toEqual([]);
  });
});
