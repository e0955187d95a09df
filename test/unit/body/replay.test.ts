import { describe, expect, test, vi } from "vitest";
import { BytesBody } from "../../../src/body/bytes.ts";
import { keepBody } from "../../../src/exchange/interceptors.ts";
import { ReplayBody, replayOf } from "../../../src/body/replay.ts";
import type { BodySource } from "../../../src/body/source.ts";
import { StreamBody } from "../../../src/body/stream.ts";
import type { UpstreamRequest } from "../../../src/transport/message.ts";
import {
  bytes,
  fakeRequest,
  fakeScope,
  FakeTransport,
  type Given,
  streamOf,
} from "../../helpers/fakes.ts";
import { FakeSink } from "../../helpers/sink.ts";

const read = (body: BodySource): Promise<string> => new Response(body.stream()).text();

function keep(stream: ReadableStream<Uint8Array>, limit: number, length?: number): ReplayBody {
  return new ReplayBody(new StreamBody(stream), limit, length);
}

describe("ReplayBody", () => {
  test("keeps a copy of a body that it passes on, byte for byte", async () => {
    const body = keep(streamOf(["ab", "c", "def"]), 6);
    expect(body.replay).toBeUndefined();
    expect(await read(body)).toBe("abcdef");
    expect(body.replay).toEqual(bytes("abcdef"));
  });

  test("keeps an empty body", async () => {
    const body = keep(streamOf([]), 6);
    await read(body);
    expect(body.replay).toEqual(bytes(""));
  });

  test("passes on a whole body over the limit, and keeps nothing of it", async () => {
    const body = keep(streamOf(["abc", "def", "g"]), 6);
    expect(await read(body)).toBe("abcdefg");
    expect(body.replay).toBeUndefined();
  });

  test("has no bytes to send again until the whole body has been copied", async () => {
    const body = keep(streamOf(["abc", "def"]), 6);
    const sink = new FakeSink();
    sink.hasRoom = false;
    const piped = body.pipeTo(sink);
    await vi.waitFor(() => expect(sink.log).toContain("abc"));
    expect(body.replay).toBeUndefined();
    sink.drain();
    await piped;
    expect(body.replay).toEqual(bytes("abcdef"));
  });

  test("keeps copies of Buffers whose memory is freed after sending", async () => {
    const stream = new ReadableStream<Uint8Array>({
      start(controller) {
        for (const text of ["abc", "def"])
          controller.enqueue(Buffer.from(new Uint8Array(bytes(text)).buffer));
        controller.close();
      },
    });
    const body = keep(stream, 6);
    const sink = new FakeSink("borrowed");
    const write = sink.write.bind(sink);
    sink.write = (chunk) => {
      const hasRoom = write(chunk);
      structuredClone(chunk, { transfer: [chunk.buffer as ArrayBuffer] });
      return hasRoom;
    };
    await body.pipeTo(sink);
    expect(body.replay).toEqual(bytes("abcdef"));
  });

  test("the copy of a body of known length is complete at its last byte, before the end of the body is read", async () => {
    const body = keep(streamOf(["abc", "def"]), 6, 6);
    const sink = new FakeSink();
    const replays: unknown[] = [];
    const write = sink.write.bind(sink);
    sink.write = (chunk) => {
      replays.push(body.replay);
      return write(chunk);
    };
    await body.pipeTo(sink);
    expect(replays).toEqual([undefined, bytes("abcdef")]);
  });

  test("keeps nothing of a body that breaks off, so that it cannot be sent again", async () => {
    const pull = vi.fn<(controller: ReadableStreamDefaultController<Uint8Array>) => void>();
    pull.mockImplementationOnce((controller) => controller.enqueue(bytes("abc")));
    pull.mockImplementationOnce((controller) => controller.error(new Error("broken")));
    const source = new ReadableStream<Uint8Array>({ pull }, { highWaterMark: 0 });
    const body = keep(source, 6);
    await expect(read(body)).rejects.toThrow("broken");
    expect(body.replay).toBeUndefined();
  });

  test("passes the trailer fields of its source to the sink", async () => {
    const source: BodySource = new StreamBody(streamOf([]));
    source.pipeTo = (sink) => sink.end(["x-sum", "1"]);
    const sink = new FakeSink();
    await new ReplayBody(source, 6, undefined).pipeTo(sink);
    expect(sink.trailers).toEqual(["x-sum", "1"]);
  });

  test("cancels its source when it is cancelled", async () => {
    const cancelled = vi.fn();
    const endless = new ReadableStream<Uint8Array>(
      { pull: (controller) => controller.enqueue(bytes("abc")), cancel: cancelled },
      { highWaterMark: 0 },
    );
    const body = keep(endless, 6);
    const reader = body.stream().getReader();
    await reader.read();
    await reader.cancel("enough");
    await vi.waitFor(() => expect(cancelled).toHaveBeenCalledExactlyOnceWith("enough"));
    expect(body.replay).toBeUndefined();
  });

  test("a reader that overwrites the chunks does not change the kept bytes", async () => {
    const body = keep(streamOf(["abc"]), 6);
    for await (const chunk of body.stream()) chunk.fill(0);
    expect(body.replay).toEqual(bytes("abc"));
  });

  test("the bytes of a source that is already complete are kept without a copy", () => {
    const given = bytes("abc");
    const body = new ReplayBody(new BytesBody(given), 3, undefined);
    expect(body.length).toBe(3);
    expect(body.whole()).toBe(given);
    expect(body.replay).toBe(given);
  });

  test("copies no chunk of a body whose announced length is over the limit", async () => {
    const body = keep(streamOf(["abc", "defg"]), 6, 7);
    const sink = new FakeSink();
    const slice = vi.spyOn(Uint8Array.prototype, "slice");
    await body.pipeTo(sink);
    expect(slice).not.toHaveBeenCalled();
    slice.mockRestore();
    expect(sink.log).toEqual(["abc", "defg", "end"]);
    expect(body.replay).toBeUndefined();
  });

  test("reads at most 64 KiB ahead of its reader", async () => {
    const pull = vi.fn<(controller: ReadableStreamDefaultController<Uint8Array>) => void>(
      (controller) => controller.enqueue(new Uint8Array(16_384)),
    );
    const source = new ReadableStream<Uint8Array>({ pull }, { highWaterMark: 0 });
    const reader = keep(source, 1e9).stream().getReader();
    await reader.read();
    await new Promise((resolve) => setTimeout(resolve, 20));
    expect(pull.mock.calls.length).toBeLessThanOrEqual(6);
    await reader.cancel();
  });
});

