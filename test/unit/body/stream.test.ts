import { describe, expect, test, vi } from "vitest";
import { StreamBody } from "../../../src/body/stream.ts";
import { bytes, streamOf } from "../../helpers/fakes.ts";
import { FakeSink } from "../../helpers/sink.ts";

const turn = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 5));

/** Creates a stream of bytes that the test fills through its controller. */
function byHand(type?: "bytes"): {
  stream: ReadableStream<Uint8Array>;
  controller: ReadableStreamDefaultController<Uint8Array>;
  cancelled: ReturnType<typeof vi.fn>;
} {
  const cancelled = vi.fn();
  let controller!: ReadableStreamDefaultController<Uint8Array>;
  const stream = new ReadableStream<Uint8Array>({
    type,
    start: (given: typeof controller) => void (controller = given),
    cancel: cancelled,
  } as UnderlyingDefaultSource<Uint8Array>);
  return { stream, controller, cancelled };
}

describe("StreamBody", () => {
  test("is never available as bytes, and its stream is the given stream", () => {
    const stream = streamOf(["abc"]);
    const body = new StreamBody(stream, 3);
    expect(body.whole()).toBeUndefined();
    expect(body.length).toBe(3);
    expect(body.stream()).toBe(stream);
    expect(new StreamBody(streamOf([])).length).toBeUndefined();
  });

  test.each([undefined, "bytes"] as const)(
    "pipes each chunk and the end of a stream with the type %s",
    async (type) => {
      const { stream, controller } = byHand(type);
      const sink = new FakeSink();
      const piped = new StreamBody(stream).pipeTo(sink);
      controller.enqueue(bytes("ab"));
      await vi.waitFor(() => expect(sink.log).toContain("ab"));
      controller.enqueue(bytes("c"));
      controller.close();
      await piped;
      expect(sink.log.filter((entry) => entry !== "flush")).toEqual(["ab", "c", "end"]);
    },
  );

  test("flushes the sink only if no chunk has arrived", async () => {
    const sink = new FakeSink();
    await new StreamBody(streamOf(["a", "b"])).pipeTo(sink);
    expect(sink.log).toEqual(["a", "b", "end"]);

    const { stream, controller } = byHand();
    const late = new FakeSink();
    const piped = new StreamBody(stream).pipeTo(late);
    await vi.waitFor(() => expect(late.log).toEqual(["flush"]));
    controller.enqueue(bytes("a"));
    controller.close();
    await piped;
    expect(late.log).toEqual(["flush", "a", "end"]);
  });

  test("waits until the sink drains before it reads the next chunk", async () => {
    const pull = vi.fn((controller: ReadableStreamDefaultController<Uint8Array>) =>
      controller.enqueue(bytes("x")),
    );
    const sink = new FakeSink();
    sink.hasRoom = false;
    const body = new StreamBody(new ReadableStream({ pull }, { highWaterMark: 0 }));
    const piped = body.pipeTo(sink);
    await turn();
    expect(sink.log).toEqual(["x"]);
    expect(pull).toHaveBeenCalledOnce();
    body.cancel();
    sink.drain();
    await piped;
    expect(sink.log).toEqual(["x"]);
  });

  test("a failing stream fails the sink with its reason", async () => {
    const { stream, controller } = byHand();
    const sink = new FakeSink();
    const piped = new StreamBody(stream).pipeTo(sink);
    controller.enqueue(bytes("half"));
    await vi.waitFor(() => expect(sink.log).toContain("half"));
    const reason = new Error("broken");
    controller.error(reason);
    await piped;
    expect(sink.log.at(-1)).toBe("fail broken");
    expect(sink.reason).toBe(reason);
  });

  test("a stream locked by another reader fails the sink and leaves no timer", async () => {
    vi.useFakeTimers();
    try {
      const stream = streamOf(["abc"]);
      stream.getReader();
      const sink = new FakeSink();
      await new StreamBody(stream).pipeTo(sink);
      expect(sink.log).toEqual([expect.stringMatching(/^fail .*lock/i)]);
      expect(vi.getTimerCount()).toBe(0);
    } finally {
      vi.useRealTimers();
    }
  });

  test("with `flush`, `stream()` begins with an empty chunk if no chunk has arrived", async () => {
    const { stream, controller } = byHand();
    const reader = new StreamBody(stream).stream({ flush: true }).getReader();
    const first = reader.read();
    const timeout = new Promise((resolve) => setTimeout(resolve, 1000, "no chunk"));
    expect(await Promise.race([first, timeout])).toMatchObject({ value: new Uint8Array() });
    controller.enqueue(bytes("abc"));
    expect((await reader.read()).value).toEqual(bytes("abc"));
  });

  test("`stream()` returns a separate stream if `onFail` is set", async () => {
    const { stream, controller } = byHand();
    const onFail = vi.fn();
    const given = new StreamBody(stream).stream({ onFail });
    expect(given).not.toBe(stream);
    controller.error(new Error("broken"));
    await expect(new Response(given).text()).rejects.toThrow("broken");
    expect(onFail).toHaveBeenCalledOnce();
  });
});

