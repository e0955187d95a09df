/**
 * Frees the memory of large chunks on Node once they are sent.
 *
 * `free` does so by `ArrayBuffer.transfer(0)`. The garbage collector would free the memory much later: V8 counts the bytes of
 * an `ArrayBuffer` until then, and marks its whole heap each time the sum reaches a limit, after some 64 MB. For large bodies,
 * marking took a third of the CPU time.
 *
 * The memory is freed only if no code other than Node's own can see the chunk on its way (`internals/wrapped.ts`). Otherwise
 * it is left to the garbage collector.
 */
import type { ReadMemory, Release } from "../../src/body/memory.ts";
import type { ChunkMemory } from "../../src/http1/writebody.ts";
import { free } from "../sockets/buffercodec.ts";
import type { NetSocket } from "../sockets/netsocket.ts";
import { isUnwrappedSocket } from "./internals/wrapped.ts";

/** Chunks of at least this number of bytes are freed. Freeing a smaller chunk takes longer than its garbage collection. */
export const LARGE = 16_384;

/** Whether a chunk is large, and alone in its ArrayBuffer. */
function isAloneAndLarge({ byteLength, buffer }: Uint8Array): boolean {
  return byteLength >= LARGE && byteLength === buffer.byteLength;
}

/**
 * Returns the callback for the write of a large chunk that is alone in its ArrayBuffer: it frees the chunk's memory, unless the
 * write has failed. Returns undefined for any other chunk.
 */
export function freeing(chunk: Uint8Array): Release | undefined {
  if (!isAloneAndLarge(chunk)) return undefined;
  return (error) => {
    if (!error) free(chunk);
  };
}

/**
 * The rules for memory into which the runtime reads only once: a chunk is passed on without a copy, and is freed afterwards.
 */
const singleUse: ReadMemory = { has: isAloneAndLarge, copyOut: (chunk) => chunk, release: free };

// `NetSocket` is imported only as a type, because `fetchway/undici` imports this file and must not load Fetchway's own client.
const mayRelease: ChunkMemory["mayRelease"] = ({ socket }) => {
  const { raw } = (socket ?? {}) as Partial<NetSocket>;
  return raw !== undefined && isUnwrappedSocket(raw);
};

export const freedChunks: ChunkMemory = { readMemory: singleUse, mayRelease };
