/** Chunks that have arrived together; the last ones come with the end, or before it. */
interface Batch {
  readonly done: boolean;
  readonly value?: readonly Uint8Array[] | undefined;
}

/** What Bun's readers can do beside the standard: take all chunks that have arrived. */
interface BatchReader extends ReadableStreamDefaultReader<Uint8Array> {
  readMany?(): Batch | Promise<Batch>;
}

/** Bytes of the buffer that a chunk is read into. */
const CHUNK_SIZE = 65_536;

/** Reads a web stream in the way that costs the runtime the least. */
export class ChunkReader {
  readonly #many: BatchReader | undefined;
  readonly #byob: ReadableStreamBYOBReader | undefined;
  /** Bytes that are still to come, where the length is known. */
  #left: number;
  /** A buffer whose chunk was sent. */
  #spare: ArrayBuffer | undefined;
  /** Ends the pending read. */
  #end: (() => void) | undefined;

  /** @param length the length of the stream in bytes where it is known */
  constructor(stream: ReadableStream<Uint8Array>, length: number | undefined) {
    this.#left = length ?? Infinity;
    this.#byob = byobReader(stream);
    if (this.#byob === undefined) this.#many = stream.getReader();
    // A read into a buffer stays pending where the stream's maker closes it without `byobRequest.respond(0)`:
    // https://streams.spec.whatwg.org/#readable-byte-stream-controller-close
    // A stream that is closed with its last chunk says so before that chunk's read is done.
    this.#byob?.closed.then(
      () => setTimeout(() => this.#end?.()),
      () => {},
    );
  }

  /** The next chunks: all that have arrived, or the first that does. */
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

  /** Whether released chunks give their buffers to the next ones. */
  get reuses(): boolean {
    return this.#byob !== undefined;
  }

  /** A chunk's memory is no longer needed. */
  release(chunk: Uint8Array): void {
    if (this.reuses) this.#spare = chunk.buffer as ArrayBuffer;
  }

  cancel(reason?: unknown): Promise<void> {
    return (this.#byob ?? (this.#many as BatchReader)).cancel(reason);
  }

  /** Deno allocates 64 KiB for each chunk, however short: these buffers are no longer than what is still to come. */
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

/** A reader into our own buffers; undefined where the stream has none, or the runtime has a faster reader. */
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
