/**
 * The pool option `reuseBuffers`: sockets read into buffers that are used again once Node has written what is in them.
 * Without it, each read has new memory, and to touch that costs more than the read itself for large bodies.
 *
 * A pooled chunk goes to nothing but the client's response, and only if no other code can see it there. Everything
 * else gets a copy in memory of its own.
 */
import type { ServerResponse } from "node:http";
import type { Recycler } from "../../src/body/response.ts";
import type { Memory } from "../../src/http1/attempt.ts";
import { copyOf } from "../sockets/buffercodec.ts";
import type { SocketParts } from "../sockets/connect.ts";
import { NetSocket } from "../sockets/netsocket.ts";
import { isUnwrappedResponse, isUnwrappedSocket } from "./wrapped.ts";

/** Bytes that one read takes at most: a body of 64 KiB arrives in one read with its head. */
const READ_SIZE = 131_072;
/** Bytes of a read below which its chunks are copied, and the socket keeps its buffer. */
const LARGE = 32_768;
/** Number of buffers that wait for a socket. */
const MAX_SPARES = 64;

/** Whether any transport reads into pooled buffers. */
let isReusing = false;
const spares: Uint8Array[] = [];
/** The memory of every buffer made here. */
const pooled: WeakSet<ArrayBufferLike> = new WeakSet();

function takeBuffer(): Uint8Array {
  const spare = spares.pop();
  if (spare !== undefined) return spare;
  const buffer = Buffer.allocUnsafeSlow(READ_SIZE);
  pooled.add(buffer.buffer);
  return buffer;
}

/** Puts the memory of a chunk back. Nothing may read the chunk any more, nor another one of the same memory. */
function release({ buffer }: Uint8Array): void {
  // A `Buffer` and not only a `Uint8Array`: middleware asks `Buffer.isBuffer`.
  if (spares.length < MAX_SPARES) spares.push(Buffer.from(buffer));
}

/** Buffers that sockets read into again. */
const recycler: Recycler = {
  has: ({ buffer }) => pooled.has(buffer),
  release,
  take(chunk) {
    const copy = copyOf(chunk);
    release(chunk);
    return copy;
  },
};

/** Has a socket read into a buffer of its own, and into another one when a chunk has kept that. */
export const createOnRead: NonNullable<SocketParts["createOnRead"]> = (onData) => {
  let next = takeBuffer();
  return {
    buffer: () => next,
    callback(length, bytes) {
      if (onData(bytes.subarray(0, length), length >= LARGE)) next = takeBuffer();
      return true;
    },
  };
};

/** The chunks of a transport that reads into pooled buffers, and frees the buffers of request bodies. */
const reusedChunks: Memory = {
  recycler,
  ofRequests: ({ socket }) =>
    socket instanceof NetSocket && isUnwrappedSocket(socket.raw) ? "returned" : "borrowed",
};

/** Has a transport use memory again, and all others look out for it. */
export function reuseChunks(): Memory {
  isReusing = true;
  return reusedChunks;
}

/** Whether a request's body may be sent by a transport that uses memory again. */
export function mayReuse(): boolean {
  return isReusing;
}

/** Whether a response of Node's gives chunks back. */
export function returnsMemory(res: ServerResponse): boolean {
  return isReusing && isUnwrappedResponse(res);
}
