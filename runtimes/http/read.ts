import { allocate, copyOf, over } from "./bytes.ts";

/** What one read takes at most: a body of 64 KiB has come with its head then. */
const SIZE = 131_072;
/** How many buffers are kept for reads to come. */
const SPARES = 32;

/** What `net.connect` takes to read into a caller's buffers. */
interface OnRead {
  readonly buffer: () => Uint8Array;
  readonly callback: (length: number, bytes: Uint8Array) => boolean;
}

let shared: Uint8Array | undefined;
const spares: Uint8Array[] = [];

function takeBuffer(): Uint8Array {
  return spares.pop() ?? allocate(SIZE);
}

/**
 * How a socket reads. Left to themselves, those of Node and Deno make a buffer of 64 KiB for each
 * read, and to touch memory that is new costs more than to copy. Here all read into one buffer, and
 * what came is copied out of it; where that was full, the next read has a buffer to itself.
 */
export function readTo(onData: (piece: Uint8Array) => void): OnRead {
  const common = (shared ??= allocate(SIZE));
  let next = common;
  return {
    buffer: () => next,
    callback(length, bytes) {
      next = length === SIZE ? takeBuffer() : common;
      const came = bytes.subarray(0, length);
      if (length < SIZE / 2) {
        onData(copyOf(came));
        if (bytes !== common) recycle(bytes);
      } else if (bytes === common) {
        const own = takeBuffer();
        own.set(came);
        onData(own.subarray(0, length));
      } else onData(came);
      return true;
    },
  };
}

/** Whether the buffer under a piece is one of those, as are those of all large ones. */
export function isReusable({ buffer }: Uint8Array): boolean {
  return buffer.byteLength === SIZE;
}

/** Takes the buffer back. Nobody may look at it any more, nor at another piece of it. */
export function recycle({ buffer }: Uint8Array): void {
  if (spares.length < SPARES) spares.push(over(buffer));
}
