/**
 * The memory of chunks: which code may keep a chunk, and for how long.
 *
 * A chunk is a `Uint8Array`, which is a view of an `ArrayBuffer`. Copying every chunk would be safe, but slow. So a sink
 * says in `Sink.memory` what it does with its chunks. The source then passes the chunk itself if that chunk has the
 * property in the last column, and otherwise a copy that has it:
 *
 * | `memory`     | the sink                                           | the chunk that the source passes                |
 * | ------------ | -------------------------------------------------- | ----------------------------------------------- |
 * | `"owned"`    | may keep, change or transfer the ArrayBuffer       | is alone in its ArrayBuffer; the sink owns both |
 * | `"borrowed"` | only reads the bytes; it never calls `release`     | never changes, and may share its ArrayBuffer    |
 * | `"returned"` | reads the bytes, and calls `release` once they are | may lie in memory that the source frees after   |
 * |              | sent; no other code sees them                      | `release`                                       |
 *
 * The bytes that `BodySource.whole()` returns belong to the caller, with two exceptions: the caller has asked for borrowed
 * bytes, or the body has the same bytes in `replay`. In these two cases, no code may change the bytes.
 *
 * Further terms:
 *
 * - *Shared* memory holds the bytes of one read, and several chunks are views of it. A `ReadMemory` knows which chunks lie
 *   in shared memory, or in memory that is freed.
 * - A socket says with each read whether its reader *may keep* the memory. If so, the reader may use that memory for one
 *   chunk of the read. It copies the other chunks, so that no two chunks of a body have the same ArrayBuffer.
 * - A *spare* is a buffer that is no longer needed, because its bytes have been sent. The next chunk is read into it.
 */

/** What a sink does with the memory of a chunk; the table in this file has the meanings. */
export type Ownership = "owned" | "borrowed" | "returned";

/**
 * Called once when a sink no longer needs a chunk.
 * @param error set if the memory of the chunk must be neither freed nor used again: the chunk was not sent and the
 * system may still read it, or other code may keep the chunk
 */
export type Release = (error?: Error | null) => void;

/**
 * The memory into which a transport reads chunks, if the chunks share an ArrayBuffer, or if the transport frees them
 * after use.
 */
export interface ReadMemory {
  /** Returns whether a chunk lies in this memory. */
  has(chunk: Uint8Array): boolean;
  /** Returns the bytes of a chunk in an ArrayBuffer of their own. The result may be the chunk itself. */
  copyOut(chunk: Uint8Array): Uint8Array;
  /**
   * Frees the memory of a chunk, which no code may read afterwards. Undefined if the transport neither frees nor changes the
   * memory of its chunks.
   */
  release?(chunk: Uint8Array): void;
}

/**
 * The `ReadMemory` of an HTTP client that passes on views of its read buffers, and never uses a read buffer again. A
 * chunk is copied only for code that may transfer the ArrayBuffer.
 */
export const sharedMemory: ReadMemory = {
  has: ({ byteLength, buffer }) => byteLength !== buffer.byteLength,
  copyOut: copyBytes,
};

const encoder = new TextEncoder();

export function encodeText(text: string): Uint8Array<ArrayBuffer> {
  return encoder.encode(text);
}

export function sumLengths(chunks: readonly Uint8Array[]): number {
  let length = 0;
  for (const chunk of chunks) length += chunk.byteLength;
  return length;
}

/** Copies bytes into an ArrayBuffer of their own; the `slice()` of Node's `Buffer` would return a view instead. */
export function copyBytes(bytes: Uint8Array): Uint8Array<ArrayBuffer> {
  return new Uint8Array(bytes);
}

/** Joins chunks into one; a single chunk is returned without a copy. */
export function concat(chunks: readonly Uint8Array[]): Uint8Array {
  if (chunks.length === 1) return chunks[0] as Uint8Array;
  const bytes = new Uint8Array(sumLengths(chunks));
  let at = 0;
  for (const chunk of chunks) {
    bytes.set(chunk, at);
    at += chunk.byteLength;
  }
  return bytes;
}
