import { describe, expect, test, vi } from "vitest";
import { KeptBody, keptBody } from "../src/replay.ts";
import { bytes, streamOf } from "./_fakes.ts";

const read = (body: KeptBody): Promise<string> => new Response(body.stream()).text();

describe("KeptBody", () => {
  test("hands on what it keeps, byte for byte", async () => {
    const body = new KeptBody(streamOf(["ab", "c", "def"]), 6, undefined);
    expect(body.kept).toBeUndefined();
    expect(await read(body)).toBe("abcdef");
    expect(body.kept).toEqual(bytes("abcdef"));
  });

  test("an empty one is kept, too", async () => {
    const body = new KeptBody(streamOf([]), 6, undefined);
    await read(body);
    expect(body.kept).toEqual(bytes(""));
  });

  test("over the limit it hands on everything and keeps nothing", async () => {
    const body = new KeptBody(streamOf(["abc", "def", "g"]), 6, undefined);
    expect(await read(body)).toBe("abcdefg");
    expect(body.kept).toBeUndefined();
  });

  test("a copy that is not whole is none", async () => {
    const body = new KeptBody(streamOf(["abc", "def"]), 6, undefined);
    const reader = body.stream().getReader();
    await reader.read();
    await reader.read();
    expect(body.kept).toBeUndefined();
    await reader.read();
    expect(body.kept).toEqual(bytes("abcdef"));
  });

  test("with its length known it is whole at its last byte, before anyone asks for its end", async () => {
    const body = new KeptBody(streamOf(["abc", "def"]), 6, 6);
    const reader = body.stream().getReader();
    await reader.read();
    expect(body.kept).toBeUndefined();
    await reader.read();
    expect(body.kept).toEqual(bytes("abcdef"));
  });

  test("what breaks off is no whole body", async () => {
    const pull = vi.fn<(controller: ReadableStreamDefaultController<Uint8Array>) => void>();
    pull.mockImplementationOnce((controller) => controller.enqueue(bytes("abc")));
    pull.mockImplementationOnce((controller) => controller.error(new Error("broken")));
    const source = new ReadableStream<Uint8Array>({ pull }, { highWaterMark: 0 });
    const body = new KeptBody(source, 6, undefined);
    await expect(read(body)).rejects.toThrow("broken");
    expect(body.kept).toBeUndefined();
  });

  test("cancelled, it cancels its source", async () => {
    const cancelled = vi.fn();
    const body = new KeptBody(streamOf(["abc", "def"], cancelled), 6, undefined);
    const reader = body.stream().getReader();
    await reader.read();
    await reader.cancel("enough");
    await vi.waitFor(() => expect(cancelled).toHaveBeenCalledExactlyOnceWith("enough"));
    expect(body.kept).toBeUndefined();
  });

  test("whoever reads it may write over the pieces", async () => {
    const body = new KeptBody(streamOf(["abc"]), 6, undefined);
    for await (const chunk of body.stream()) chunk.fill(0);
    expect(body.kept).toEqual(bytes("abc"));
  });

  test("reads no further than its reader", async () => {
    const pull = vi.fn<(controller: ReadableStreamDefaultController<Uint8Array>) => void>(
      (controller) => controller.enqueue(bytes("abc")),
    );
    const source = new ReadableStream<Uint8Array>({ pull }, { highWaterMark: 0 });
    const reader = new KeptBody(source, 1000, undefined).stream().getReader();
    await reader.read();
    expect(pull.mock.calls.length).toBeLessThanOrEqual(2);
    await reader.cancel();
  });
});

describe("keptBody", () => {
  test("bytes and no body can be sent again, a stream cannot", () => {
    const body = bytes("abc");
    expect(keptBody(null)).toBeNull();
    expect(keptBody(body)).toBe(body);
    expect(keptBody(streamOf(["abc"]))).toBeUndefined();
  });

  test("a native body can where its runtime has taken it as bytes", () => {
    const stream = (): ReadableStream<Uint8Array> => streamOf([]);
    expect(keptBody({ stream })).toBeUndefined();
    expect(keptBody({ stream, kept: undefined })).toBeUndefined();
    expect(keptBody({ stream, kept: bytes("abc") })).toEqual(bytes("abc"));
  });
});
