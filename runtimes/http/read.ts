import { allocate, copyOf, over } from "./bytes.ts";

/** What one read takes at most: a body of 64 KiB has come with its head then. */
const SIZE = 131_072;
/** How many buffers are kept for reads to come. */
const SPARES = 64;
/** One in so many reads that find none makes one: not all servers tell when a piece has been sent, so that it comes back. */
const MISSES = 16;

/** What `net.connect` takes to read into a caller's buffers. */
interface OnRead {
  readonly buffer: () => Uint8Array;
  readonly callback: (length: number, bytes: Uint8Array) => boolean;
}

let shared: Uint8Array | undefined;
const spares: Uint8Array[] = [];
let misses = 0;

function takeSpare(): Uint8Array | undefined {
  return spares.pop() ?? (misses++ % MISSES === 0 ? allocate(SIZE) : undefined);
}

function copyTo(spare: Uint8Array | undefined, came: Uint8Array): Uint8Array {
  if (spare === undefined) return copyOf(came);
  spare.set(came);
  return spare.subarray(0, came.byteLength);
}

/**
 * How a socket reads. Left to themselves, those of Node and Deno make a buffer of 64 KiB for each
 * read, and to touch memory that is new costs more than to copy. Here all read into one buffer, and
 * what came is copied out of it: much of it to a buffer that was used before, if there is one. When
 * one was filled, the next read of the same socket has such a buffer to itself.
 */
export function readTo(onData: (piece: Uint8Array) => void): OnRead {
  const common = (shared ??= allocate(SIZE));
  let next = common;
  return {
    buffer: () => next,
    callback(length, bytes) {
      const came = bytes.subarray(0, length);
      next = length === SIZE ? (spares.pop() ?? allocate(SIZE)) : common;
      if (length < SIZE / 2) {
        onData(copyOf(came));
        if (bytes !== common) recycle(bytes);
      } else if (bytes === common) onData(copyTo(takeSpare(), came));
      else onData(came);
      return true;
    },
  };
}

/** Whether the buffer under a piece is one of those. */
export function isReusable({ buffer }: Uint8Array): boolean {
  return buffer.byteLength === SIZE;
}

/** Takes the buffer back. Nobody may look at it any more, nor at another piece of it. */
export function recycle({ buffer }: Uint8Array): void {
  if (spares.length < SPARES) spares.push(over(buffer));
}