describe("a cancelled body", () => {
  test("cancels its stream if it was not read yet", () => {
    const { stream, cancelled } = byHand();
    new StreamBody(stream).cancel("enough");
    expect(cancelled).toHaveBeenCalledExactlyOnceWith("enough");
  });

  test.each([undefined, "bytes"] as const)(
    "writes no further chunk and does not end the sink (type of the stream: %s)",
    async (type) => {
      const { stream, controller, cancelled } = byHand(type);
      const sink = new FakeSink();
      const body = new StreamBody(stream);
      const piped = body.pipeTo(sink);
      controller.enqueue(bytes("ab"));
      await vi.waitFor(() => expect(sink.log).toContain("ab"));
      const before = sink.log.length;
      controller.enqueue(bytes("c"));
      body.cancel("enough");
      await vi.waitFor(() => expect(cancelled).toHaveBeenCalledExactlyOnceWith("enough"));
      await piped;
      expect(sink.log).toHaveLength(before);
    },
  );

  test("a stream that rejects its cancellation causes no unhandled rejection", async () => {
    const stream = new ReadableStream<Uint8Array>({
      cancel: () => Promise.reject(new Error("no cancel")),
    });
    new StreamBody(stream).cancel();
    await turn();
    // An unhandled rejection makes Vitest fail this file.
    expect(stream.locked).toBe(false);
  });
});

describe("sending a body again", () => {
  test("a body can be sent again if it arrived in one chunk of its announced length", async () => {
    const body = new StreamBody(streamOf(["abc"]), 3);
    const sink = new FakeSink();
    await body.pipeTo(sink);
    expect(body.replay).toEqual(bytes("abc"));
    // The sink owns its chunk and may overwrite it. The copy for another attempt must not change.
    sink.chunks[0]?.fill(0);
    expect(body.replay).toEqual(bytes("abc"));
  });

  test.each([
    [["ab", "c"], 3],
    [["abc"], undefined],
    [["abc"], 4],
  ])("a body with the chunks %j and the length %s cannot be sent again", async (pieces, length) => {
    const body = new StreamBody(streamOf(pieces), length);
    await body.pipeTo(new FakeSink());
    expect(body.replay).toBeUndefined();
  });
});

test("the memory of a chunk is used for the next read of a byte stream once the sink has released it", async () => {
  const pieces = ["abc", "def", "ghi"];
  const stream = new ReadableStream<Uint8Array>({
    type: "bytes",
    pull(controller: ReadableByteStreamController) {
      const view = controller.byobRequest?.view as Uint8Array;
      const piece = pieces.shift();
      if (piece === undefined) {
        controller.close();
        return controller.byobRequest?.respond(0);
      }
      view.set(bytes(piece));
      controller.byobRequest?.respond(piece.length);
    },
  } as unknown as UnderlyingDefaultSource<Uint8Array>);
  const sink = new FakeSink("returned");
  const piped = new StreamBody(stream).pipeTo(sink);
  for (let at = 0; at < 3; at++) {
    await vi.waitFor(() => expect(sink.releases).toHaveLength(at + 1));
    // The body must not read the next chunk before the sink has released the memory.
    await turn();
    expect(sink.chunks).toHaveLength(at + 1);
    sink.releases[at]?.();
  }
  await piped;
  expect(sink.log.filter((entry) => entry !== "flush")).toEqual(["abc", "def", "ghi", "end"]);
  // The next read has taken over the memory of a released chunk, which detaches that chunk here.
  expect(sink.chunks.slice(0, 2).map(({ byteLength }) => byteLength)).toEqual([0, 0]);
});

