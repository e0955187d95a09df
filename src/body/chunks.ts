import { encodeText } from "./memory.ts";

/** The result of one read. With `done: true`, `value` may still hold the last chunks of the stream. */
interface Batch {
  readonly done: boolean;
  readonly value?: readonly Uint8Array[] | undefined;
}

/**
 * A default reader. On Bun, it has the method `readMany()`, which is not standard, and returns all chunks that have
 * arrived.
 */
interface BatchReader extends ReadableStreamDefaultReader<Uint8Array> {
  readMany?(): Batch | Promise<Batch>;
}

/** The maximum length in bytes of the buffer into which a BYOB reader reads a chunk, until a chunk has filled the buffer. */
const CHUNK_SIZE = 65_536;
/**
 * The maximum length of the buffer after that: a full buffer means that more bytes probably wait. On Deno, a body of 1 MB
 * then arrives in a third as many chunks. A body that arrives slowly keeps the small buffer.
 */
const LARGE_CHUNK_SIZE = 262_144;

/** Reads a web stream with the runtime's cheapest reader: Bun's `readMany()`, a BYOB reader, or a default reader. */
export class ChunkReader {
  /** The default reader, where there is no BYOB reader. */
  readonly #plain: BatchReader | undefined;
  readonly #byob: ReadableStreamBYOBReader | undefined;
  /** The number of bytes that are still to come; `Infinity` where the length is unknown. */
  #left: number;
  /** The maximum length of the buffer for the next chunk. */
  #size = CHUNK_SIZE;
  /** The buffer of a released chunk, for a later read. */
  #spare: ArrayBuffer | undefined;
  /** Ends the pending BYOB read as if it had returned `done: true`. */
  #end: (() => void) | undefined;

  /** @param length the length of the stream in bytes where it is known */
  constructor(stream: ReadableStream<Uint8Array>, length: number | undefined) {
    this.#left = length ?? Infinity;
    this.#byob = byobReader(stream);
    if (this.#byob === undefined) this.#plain = stream.getReader();
    // A BYOB read stays pending if the stream's source closes the stream without `byobRequest.respond(0)`:
    // https://streams.spec.whatwg.org/#readable-byte-stream-controller-close
    // So the promise `closed` ends the pending read, but in a later task, because `closed` may resolve before the read
    // of the last chunk does.
    this.#byob?.closed.then(
      () => setTimeout(() => this.#end?.()),
      () => {},
    );
  }

  /** Waits for the next chunks: with Bun's `readMany()`, all chunks that have arrived, and otherwise one chunk. */
  async read(): Promise<Batch> {
    if (this.#plain?.readMany !== undefined) {
      const { done, value = [] } = await this.#plain.readMany();
      return { done, value: value.map(toBytes) };
    }
    const { done, value } = await (this.#plain?.read() ?? this.#readBytes());
    if (done) return { done };
    const chunk = toBytes(value);
    return { done, value: chunk.byteLength > 0 ? [chunk] : [] };
  }

  /** Whether later chunks are read into the memory of released chunks. */
  get reuses(): boolean {
    return this.#byob !== undefined;
  }

  /** Marks the memory of a chunk as no longer needed, so that a later chunk may be read into it. */
  release(chunk: Uint8Array): void {
    if (this.reuses) this.#spare = chunk.buffer as ArrayBuffer;
  }

  cancel(reason?: unknown): Promise<void> {
    return (this.#byob ?? (this.#plain as BatchReader)).cancel(reason);
  }

  /**
   * Reads a chunk into a buffer that this method provides, and that is not longer than the rest of the body. A default
   * reader would make Deno allocate 64 KiB for each chunk, however short the chunk is.
   */
  async #readBytes(): Promise<ReadableStreamReadResult<Uint8Array>> {
    const size = Math.max(1, Math.min(this.#left, this.#size));
    let buffer = this.#spare;
    this.#spare = undefined;
    if (buffer === undefined || buffer.byteLength < size) buffer = new ArrayBuffer(size);
    const room = new Uint8Array(buffer, 0, size);
    const reader = this.#byob as ReadableStreamBYOBReader;
    const result = await new Promise<ReadableStreamReadResult<Uint8Array>>((resolve, reject) => {
      this.#end = () => resolve({ done: true, value: undefined });
      reader.read(room).then(resolve, reject);
    });
    const length = result.value?.byteLength ?? 0;
    if (length === CHUNK_SIZE) this.#size = LARGE_CHUNK_SIZE;
    this.#left = Math.max(0, this.#left - length);
    return result;
  }
}

/**
 * Cancels a stream in a later task, because the streams that Node makes throw if they are cancelled in the same tick as
 * a read.
 */
export async function cancelLater(
  reader: { cancel(reason: unknown): Promise<void> },
  reason: unknown,
): Promise<void> {
  await new Promise((resolve) => setTimeout(resolve));
  await reader.cancel(reason).catch(() => {});
}

/**
 * Returns a BYOB reader; undefined for a stream that is not a byte stream, and on Bun, where `readMany()` is cheaper.
 */
function byobReader(stream: ReadableStream<Uint8Array>): ReadableStreamBYOBReader | undefined {
  if ("readMany" in ReadableStreamDefaultReader.prototype) return undefined;
  try {
    return stream.getReader({ mode: "byob" });
  } catch {
    // The stream is not a byte stream.
    return undefined;
  }
}

/**
 * Returns a chunk of a stream as bytes. Text is encoded as UTF-8, because the servers of Bun and Node do so, and apps
 * rely on that.
 * @throws TypeError for any other chunk: if the chunk were left out, the body would look complete and be wrong
 */
function toBytes(chunk: unknown): Uint8Array {
  if (chunk instanceof Uint8Array) return chunk;
  if (typeof chunk === "string") return encodeText(chunk);
  throw notBytes();
}

export function notBytes(): TypeError {
  return new TypeError(
    "fetchway: the stream of a body contains chunks that are not bytes; use Uint8Array, " +
      "or body.pipeThrough(new TextEncoderStream()) for strings",
  );
}
