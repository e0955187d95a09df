import { describe, expect, test } from "vitest";
import { BytesBody } from "../../../src/body/bytes.ts";
import { bytes } from "../../helpers/fakes.ts";
import { FakeSink } from "../../helpers/sink.ts";

describe("BytesBody", () => {
  test("returns the same bytes with each read", () => {
    const given = bytes("abc");
    const body = new BytesBody(given);
    expect(body).toMatchObject({ length: 3, buffered: 3 });
    expect(body.replay).toBe(given);
    expect(body.whole()).toBe(given);
    expect(body.whole()).toBe(given);
  });

  test.each([
    ["an ArrayBuffer", new ArrayBuffer(3)],
    ["a DataView", new DataView(new ArrayBuffer(3))],
    ["a Uint16Array", new Uint16Array(3)],
    ["a string", "abc"],
    ["a Blob", new Blob(["abc"])],
    ["an array", [1, 2, 3]],
    ["undefined", undefined],
  ])("refuses %s, whose bytes would not be sent", (_, value) => {
    const make = (): BytesBody => new BytesBody(value as never);
    expect(make).toThrow(TypeError);
    expect(make).toThrow(/new BytesBody\(bytes\) must be a Uint8Array; use `await new Response/);
  });

  test.each(["", "abc"])("streams the bytes of %j twice", async (text) => {
    const body = new BytesBody(bytes(text));
    expect(await new Response(body.stream()).text()).toBe(text);
    expect(await new Response(body.stream()).text()).toBe(text);
  });

  test("pipes its bytes as one chunk, or no chunk if it is empty", async () => {
    const sink = new FakeSink();
    new BytesBody(bytes("abc")).pipeTo(sink);
    expect(sink.log).toEqual(["abc", "end"]);
    const empty = new FakeSink();
    new BytesBody(bytes("")).pipeTo(empty);
    expect(empty.log).toEqual(["end"]);
  });

  test("gives a sink with owned chunks a copy, also if the body is a Buffer, whose `slice` copies nothing", async () => {
    const given = Buffer.from("abc");
    const body = new BytesBody(given);
    const sink = new FakeSink("owned");
    body.pipeTo(sink);
    body.pipeTo(sink);
    const [first, second] = sink.chunks.map(({ buffer }) => buffer);
    expect(first?.byteLength).toBe(3);
    expect(first).not.toBe(second);
    expect(given.toString()).toBe("abc");
  });

  test.each([
    ["owned", false],
    ["borrowed", true],
    ["returned", true],
  ] as const)("a sink with %s chunks gets the memory of the body itself: %s", (memory, isSame) => {
    const given = bytes("abc");
    const body = new BytesBody(given);
    const sink = new FakeSink(memory);
    body.pipeTo(sink);
    expect(sink.chunks[0]?.buffer === given.buffer).toBe(isSame);
    // A sink that owns a chunk may overwrite it, and the next attempt must still have the original bytes.
    if (!isSame) sink.chunks[0]?.fill(0);
    expect(body.whole()).toEqual(bytes("abc"));
  });

  test("a reader that detaches the buffer of a chunk does not change the bytes of the body", async () => {
    const body = new BytesBody(bytes("abc"));
    for await (const chunk of body.stream()) structuredClone(chunk, { transfer: [chunk.buffer] });
    expect(body.whole()).toEqual(bytes("abc"));
  });
});