test.each([
  ["larger after a chunk that fills it", 0, [65_536, 262_144, 72_320]],
  ["not larger after chunks that do not fill it", 1, [...Array<number>(6).fill(65_536), 6790, 1]],
])("the buffer for a chunk of a byte stream is %s", async (_, free, expected) => {
  const length = 400_000;
  const sizes: number[] = [];
  let left = length;
  const stream = new ReadableStream<Uint8Array>({
    type: "bytes",
    pull(controller: ReadableByteStreamController) {
      if (left === 0) {
        controller.close();
        return controller.byobRequest?.respond(0);
      }
      const size = controller.byobRequest?.view?.byteLength as number;
      sizes.push(size);
      const filled = Math.max(1, size - free);
      left -= filled;
      controller.byobRequest?.respond(filled);
    },
  } as unknown as UnderlyingDefaultSource<Uint8Array>);
  const sink = new FakeSink("returned");
  const piped = new StreamBody(stream, length).pipeTo(sink);
  for (let at = 0; at < expected.length; at++) {
    await vi.waitFor(() => expect(sink.releases).toHaveLength(at + 1));
    sink.releases[at]?.();
  }
  await piped;
  expect(sizes).toEqual(expected);
});

describe("piping fails the sink if the body", () => {
  test("was already piped completely", async () => {
    const body = new StreamBody(streamOf(["abc"]));
    await body.pipeTo(new FakeSink());
    const sink = new FakeSink();
    await body.pipeTo(sink);
    expect(sink.log).toEqual([expect.stringMatching(/^fail .*already been taken/)]);
  });

  test("is being piped", async () => {
    const { stream, controller } = byHand();
    const body = new StreamBody(stream);
    const first = new FakeSink();
    const piped = body.pipeTo(first);
    const second = new FakeSink();
    await body.pipeTo(second);
    expect(second.log).toEqual([expect.stringMatching(/^fail .*already been taken/)]);
    controller.enqueue(bytes("abc"));
    controller.close();
    await piped;
    expect(first.log.at(-1)).toBe("end");
  });

  test("was already cancelled", async () => {
    const body = new StreamBody(streamOf(["abc"]));
    body.cancel();
    const sink = new FakeSink();
    await body.pipeTo(sink);
    expect(sink.log).toEqual([expect.stringMatching(/^fail .*cancelled/)]);
  });
});

describe("chunks that are not bytes", () => {
  const of = (...chunks: unknown[]): ReadableStream<Uint8Array> =>
    new ReadableStream({
      start(controller) {
        for (const chunk of chunks) controller.enqueue(chunk as Uint8Array);
        controller.close();
      },
    });

  test("text is sent as UTF-8", async () => {
    const sink = new FakeSink();
    await new StreamBody(of("a", "", "\u00e9")).pipeTo(sink);
    expect(sink.log).toEqual(["a", "\u00c3\u00a9", "end"]);
  });

  test.each([[new Uint16Array([1, 2])], [new ArrayBuffer(4)], [{}], [7], [null], [undefined]])(
    "%o fails the body",
    async (chunk) => {
      const sink = new FakeSink();
      await new StreamBody(of(bytes("a"), chunk, bytes("b"))).pipeTo(sink);
      expect(sink.log).toEqual(["a", expect.stringMatching(/^fail .*not bytes; use Uint8Array/)]);
    },
  );
});
