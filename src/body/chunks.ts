/** The chunks of one read; the last chunks of a stream come together with `done`, or before it. */
interface Batch {
  readonly done: boolean;
  readonly value?: readonly Uint8Array[] | undefined;
}

/** A reader of Bun's, whose `readMany()` returns all chunks that have arrived; the standard has no such method. */
interface BatchReader extends ReadableStreamDefaultReader<Uint8Array> {
  readMany?(): Batch | Promise<Batch>;
}

/** The length in bytes of the buffer that one chunk is read into. */
const CHUNK_SIZE = 65_536;

/** Reads a web stream with the runtime's cheapest reader: Bun's `readMany()`, a BYOB reader, or a default reader. */
export class ChunkReader {
  readonly #many: BatchReader | undefined;
  readonly #byob: ReadableStreamBYOBReader | undefined;
  /** The number of bytes that are still to come; `Infinity` where the length is unknown. */
  #left: number;
  /** The buffer of a chunk that has been sent, for a later read. */
  #spare: ArrayBuffer | undefined;
  /** Resolves the pending read as the end of the stream. */
  #end: (() => void) | undefined;

  /** @param length the length of the stream in bytes where it is known */
  constructor(stream: ReadableStream<Uint8Array>, length: number | undefined) {
    this.#left = length ?? Infinity;
    this.#byob = byobReader(stream);
    if (this.#byob === undefined) this.#many = stream.getReader();
    // A BYOB read stays pending if the stream's source closes the stream without `byobRequest.respond(0)`:
    // https://streams.spec.whatwg.org/#readable-byte-stream-controller-close
    // So `closed` ends the read; in a later task, because `closed` may resolve before the read of the last chunk.
    this.#byob?.closed.then(
      () => setTimeout(() => this.#end?.()),
      () => {},
    );
  }

  /** Reads the next chunks: all that have arrived, or else the first one that arrives. */
  async read(): Promise<Batch> {
    if (this.#many?.readMany !== undefined) {
      const { done, value = [] } = await this.#many.readMany();
      return { done, value: value.map(toBytes) };
    }
    const { done, value } = await (this.#many?.read() ?? this.#readBytes());
    if (done) return { done };
    const chunk = toBytes(value);
    return { done, value: chunk.byteLength > 0 ? [chunk] : [] };
  }

  /** Whether the buffer of a released chunk is used for a later chunk. */
  get reuses(): boolean {
    return this.#byob !== undefined;
  }

  /** Takes back the memory of a chunk that is no longer needed. */
  release(chunk: Uint8Array): void {
    if (this.reuses) this.#spare = chunk.buffer as ArrayBuffer;
  }

  /** Cancels the stream. */
  cancel(reason?: unknown): Promise<void> {
    return (this.#byob ?? (this.#many as BatchReader)).cancel(reason);
  }

  /**
   * Reads into a buffer of our own, which is no longer than what is still to come: Deno would allocate 64 KiB for each
   * chunk, however short.
   */
  async #readBytes(): Promise<ReadableStreamReadResult<Uint8Array>> {
    const size = Math.max(1, Math.min(this.#left, CHUNK_SIZE));
    const buffer = this.#spare ?? new ArrayBuffer(size);
    this.#spare = undefined;
    const room = new Uint8Array(buffer, 0, Math.min(size, buffer.byteLength));
    const reader = this.#byob as ReadableStreamBYOBReader;
    const result = await new Promise<ReadableStreamReadResult<Uint8Array>>((resolve, reject) => {
      this.#end = () => resolve({ done: true, value: undefined });
      reader.read(room).then(resolve, reject);
    });
    this.#left = Math.max(0, this.#left - (result.value?.byteLength ?? 0));
    return result;
  }
}

/** Returns a BYOB reader; undefined for a stream that is no byte stream, and where the runtime has `readMany()`. */
function byobReader(stream: ReadableStream<Uint8Array>): ReadableStreamBYOBReader | undefined {
  if ("readMany" in ReadableStreamDefaultReader.prototype) return undefined;
  try {
    return stream.getReader({ mode: "byob" });
  } catch {
    // Not a byte stream.
    return undefined;
  }
}

const encoder = new TextEncoder();

/**
 * A chunk of a stream as bytes. Servers that write chunks of text as UTF-8, as Bun's and Node's do, hide that a stream
 * has none but those, so that apps make such streams.
 * @throws TypeError for anything else: it would be left out, or changed, in a body that looks whole
 */
function toBytes(chunk: unknown): Uint8Array {
  if (chunk instanceof Uint8Array) return chunk;
  if (typeof chunk === "string") return encoder.encode(chunk);
  throw new TypeError("fetchway: a body's stream gives chunks that are not bytes; use Uint8Array");
}
