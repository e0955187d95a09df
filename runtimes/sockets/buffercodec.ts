import type { Codec } from "../../src/http1/codec.ts";

/** What is used of Node's `Buffer`, which Bun and Deno have made quick, too. */
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

/** Copies bytes into memory of their own: the receiver may transfer it, and no other bytes are in it. */
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
