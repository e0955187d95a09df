import { type ReadMemory, sharedMemory } from "../../src/body/memory.ts";
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

/**
 * The rules for the memory of chunks that are views of a read buffer, as those of undici and `node:http2` are. A copy of a
 * chunk is a `Buffer`, because middleware may expect one.
 */
export const bufferMemory: ReadMemory = { ...sharedMemory, copyOut: copyOf };

/** The number of bytes of a slab, which holds several short copies. */
const SLAB = 65_536;
/** Copies of at least this number of bytes have their own memory. */
const LONG = 16_384;

let slab: Buffer | undefined;
let used = 0;

/**
 * Copies bytes for a receiver that only reads them. Short copies lie one after the other in one ArrayBuffer, the slab:
 * allocating an ArrayBuffer for each copy would cost more than copying the bytes.
 */
export function copyToRead(bytes: Uint8Array): Uint8Array {
  const { byteLength } = bytes;
  if (byteLength >= LONG) return copyOf(bytes);
  if (slab === undefined || used + byteLength > SLAB) {
    slab = (NodeBuffer ?? loadBuffer()).allocUnsafeSlow(SLAB);
    used = 0;
  }
  const copy = slab.subarray(used, (used += byteLength));
  copy.set(bytes);
  return copy;
}

/**
 * Frees the memory of a chunk that is alone in its ArrayBuffer. No code may read the chunk any more. Memory that cannot be
 * transferred is left alone: an app may have pushed a chunk in WebAssembly's memory into a request, and an exception in a
 * callback of a write would end the process.
 */
export function free({ buffer, byteLength }: Uint8Array): void {
  if (byteLength !== buffer.byteLength) return;
  try {
    (buffer as ArrayBuffer).transfer(0);
  } catch {
    // The memory cannot be transferred: leave it to the garbage collector.
  }
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
  copyToRead,
};
