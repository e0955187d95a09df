/** The codecs of the HTTP/1.1 client: the one for tests, and the one for Node, Bun and Deno. */
import { describe, expect, test } from "vitest";
import { rfc } from "../../conformance/rfc.ts";
import { bufferCodec } from "../../../runtimes/sockets/buffercodec.ts";
import { portableCodec } from "./_codec.ts";

const ALL = Uint8Array.from({ length: 256 }, (_, i) => i);
const TEXT = Array.from(ALL, (byte) => String.fromCharCode(byte)).join("");

test("TextDecoder does not decode ISO-8859-1", () => {
  expect(new TextDecoder("latin1").decode(ALL)).not.toBe(TEXT);
});

describe.each(Object.entries({ portableCodec, bufferCodec }))("%s", (_, codec) => {
  test("decodes and encodes each of the 256 bytes as the character of its number", () => {
    rfc("9112-2.2-octets");
    expect(codec.decode(ALL, 0, 256)).toBe(TEXT);
    expect(Array.from(codec.encode(TEXT))).toEqual(Array.from(ALL));
  });

  test.each([
    ["a Uint8Array", ALL],
    ["a Buffer", Buffer.from(ALL)],
    ["a Buffer within other memory", Buffer.from([0, ...ALL, 0]).subarray(1, 257)],
  ])("decodes the whole and a part of %s", (__, bytes) => {
    expect(codec.decode(bytes, 0, 256)).toBe(TEXT);
    expect(codec.decode(bytes, 0x41, 0x44)).toBe("ABC");
    expect(codec.decode(bytes, 9, 9)).toBe("");
    expect(codec.decode(bytes.subarray(0x41), 1, 3)).toBe("BC");
  });

  test.each([4095, 4096, 4097, 300_000])("decodes and encodes %i bytes", (length) => {
    const bytes = Uint8Array.from({ length }, (__, i) => (i * 7) % 256);
    const text = codec.decode(bytes, 0, length);
    expect(text).toHaveLength(length);
    expect(Buffer.compare(codec.encode(text), bytes)).toBe(0);
  });

  test("`copy` returns bytes with their own memory, which do not change with the original", () => {
    for (const original of [ALL.slice(), Buffer.from(ALL)]) {
      const copy = codec.copy(original.subarray(10, 20));
      original.fill(0);
      expect(Array.from(copy)).toEqual(Array.from(ALL.subarray(10, 20)));
      expect(copy.buffer.byteLength).toBe(10);
    }
  });
  test("the bytes that `copyToRead` returns change neither with the original nor with later copies", () => {
    // Together, the copies fill several slabs (see buffercodec.ts).
    const lengths = [0, 1, 20_000, ...Array.from({ length: 40 }, (__, i) => 16_383 - i * 100), 3];
    const originals = lengths.map((length, i) => new Uint8Array(length).fill(i));
    const memory = new Uint8Array(20_000);
    const copies = originals.map((original) => {
      memory.set(original);
      return codec.copyToRead(memory.subarray(0, original.byteLength));
    });
    for (const [i, copy] of copies.entries()) {
      expect(Buffer.compare(copy, originals[i] as Uint8Array)).toBe(0);
    }
    // A long copy has its own memory, which can be freed.
    expect(copies[2]?.buffer.byteLength).toBe(20_000);
  });
});
