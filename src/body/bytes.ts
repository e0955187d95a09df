import type { BodySource, Sink } from "./source.ts";
import { toWebStream } from "./web.ts";

/** Returns the total length of the chunks in bytes. */
export function lengthOf(chunks: readonly Uint8Array[]): number {
  let length = 0;
  for (const chunk of chunks) length += chunk.byteLength;
  return length;
}

/** Bytes in memory of their own. `slice()` would not do: that of Node's `Buffer` gives a view of the same memory. */
export function copyBytes(bytes: Uint8Array): Uint8Array<ArrayBuffer> {
  return new Uint8Array(bytes);
}

/** Joins chunks into one; a single chunk is returned without a copy. */
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

/** A body whose bytes are all in memory; it can be sent more than once. */
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

  /** The number of bytes that have arrived, which is all of them. */
  get buffered(): number {
    return this.replay.byteLength;
  }

  /** Returns the bytes, which the caller must not change or transfer. */
  whole(): Uint8Array {
    return this.replay;
  }

  /** Writes the bytes to a sink in one chunk. */
  async pipeTo(sink: Sink): Promise<void> {
    // A sink that owns its chunks may transfer them: it gets a copy, because the body may be sent again.
    const isOwned = (sink.memory ?? "owned") === "owned";
    if (this.length > 0) sink.write(isOwned ? copyBytes(this.replay) : this.replay);
    sink.end();
  }

  /** Returns a web stream of one chunk, which is a copy of the bytes. */
  stream(): ReadableStream<Uint8Array> {
    return toWebStream(this);
  }

  /** Does nothing: the body has no source to stop. */
  cancel(): void {}
}
