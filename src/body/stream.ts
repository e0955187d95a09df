import { cancelLater, ChunkReader } from "./chunks.ts";
import { concat, copyBytes, sumLengths } from "./memory.ts";
import { alreadyTaken, type BodySource, type Sink, type StreamOptions } from "./source.ts";
import { toWebStream } from "./web.ts";

/**
 * Milliseconds to wait for the first chunk before a message's head is sent alone. A small body usually arrives in this time.
 */
const FLUSH_AFTER = 1;

/** A body that reads a web stream. */
export class StreamBody implements BodySource {
  /** The length in bytes, where it is known. */
  readonly length: number | undefined;
  /** The bytes of the whole body, if its length is known and the first read has returned all of it; otherwise undefined. */
  replay: Uint8Array | undefined;
  /** Whether the body was neither taken nor cancelled so far. */
  isUntouched = true;
  readonly #stream: ReadableStream<Uint8Array>;
  #reader: ChunkReader | undefined;
  /** Whether the body was piped to its end, has failed, or was cancelled. */
  #isOver = false;

  /**
   * Makes a body of a stream that no other code reads.
   * @param length the length in bytes where it is known
   */
  constructor(stream: ReadableStream<Uint8Array>, length?: number) {
    this.#stream = stream;
    this.length = length;
  }

  /** Always returns undefined: a stream does not show whether its bytes have arrived. */
  whole(): undefined {}

  /** Returns the stream itself, or a stream around it if an option is set. */
  stream(options: StreamOptions = {}): ReadableStream<Uint8Array> {
    this.isUntouched = false;
    const { onFail, quiet = false, flush = false } = options;
    // A web stream has no trailers, so `onTrailers` alone needs no stream around it.
    const isAsIs = onFail === undefined && !quiet && !flush;
    return isAsIs ? this.#stream : toWebStream(this, options);
  }

  /** Reads the stream and writes its chunks to a sink. Before each further chunk, it waits until the sink has room. */
  async pipeTo(sink: Sink): Promise<void> {
    if (this.#isOver || this.#reader !== undefined) return sink.fail(alreadyTaken());
    this.isUntouched = false;
    const flush = setTimeout(() => sink.flush?.(), FLUSH_AFTER);
    try {
      // The constructor throws if other code is reading the stream.
      const reader = (this.#reader = new ChunkReader(this.#stream, this.length));
      for (let isFirst = true; ; isFirst = false) {
        const { value: chunks = [], done } = await reader.read();
        clearTimeout(flush);
        if (this.#isOver) return;
        // If the first read has returned the whole body, keep the bytes, so that they can be sent again.
        if (isFirst && sumLengths(chunks) === this.length) this.replay = concat(chunks);
        for (const chunk of chunks) {
          if (this.#isOver) return;
          const room = this.#write(chunk, sink, reader);
          if (room !== undefined) await room;
        }
        if (this.#isOver) return;
        if (!done) continue;
        this.#isOver = true;
        return sink.end();
      }
    } catch (thrown) {
      clearTimeout(flush);
      if (this.#isOver) return;
      this.#isOver = true;
      sink.fail(thrown);
    }
  }

  /** Writes a chunk. Returns undefined if the next chunk can be read now, or a promise that resolves when it can. */
  #write(chunk: Uint8Array, sink: Sink, reader: ChunkReader): Promise<void> | undefined {
    const isKept = this.replay !== undefined;
    if (isKept || sink.memory !== "returned" || !reader.reuses) {
      const isOwned = (sink.memory ?? "owned") === "owned";
      if (sink.write(isKept && isOwned ? copyBytes(chunk) : chunk)) return undefined;
      return new Promise((resolve) => sink.onDrain(resolve));
    }
    return new Promise((resolve) => {
      sink.write(chunk, (error) => {
        if (!error) reader.release(chunk);
        resolve();
      });
    });
  }

  /** Cancels the stream. */
  cancel(reason?: unknown): void {
    if (this.#isOver) return;
    this.isUntouched = false;
    this.#isOver = true;
    if (this.#reader === undefined) this.#stream.cancel(reason).catch(() => {});
    else void cancelLater(this.#reader, reason);
  }
}
