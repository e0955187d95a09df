/** Pieces that are here at once; the last comes with the end, or before it. */
interface Batch {
  readonly done: boolean;
  readonly value?: readonly Uint8Array[] | undefined;
}

/** What Bun's readers can do beside the standard: take all that is here at once. */
interface BatchReader extends ReadableStreamDefaultReader<Uint8Array> {
  readMany?(): Batch | Promise<Batch>;
}

/** Bytes of a piece, where we say how many. */
const PIECE = 65_536;

/** Reads a body in the way that costs its runtime the least. */
export class PieceReader {
  readonly #many: BatchReader | undefined;
  readonly #byob: ReadableStreamBYOBReader | undefined;
  /** Bytes that are still to come, if it is as long as was said. */
  #left: number;
  /** A buffer that nobody needs any more. */
  #spare: ArrayBuffer | undefined;
  /** Ends the read that is pending. */
  #end: (() => void) | undefined;

  /** @param length what was announced; undefined if nothing */
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

  /** The next pieces: all that are here, or the one that comes. */
  async read(): Promise<Batch> {
    if (this.#many?.readMany !== undefined) return this.#many.readMany();
    const { done, value } = await (this.#many?.read() ?? this.#readBytes());
    return { done, value: value && value.byteLength > 0 ? [value] : [] };
  }

  /** Whether its pieces are to be released, so that the next can be read into their buffers. */
  get lends(): boolean {
    return this.#byob !== undefined;
  }

  /** A piece of what was read is not needed any more. */
  release(piece: Uint8Array): void {
    if (this.lends) this.#spare = piece.buffer as ArrayBuffer;
  }

  cancel(): Promise<void> {
    return (this.#byob ?? (this.#many as BatchReader)).cancel();
  }

  /** Deno makes a buffer of 64 KiB for each piece, whatever comes: these are as long as what is to come. */
  async #readBytes(): Promise<ReadableStreamReadResult<Uint8Array>> {
    const size = Math.max(1, Math.min(this.#left, PIECE));
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

/** A reader into buffers of ours; undefined where the stream takes none, or there is a better way. */
function byobReader(stream: ReadableStream<Uint8Array>): ReadableStreamBYOBReader | undefined {
  if ("readMany" in ReadableStreamDefaultReader.prototype) return undefined;
  try {
    return stream.getReader({ mode: "byob" });
  } catch {
    // It is not made of bytes.
    return undefined;
  }
}
