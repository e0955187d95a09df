import type { BodySource, Sink } from "./source.ts";
import { toWebStream } from "./web.ts";

/** The number of bytes in several chunks. */
export function lengthOf(chunks: readonly Uint8Array[]): number {
  let length = 0;
  for (const chunk of chunks) length += chunk.byteLength;
  return length;
}

/** Bytes in memory of their own. `slice()` would not do: that of Node's `Buffer` gives a view of the same memory. */
export function copyBytes(bytes: Uint8Array): Uint8Array<ArrayBuffer> {
  return new Uint8Array(bytes);
}

/** Several chunks as one; a single chunk as it is. */
export function concat(chunks: readonly Uint8Array[]): Uint8Array {
  if (chunks.length === 1) return chunks[0] as Uint8Array;
  const bytes = new Uint8Array(lengthOf(chunks));
  let at = 0;
  for (const chunk of chunks) {
    bytes.set(chunk, at);
    at += chunk.byteLength;
  }
  return bytes;
}

/** A body whose bytes are all here. It can be taken again. */
export class BytesBody implements BodySource {
  /** The bytes. */
  readonly replay: Uint8Array;

  /** Makes a body of these bytes, which must not change any more. */
  constructor(bytes: Uint8Array) {
    this.replay = bytes;
  }

  /** The number of bytes. */
  get length(): number {
    return this.replay.byteLength;
  }

  /** The same: all of them have arrived. */
  get buffered(): number {
    return this.replay.byteLength;
  }

  /** The bytes. They must not be changed or transferred. */
  whole(): Uint8Array {
    return this.replay;
  }

  /** Writes the bytes to a sink in one chunk. */
  async pipeTo(sink: Sink): Promise<void> {
    // A sink that owns its chunks may transfer them: these bytes may be needed again.
    const isOwned = (sink.memory ?? "owned") === "owned";
    if (this.length > 0) sink.write(isOwned ? copyBytes(this.replay) : this.replay);
    sink.end();
  }

  /** A web stream of one chunk, which is a copy. */
  stream(): ReadableStream<Uint8Array> {
    return toWebStream(this);
  }

  /** Does nothing. */
  cancel(): void {}
}
