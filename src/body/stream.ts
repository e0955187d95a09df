import { concat, lengthOf } from "./bytes.ts";
import { ChunkReader } from "./chunks.ts";
import type { BodySource, Sink, StreamOptions } from "./source.ts";
import { toWebStream } from "./web.ts";

/** Milliseconds to wait for the first chunk before a message's head is sent alone: a small body follows at once. */
const FLUSH_AFTER = 1;

/** A web stream as a body. */
export class StreamBody implements BodySource {
  readonly length: number | undefined;
  replay: Uint8Array | undefined;
  readonly #stream: ReadableStream<Uint8Array>;
  #reader: ChunkReader | undefined;
  #isCancelled = false;

  /** @param length the length in bytes where it is known */
  constructor(stream: ReadableStream<Uint8Array>, length?: number) {
    this.#stream = stream;
    this.length = length;
  }

  whole(): undefined {}

  stream({ onFail, quiet = false }: StreamOptions = {}): ReadableStream<Uint8Array> {
    if (onFail === undefined && !quiet) return this.#stream;
    return toWebStream(this, { onFail, quiet });
  }

  async pipeTo(sink: Sink): Promise<void> {
    const flush = setTimeout(() => sink.flush?.(), FLUSH_AFTER);
    try {
      // Throws for a stream that other code is reading.
      const reader = (this.#reader = new ChunkReader(this.#stream, this.length));
      for (let isFirst = true; ; isFirst = false) {
        const { value: chunks = [], done } = await reader.read();
        clearTimeout(flush);
        if (this.#isCancelled) return;
        // The chunks of a body that fits into one read stay as they are: it can be sent again.
        if (isFirst && lengthOf(chunks) === this.length) this.replay = concat(chunks);
        for (const chunk of chunks) {
          await this.#write(chunk, sink, reader);
          if (this.#isCancelled) return;
        }
        if (done) return sink.end();
      }
    } catch (thrown) {
      clearTimeout(flush);
      if (!this.#isCancelled) sink.fail(thrown);
    }
  }

  #write(chunk: Uint8Array, sink: Sink, reader: ChunkReader): Promise<void> | undefined {
    if (this.replay !== undefined) {
      return sink.write((sink.memory ?? "owned") === "owned" ? chunk.slice() : chunk);
    }
    if (sink.memory !== "returned" || !reader.reuses) return sink.write(chunk);
    return new Promise((resolve) => {
      const release = (): void => {
        reader.release(chunk);
        resolve();
      };
      void sink.write(chunk, release);
    });
  }

  cancel(reason?: unknown): void {
    this.#isCancelled = true;
    const reader = this.#reader;
    if (reader === undefined) return void this.#stream.cancel(reason).catch(() => {});
    // Later: Node's own streams fail where they are cancelled in the tick in which they were read.
    setTimeout(() => void reader.cancel(reason).catch(() => {}));
  }
}
