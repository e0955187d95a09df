import type { Codec } from "../../src/http1/codec.ts";

/** Node's built-in modules are looked up at run time, because a bundle for another runtime cannot import them. */
const { process } = globalThis as unknown as {
  process: { getBuiltinModule(name: "node:buffer"): typeof import("node:buffer") };
};
let NodeBuffer: typeof Buffer | undefined;

function loadBuffer(): typeof Buffer {
  return (NodeBuffer = process.getBuiltinModule("node:buffer").Buffer);
}

/** Copies bytes into memory that holds no other bytes, so that the receiver may transfer it. */
export function copyOf(bytes: Uint8Array): Uint8Array {
  const copy = (NodeBuffer ?? loadBuffer()).allocUnsafeSlow(bytes.byteLength);
  copy.set(bytes);
  return copy;
}

/** The codec of Node, Bun and Deno, on `Buffer`, which is fast on each of them. */
export const bufferCodec: Codec = {
  decode(bytes, start, end) {
    const Class = NodeBuffer ?? loadBuffer();
    // Sockets read into a `Buffer`. Only lines that arrived in several parts were copied into a plain `Uint8Array`.
    if (bytes instanceof Class) return bytes.toString("latin1", start, end);
    return Class.from(bytes.buffer, bytes.byteOffset + start, end - start).toString("latin1");
  },
  encode: (text) => (NodeBuffer ?? loadBuffer()).from(text, "latin1"),
  allocate: (length) => (NodeBuffer ?? loadBuffer()).allocUnsafe(length),
  copy: copyOf,
};
