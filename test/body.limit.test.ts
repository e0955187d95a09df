import { describe, expect, test, vi } from "vitest";
import { limitBody, toStream } from "../src/body.ts";
import type { NativeBody } from "../src/transport.ts";
import { bytes, proxyError, streamOf } from "./_fakes.ts";

const tooLarge = proxyError("http_request_error", 413);

const text = (body: ReadableStream<Uint8Array>): Promise<string> => new Response(body).text();

describe("toStream", () => {
  test("leaves a stream as it is", () => {
    const stream = streamOf([]);
    expect(toStream(stream)).toBe(stream);
  });

  test("takes a native body's own", () => {
    const stream = streamOf([]);
    expect(toStream({ stream: () => stream } satisfies NativeBody)).toBe(stream);
  });

  test.each(["", "abc"])("streams the bytes of %j", async (body) => {
    expect(await text(toStream(bytes(body)))).toBe(body);
  });
});

describe("limitBody", () => {
  test.each([
    [4, undefined],
    [5, undefined],
    [5, 5],
  ])("leaves what is within %d bytes as it is", (limit, length) => {
    const native: NativeBody = { stream: () => streamOf(["abcde"]) };
    const body = length === undefined ? bytes("abcd") : native;
    const exceeded = vi.fn();
    expect(limitBody(body, limit, length, exceeded)).toBe(body);
    expect(exceeded).not.toHaveBeenCalled();
  });

  test("counts a web stream, whatever length is claimed", async () => {
    const exceeded = vi.fn();
    const body = limitBody(streamOf(["abc", "de"]), 4, 3, exceeded);
    await expect(text(body as ReadableStream<Uint8Array>)).rejects.toThrow(tooLarge);
    expect(exceeded).toHaveBeenCalledOnce();
  });

  test("refuses at once what is known to be longer", () => {
    expect(() => limitBody(bytes("abcde"), 4, undefined, vi.fn())).toThrow(tooLarge);
    expect(() => limitBody(streamOf(["abcde"]), 4, 5, vi.fn())).toThrow(tooLarge);
    expect(() => limitBody(bytes("a"), 0, undefined, vi.fn())).toThrow(tooLarge);
  });

  test("lets a stream through up to its last byte", async () => {
    const exceeded = vi.fn();
    const body = toStream(limitBody(streamOf(["ab", "cd"]), 4, undefined, exceeded));
    expect(await text(body)).toBe("abcd");
    expect(exceeded).not.toHaveBeenCalled();
  });

  test("fails a stream that goes over it, and tells so", async () => {
    const exceeded = vi.fn();
    const cancelled = vi.fn();
    const source = streamOf(["ab", "cd", "e", "f"], cancelled);
    const reader = toStream(limitBody(source, 4, undefined, exceeded)).getReader();
    const seen: string[] = [];
    const reading = (async () => {
      for (;;) seen.push(new TextDecoder().decode((await reader.read()).value));
    })();
    await expect(reading).rejects.toEqual(tooLarge);
    expect(seen).toEqual(["ab", "cd"]);
    expect(exceeded).toHaveBeenCalledExactlyOnceWith(tooLarge);
    expect(cancelled).toHaveBeenCalledOnce();
  });

  test("takes no more from a stream than its reader does", async () => {
    const pull = vi.fn((controller: ReadableStreamDefaultController<Uint8Array>) =>
      controller.enqueue(bytes("x")),
    );
    const source = new ReadableStream({ pull }, { highWaterMark: 0 });
    const reader = toStream(limitBody(source, 100, undefined, vi.fn())).getReader();
    await reader.read();
    await new Promise((resolve) => setTimeout(resolve, 20));
    expect(pull.mock.calls.length).toBeLessThanOrEqual(3);
  });
});
