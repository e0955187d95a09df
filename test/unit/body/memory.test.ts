import { expect, test } from "vitest";
import { concat, copyBytes, sumLengths } from "../../../src/body/memory.ts";
import { bytes } from "../../helpers/fakes.ts";

test("`concat` joins chunks, and returns a single chunk without a copy", () => {
  const one = bytes("abc");
  expect(concat([one])).toBe(one);
  expect(concat([one, bytes(""), bytes("de")])).toEqual(bytes("abcde"));
  expect(concat([])).toEqual(bytes(""));
  expect(sumLengths([one, bytes("de")])).toBe(5);
});

test("`copyBytes` returns bytes with their own ArrayBuffer, also for a Buffer, whose `slice` copies nothing", () => {
  const shared = Buffer.from("abcdef");
  const copy = copyBytes(shared.subarray(1, 3));
  expect(copy).toEqual(bytes("bc"));
  expect(copy.buffer.byteLength).toBe(2);
});
