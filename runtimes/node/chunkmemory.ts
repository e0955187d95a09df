/**
 * What becomes of the memory of large chunks on Node once they are sent.
 *
 * By default, it is freed (`transfer(0)`). The garbage collector would free it much later: V8 counts the bytes of an
 * `ArrayBuffer` until then, and marks its whole heap each time the sum reaches a limit, after some 64 MB. For large bodies,
 * that took a third of the CPU time. With the pool option `reuseBuffers`, sockets read into pooled buffers, which are used
 * again.
 *
 * Either happens only if no code other than Node's own can see the chunk on its way (`internals/wrapped.ts`). All other code
 * gets a chunk in memory of its own, which nothing frees.
 */
import { free, type Recycler, type Release } from "../../src/body/memory.ts";
import type { ChunkMemory } from "../../src/http1/attempt.ts";
import { copyOf } from "../sockets/buffercodec.ts";
import type { SocketParts } from "../sockets/connect.ts";
import { NetSocket } from "../sockets/netsocket.ts";
import { writeFromShared } from "./internals/scratchwrite.ts";
import { takeShared } from "./internals/sharedread.ts";
import { isUnwrappedSocket } from "./internals/wrapped.ts";

/** The memory of smaller chunks is left to the garbage collector, which needs less time for them than freeing would. */
export const LARGE = 16_384;

/** Whether a chunk is large, and alone in its ArrayBuffer. */
function isAloneAndLarge({ byteLength, buffer }: Uint8Array): boolean {
  return byteLength >= LARGE && byteLength === buffer.byteLength;
}

/** Returns a function that frees the memory of a chunk, if it is large and alone in its ArrayBuffer; else undefined. */
export function freeing(chunk: Uint8Array): Release | undefined {
  if (!isAloneAndLarge(chunk)) return undefined;
  return (error) => {
    if (!error) free(chunk);
  };
}

/** Memory that is used once. */
const once: Recycler = { has: isAloneAndLarge, copyOut: (chunk) => chunk, release: free };

const mayRelease: ChunkMemory["mayRelease"] = ({ socket }) =>
  socket instanceof NetSocket && isUnwrappedSocket(socket.raw);

/** The memory rules without `reuseBuffers`. */
export const freedChunks: ChunkMemory = { recycler: once, mayRelease };

/** The maximum number of bytes of one read: a body of 64 KiB arrives in one read with its head. */
const READ_SIZE = 131_072;
/** If a read has fewer bytes than this, its chunks are copied, and the socket uses its buffer again. */
const POOLED = 32_768;
/** The maximum number of buffers that are kept for later reads. */
const MAX_SPARES = 64;

const spares: Uint8Array[] = [];
/** The memory of every pooled buffer. */
const pooled: WeakSet<ArrayBufferLike> = new WeakSet();

function takeBuffer(): Uint8Array {
  const spare = spares.pop();
  if (spare !== undefined) return spare;
  const buffer = Buffer.allocUnsafeSlow(READ_SIZE);
  pooled.add(buffer.buffer);
  return buffer;
}

/** Returns the memory of a chunk to the pool. No chunk in this memory may be read any more. */
function release({ buffer }: Uint8Array): void {
  // Chunks have to be a `Buffer`, because middleware asks `Buffer.isBuffer`.
  if (spares.length < MAX_SPARES) spares.push(Buffer.from(buffer));
}

/** The pool of buffers, for response bodies. */
const pool: Recycler = {
  has: ({ buffer }) => pooled.has(buffer),
  release,
  copyOut(chunk) {
    const copy = copyOf(chunk);
    release(chunk);
    return copy;
  },
};

/** Makes a socket read into one pooled buffer, and into another one when a chunk has kept the memory of the first. */
export const createOnRead: NonNullable<SocketParts["createOnRead"]> = (onData) => {
  let next = takeBuffer();
  return {
    buffer: () => next,
    callback(length, bytes) {
      if (onData(bytes.subarray(0, length), length >= POOLED)) next = takeBuffer();
      return true;
    },
    shared: {
      // The buffer before is left to the garbage collector, because the socket reads into it once more.
      share: () => void (next = takeShared() ?? next),
      write: writeFromShared,
    },
  };
};

/** The memory rules with `reuseBuffers`. The chunks of requests lie in Node's memory, which is freed. */
export const reusedChunks: ChunkMemory = { recycler: pool, mayRelease };
