import { describe, expect, test, vi } from "vitest";
import { BytesBody } from "../../../src/body/bytes.ts";
import { limitBody } from "../../../src/exchange/interceptors.ts";
import type { BodySource, Sink } from "../../../src/body/source.ts";
import { StreamBody } from "../../../src/body/stream.ts";
import type { UpstreamRequest } from "../../../src/transport/message.ts";
import {
  bytes,
  errorOf,
  fakeRequest,
  FakeTransport,
  type Given,
  proxyError,
  startScope,
  streamOf,
} from "../../helpers/fakes.ts";
import { FakeSink } from "../../helpers/sink.ts";

const tooLarge = proxyError("http_request_error", 413);

/** Sends a request through `limitBody`. Returns the body that the transport gets, and `fail`, which is called on an abort. */
async function limited(
  limit: number,
  over: Given<UpstreamRequest>,
): Promise<{ body: BodySource; fail: ReturnType<typeof vi.fn> }> {
  const transport = new FakeTransport();
  const { scope, fail } = startScope();
  const hop = fakeRequest({ method: "POST", ...over });
  await limitBody(limit)((request, given) => transport.send(request, given))(hop, scope);
  return { body: transport.hops[0]?.body as BodySource, fail };
}

/** Creates a limited body. The test itself writes to the sink that the limit gives to the source. */
async function byHand(limit: number): Promise<{ body: BodySource; given: () => Sink }> {
  let given: Sink | undefined;
  const source: BodySource = new StreamBody(streamOf([]));
  source.pipeTo = async (sink) => void (given = sink);
  const { body } = await limited(limit, { body: source });
  return { body, given: () => given as Sink };
}

const text = (body: BodySource): Promise<string> => new Response(body.stream()).text();

