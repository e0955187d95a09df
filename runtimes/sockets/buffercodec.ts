import type { Codec } from "../../src/http1/codec.ts";

/** The part of Node's `Buffer` that is used here; it is fast on Bun and Deno, too. */
interface BufferModule {
  readonly Buffer: {
    readonly prototype: { latin1Slice(this: Uint8Array, start: number, end: number): string };
    from(text: string, encoding: "latin1"): Uint8Array;
    allocUnsafeSlow(length: number): Uint8Array;
  };
}

/** Looked up at run time: a bundle for another runtime contains no module of Node's. */
const { process } = globalThis as unknown as {
  process: { getBuiltinModule(name: "node:buffer"): BufferModule };
};
let buffer: BufferModule["Buffer"] | undefined;

function load(): BufferModule["Buffer"] {
  return (buffer = process.getBuiltinModule("node:buffer").Buffer);
}

/** Copies bytes into memory that holds no other bytes, so that the receiver may transfer it. */
export function copyOf(bytes: Uint8Array): Uint8Array {
  const copy = (buffer ?? load()).allocUnsafeSlow(bytes.byteLength);
  copy.set(bytes);
  return copy;
}

/** The codec of Node, Bun and Deno. */
export const bufferCodec: Codec = {
  decode: (bytes, start, end) => (buffer ?? load()).prototype.latin1Slice.call(bytes, start, end),
  encode: (text) => (buffer ?? load()).from(text, "latin1"),
  copy: copyOf,
};
