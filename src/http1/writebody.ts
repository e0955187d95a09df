import { concat, type ReadMemory, type Release } from "../body/memory.ts";
import type { Sink } from "../body/source.ts";
import { badLength, badRequest, toRequestBodyError } from "../error.ts";
import { type HeaderList, isSendable } from "../fields/headers.ts";
import type { Scope } from "../transport/scope.ts";
import type { Connection } from "./connection.ts";

/** Chunks up to this number of bytes are copied, so that they are sent in one write with the framing around them. */
export const SMALL_CHUNK = 16_384;

/** Which chunks are freed when they have been sent. Where a member is not set, the garbage collector frees them. */
export interface ChunkMemory {
  /** The memory into which response bodies are read. It knows which chunks it must free. */
  readonly readMemory?: ReadMemory | undefined;
  /**
   * Returns whether the memory of bytes that are written to a connection may be released, because only the runtime's own
   * code sees it.
   */
  readonly mayRelease?: (connection: Connection) => boolean;
}

/** The attempt, which fails if its body cannot be sent as announced. */
interface Failing {
  fail(thrown: unknown): void;
}

/** Writes a request chunk by chunk: the head with the first chunk, and the body in its message framing. */
export class BodyWriter implements Sink {
  /** Whether all of the body has been written. */
  isOver = false;
  readonly #connection: Connection;
  readonly #length: number | undefined;
  readonly #scope: Pick<Scope, "touch">;
  readonly #attempt: Failing;
  readonly #memory: ChunkMemory;
  /** The head, until it is sent. */
  #head: Uint8Array | undefined;
  /** The number of bytes of the body that have been written. */
  written = 0;
  /** Whether the source has ended the body: later chunks are dropped. */
  #isEnded = false;

  /**
   * @param head the head, which is sent with the first chunk; undefined if it was sent before
   * @param length the length that the head announces; undefined for the chunked coding
   */
  constructor(
    connection: Connection,
    head: Uint8Array | undefined,
    length: number | undefined,
    scope: Pick<Scope, "touch">,
    attempt: Failing,
    memory: ChunkMemory,
  ) {
    this.#connection = connection;
    this.#head = head;
    this.#length = length;
    this.#scope = scope;
    this.#attempt = attempt;
    this.#memory = memory;
  }

  get memory(): "borrowed" | "returned" {
    return this.#memory.mayRelease === undefined ? "borrowed" : "returned";
  }

  flush(): void {
    if (this.#head !== undefined) this.#connection.write(this.#afterHead(""));
  }

  write(chunk: Uint8Array, release?: Release): boolean {
    // In the chunked coding, an empty chunk would end the body (RFC 9112 §7.1), and the upstream would take bytes after
    // the end for the next request.
    if (chunk.byteLength === 0 || this.#isEnded) {
      release?.();
      return true;
    }
    this.#scope.touch();
    this.written += chunk.byteLength;
    const done = release && this.#guard(release);
    if (this.#length === undefined) {
      return this.#writeChunk(chunk, `${chunk.byteLength.toString(16)}\r\n`, "\r\n", done);
    }
    if (this.written > this.#length) {
      // The upstream would take the excess for the next request on the connection (RFC 9112 §6.3).
      this.#attempt.fail(badLength(this.#length, this.written));
      release?.();
      return true;
    }
    if (this.written === this.#length) this.#finish();
    return this.#writeChunk(chunk, "", "", done);
  }

  /**
   * Returns the callback that is called when a chunk was sent. If other code may still see the chunk, the callback passes
   * an error to `release`, so that the memory is not freed.
   */
  #guard(release: Release): Release {
    const mayRelease = this.#memory.mayRelease?.(this.#connection) === true;
    return mayRelease ? release : (error) => release(error ?? SEEN);
  }

  onDrain(callback: () => void): void {
    this.#connection.onceDrained(callback);
  }

  end(trailers?: HeaderList): void {
    if (this.isOver) return;
    this.#isEnded = true;
    if (this.#length !== undefined)
      return this.#attempt.fail(badLength(this.#length, this.written));
    let section = "";
    try {
      if (trailers !== undefined) section = writeFields(trailers);
    } catch (error) {
      return this.#attempt.fail(error);
    }
    this.#finish();
    this.#connection.write(this.#afterHead(`0\r\n${section}\r\n`));
  }

  fail(reason: unknown): void {
    if (!this.isOver) this.#attempt.fail(toRequestBodyError(reason));
  }

  /** Writes bytes between two texts. Up to `SMALL_CHUNK` bytes are copied, and sent together with the texts in one write. */
  #writeChunk(bytes: Uint8Array, before: string, after: string, release?: Release): boolean {
    const connection = this.#connection;
    const { codec } = connection;
    const isAlone = before === "" && this.#head === undefined;
    if (!isAlone && bytes.byteLength <= SMALL_CHUNK) {
      const framed = [this.#afterHead(before), bytes, codec.encode(after)];
      return connection.write(concat(framed), release);
    }
    if (!isAlone) connection.write(this.#afterHead(before));
    const hasRoom = connection.write(bytes, release);
    return after === "" ? hasRoom : connection.write(codec.encode(after));
  }

  /** Returns the bytes of a text. If the head was not sent yet, its bytes come first. */
  #afterHead(text: string): Uint8Array {
    const head = this.#head;
    this.#head = undefined;
    const bytes = this.#connection.codec.encode(text);
    if (head === undefined) return bytes;
    return text === "" ? head : concat([head, bytes]);
  }

  #finish(): void {
    this.isOver = true;
    this.#connection.markRequestComplete();
  }
}

function writeFields(list: HeaderList): string {
  let lines = "";
  for (let i = 0; i < list.length; i += 2) {
    const name = list[i] as string;
    const value = list[i + 1] as string;
    if (!isSendable(name, value)) throw badRequest(name);
    lines += `${name}: ${value}\r\n`;
  }
  return lines;
}

/** The reason why the memory of a chunk must not be freed. It is never shown. */
const SEEN = new Error("other code may keep the chunk");