describe("keepBody", () => {
  async function sent(
    over: Given<UpstreamRequest>,
    methods?: string[],
  ): Promise<[UpstreamRequest, UpstreamRequest]> {
    const transport = new FakeTransport();
    const hop = fakeRequest(over);
    const keeping = keepBody(6, methods)((request, scope) => transport.send(request, scope));
    await keeping(hop, fakeScope());
    return [hop, transport.hops[0] as UpstreamRequest];
  }

  test("keeps request bodies for all methods, or only for the named ones", async () => {
    const [, all] = await sent({ method: "POST", body: streamOf(["abc"]) });
    expect(all.body).toBeInstanceOf(ReplayBody);
    const [, put] = await sent({ method: "PUT", body: streamOf(["abc"]) }, ["PUT"]);
    expect(put.body).toBeInstanceOf(ReplayBody);
    const [post, other] = await sent({ method: "POST", body: streamOf(["abc"]) }, ["PUT"]);
    expect(other).toBe(post);
    const [get, none] = await sent({});
    expect(none).toBe(get);
  });

  test("uses the announced length as the body's length", async () => {
    const [, { body }] = await sent({ method: "PUT", body: streamOf(["abc"]), contentLength: 3 });
    expect(body?.length).toBe(3);
  });
});

describe("replayOf", () => {
  test("bytes and an absent body can be sent again, a stream cannot", () => {
    const given = bytes("abc");
    expect(replayOf(null)).toBeNull();
    expect(replayOf(new BytesBody(given))?.whole()).toBe(given);
    expect(replayOf(new StreamBody(streamOf(["abc"])))).toBeUndefined();
  });

  test("a stream whose bytes all arrived in one read can be sent again", async () => {
    const body = new StreamBody(streamOf(["abc"]), 3);
    await body.pipeTo(new FakeSink());
    expect(replayOf(body)?.whole()).toEqual(bytes("abc"));
  });
});