describe("limitBody", () => {
  test("leaves a request without a body unchanged", async () => {
    const transport = new FakeTransport();
    const hop = fakeRequest();
    const { scope } = startScope();
    await limitBody(0)((request, given) => transport.send(request, given))(hop, scope);
    expect(transport.hops[0]).toBe(hop);
  });

  test.each([4, 5])(
    "passes on a body of 4 bytes with a limit of %d, and the body can be sent again",
    async (limit) => {
      const given = bytes("abcd");
      const { body, fail } = await limited(limit, { body: given });
      expect(body.whole()).toBe(given);
      expect(body.replay).toBe(given);
      expect(fail).not.toHaveBeenCalled();
    },
  );

  test.each<[string, number, Given<UpstreamRequest>]>([
    ["bytes", 4, { body: bytes("abcde") }],
    ["one byte, with a limit of 0", 0, { body: bytes("a") }],
    ["a declared length", 4, { body: streamOf(["abcde"]), contentLength: 5 }],
    ["a body of known length", 4, { body: new StreamBody(streamOf(["abcde"]), 5) }],
  ])("refuses a body over the limit before anything is sent: %s", async (_, limit, over) => {
    const send = vi.fn();
    const { scope } = startScope();
    expect(await errorOf(() => limitBody(limit)(send)(fakeRequest(over), scope))).toEqual(tooLarge);
    expect(send).not.toHaveBeenCalled();
  });

  test("fails a stream over the limit, although its announced length is within the limit", async () => {
    const { body, fail } = await limited(4, { body: streamOf(["abc", "de"]), contentLength: 3 });
    await expect(text(body)).rejects.toThrow(tooLarge);
    expect(fail).toHaveBeenCalledOnce();
  });

  test("refuses the bytes of a body over the limit if the length of the body was not known in advance", async () => {
    const body: BodySource = new BytesBody(bytes("abcde"));
    const late = Object.create(body, { length: { value: undefined } }) as BodySource;
    Object.assign(late, { whole: () => body.whole() });
    const { body: held } = await limited(4, { body: late });
    expect(await errorOf(() => held.whole())).toEqual(tooLarge);
  });

  test("passes a stream whose length is exactly the limit", async () => {
    const { body, fail } = await limited(4, { body: streamOf(["ab", "cd"]) });
    expect(await text(body)).toBe("abcd");
    expect(fail).not.toHaveBeenCalled();
  });

  test("fails the sink of a body over the limit, stops the exchange and cancels the source", async () => {
    const cancelled = vi.fn();
    const { body, fail } = await limited(4, { body: streamOf(["ab", "cd", "e", "f"], cancelled) });
    const sink = new FakeSink();
    await body.pipeTo(sink);
    expect(sink.log).toEqual(["ab", "cd", "fail the request body is over the limit of 4 bytes"]);
    expect(sink.reason).toEqual(tooLarge);
    expect(fail).toHaveBeenCalledExactlyOnceWith(tooLarge);
    await vi.waitFor(() => expect(cancelled).toHaveBeenCalledOnce());
  });

  test("fails the stream of a body over the limit", async () => {
    const { body } = await limited(4, { body: streamOf(["ab", "cd", "e", "f"]) });
    expect(await errorOf(() => text(body))).toEqual(tooLarge);
  });

  test("passes on the sink's backpressure", async () => {
    const { body } = await limited(4, { body: streamOf(["ab", "cd"]) });
    const sink = new FakeSink("returned");
    sink.hasRoom = false;
    const piped = body.pipeTo(sink);
    await vi.waitFor(() => expect(sink.log).toContain("ab"));
    await new Promise((resolve) => setTimeout(resolve, 5));
    expect(sink.log).not.toContain("cd");
    sink.drain();
    await piped;
    expect(sink.log.filter((entry) => entry !== "flush")).toEqual(["ab", "cd", "end"]);
  });

  test("passes the sink's memory mode and its drain to the source, and the releases of chunks to the sink", async () => {
    for (const memory of ["owned", "borrowed", "returned"] as const) {
      const { body, given } = await byHand(9);
      const sink = new FakeSink(memory);
      void body.pipeTo(sink);
      expect(given().memory).toBe(memory);
      sink.hasRoom = false;
      const release = (): void => {};
      expect(given().write(bytes("a"), release)).toBe(false);
      expect(sink.releases).toEqual([release]);
      const onDrain = vi.fn();
      given().onDrain(onDrain);
      sink.drain();
      expect(onDrain).toHaveBeenCalledOnce();
    }
  });

  test("passes the trailer fields of the body to the sink", async () => {
    const { body, given } = await byHand(9);
    const sink = new FakeSink();
    void body.pipeTo(sink);
    given().end(["x-sum", "1"]);
    expect(sink.trailers).toEqual(["x-sum", "1"]);
  });

  test("passes nothing on to the sink after the limit was exceeded", async () => {
    const { body, given } = await byHand(1);
    const sink = new FakeSink();
    void body.pipeTo(sink);
    given().write(bytes("ab"));
    const before = [...sink.log];
    expect(before).toHaveLength(1);
    given().write(bytes("c"));
    given().fail(new Error("late"));
    given().end();
    expect(sink.log).toEqual(before);
  });

  test("reads at most 64 KiB ahead of its reader", async () => {
    const pull = vi.fn((controller: ReadableStreamDefaultController<Uint8Array>) =>
      controller.enqueue(new Uint8Array(16_384)),
    );
    const source = new ReadableStream({ pull }, { highWaterMark: 0 });
    const { body } = await limited(1e9, { body: source });
    const reader = body.stream().getReader();
    await reader.read();
    await new Promise((resolve) => setTimeout(resolve, 20));
    // At most the chunk that was read, four chunks in the buffer, and one that is being requested.
    expect(pull.mock.calls.length).toBeLessThanOrEqual(6);
    await reader.cancel();
  });
});

test("limitBody passes on the known length of a body, which an in-process app sees as Content-Length", async () => {
  const { body } = await limited(10, { body: new BytesBody(bytes("abc")) });
  expect(body.length).toBe(3);
  const stream = new ReadableStream<Uint8Array>();
  expect((await limited(10, { body: stream })).body.length).toBeUndefined();
});
