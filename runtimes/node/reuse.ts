/**
 * The pool option `reuseBuffers`: sockets read into pooled buffers, which are used again once Node has written the
 * bytes in them. Without the option, each chunk is copied into new memory (`internals/sharedread.ts`), and for large bodies
 * the garbage collection of this memory costs more than all else.
 *
 * A pooled chunk is passed only to the client's response, and only if no other code can see it there. All other code
 * gets a copy in memory of its own.
 */
import type { ServerResponse } from "node:http";
import type { Recycler } from "../../src/body/memory.ts";
import type { ChunkMemory } from "../../src/http1/attempt.ts";
import { copyOf } from "../sockets/buffercodec.ts";
import type { SocketParts } from "../sockets/connect.ts";
import { NetSocket } from "../sockets/netsocket.ts";
import { writeFromShared } from "./internals/scratchwrite.ts";
import { takeShared } from "./internals/sharedread.ts";
import { isUnwrappedResponse, isUnwrappedSocket } from "./internals/wrapped.ts";

/** The maximum number of bytes of one read: a body of 64 KiB arrives in one read with its head. */
const READ_SIZE = 131_072;
/** If a read has fewer bytes than this, its chunks are copied, and the socket uses its buffer again. */
export const LARGE = 32_768;
/** The maximum number of buffers that are kept for later reads. */
const MAX_SPARES = 64;

/** Whether any transport of this process reads into pooled buffers. If none does, the checks of memory are skipped. */
export const reuse: { isOn: boolean } = { isOn: false };
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
const recycler: Recycler = {
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
      if (onData(bytes.subarray(0, length), length >= LARGE)) next = takeBuffer();
      return true;
    },
    shared: {
      // The buffer before is left to the garbage collector, because the socket reads into it once more.
      share: () => void (next = takeShared() ?? next),
      write: writeFromShared,
    },
  };
};

/**
 * The memory rules with `reuseBuffers`. Response chunks are read into pooled buffers. The memory of a request chunk is
 * returned once the chunk is sent, unless other code has wrapped the socket.
 */
const reusedChunks: ChunkMemory = {
  recycler,
  ofRequests: ({ socket }) =>
    socket instanceof NetSocket && isUnwrappedSocket(socket.raw) ? "returned" : "borrowed",
};

/** Returns the memory rules with `reuseBuffers`. From then on, `reuse.isOn` is true for the whole process. */
export function reuseChunks(): ChunkMemory {
  reuse.isOn = true;
  return reusedChunks;
}

/** Whether the memory of chunks may be returned once Node's response has written them: no other code sees them. */
export function returnsMemory(res: ServerResponse): boolean {
  return reuse.isOn && isUnwrappedResponse(res);
}
