/** What is used of Node's `Buffer`, which Bun and Deno have made quick; taken at run time, for it is in no bundle. */
interface Bytes {
  readonly prototype: { latin1Slice(this: Uint8Array, start: number, end: number): string };
  from(text: string, encoding: "latin1"): Uint8Array;
  from(buffer: ArrayBufferLike): Uint8Array;
  allocUnsafeSlow(length: number): Uint8Array;
}

const { process } = globalThis as unknown as {
  process: { getBuiltinModule(name: "node:buffer"): { Buffer: Bytes } };
};
let buffer: Bytes | undefined;

function bytes(): Bytes {
  return (buffer ??= process.getBuiltinModule("node:buffer").Buffer);
}

/** Bytes as characters of the same numbers: `TextDecoder`'s "latin1" is windows-1252. */
export function decode(from: Uint8Array, start: number, end: number): string {
  return bytes().prototype.latin1Slice.call(from, start, end);
}

/** Characters as bytes; none may be above 0xff. */
export function encode(text: string): Uint8Array {
  return bytes().from(text, "latin1");
}

/** A buffer with whatever is in it, to be read into. */
export function allocate(length: number): Uint8Array {
  return bytes().allocUnsafeSlow(length);
}

/** A copy in memory of its own: whoever gets it may transfer it, and sees nobody else's bytes around it. */
export function copyOf(from: Uint8Array): Uint8Array {
  const copy = allocate(from.byteLength);
  copy.set(from);
  return copy;
}

/** All of a buffer; not as a mere `Uint8Array`, for middleware asks `Buffer.isBuffer`. */
export function over(all: ArrayBufferLike): Uint8Array {
  return bytes().from(all);
}
