import type { HeaderList } from "../fields/headers.ts";
import { BytesBody } from "./bytes.ts";
import { concat, copyBytes, type Release } from "./memory.ts";
import { PassBody, PassSink } from "./pass.ts";
import type { BodySource, Sink, WholeOptions } from "./source.ts";

/**
 * Returns a body for the next attempt: it has the bytes and the trailer fields of a request body that was already sent.
 * @returns `null` if the request has no body; undefined if not all bytes of the body were kept
 */
export function replayOf(body: BodySource | null): BytesBody | null | undefined {
  if (body === null) return null;
  return body.replay && new BytesBody(body.replay, body.trailers);
}

/** A body that keeps a copy of its chunks while it is sent, up to a limit. */
export class ReplayBody extends PassBody {
  readonly #limit: number;
  readonly #length: number | undefined;
  #replay: Uint8Array | undefined;

  /**
   * @param limit the number of bytes above which no copy is kept
   * @param length the length in bytes where the request declares it
   */
  constructor(source: BodySource, limit: number, length: number | undefined) {
    super(source);
    this.#limit = limit;
    this.#length = length ?? source.length;
  }

  override get length(): number | undefined {
    return this.#length;
  }

  override get replay(): Uint8Array | undefined {
    return this.#replay;
  }

  override whole(options?: WholeOptions): Uint8Array | undefined {
    const bytes = this.source.whole(options);
    if (bytes !== undefined && bytes.byteLength <= this.#limit) this.#replay = bytes;
    return bytes;
  }

  override pipeTo(sink: Sink): void | Promise<void> {
    const { length } = this;
    if ((length ?? 0) > this.#limit) return this.source.pipeTo(sink);
    const keep = (bytes: Uint8Array): void => void (this.#replay = bytes);
    return this.source.pipeTo(new CopySink(sink, this.#limit, length, keep));
  }
}

/** Copies the chunks on their way to a sink, and passes the copy to `keep` once it is complete. */
class CopySink extends PassSink {
  readonly #limit: number;
  readonly #length: number | undefined;
  readonly #keep: (bytes: Uint8Array) => void;
  /** The copies so far; undefined once they were passed to `keep`, or the limit was exceeded. */
  #copies: Uint8Array[] | undefined = [];
  #size = 0;

  /** @param keep called with the bytes of the whole body, unless they exceed the limit */
  constructor(
    sink: Sink,
    limit: number,
    length: number | undefined,
    keep: (bytes: Uint8Array) => void,
  ) {
    super(sink);
    this.#limit = limit;
    this.#length = length;
    this.#keep = keep;
  }

  override write(chunk: Uint8Array, release?: Release): boolean {
    this.#size += chunk.byteLength;
    if (this.#size > this.#limit) this.#copies = undefined;
    else this.#copies?.push(copyBytes(chunk));
    // Hand over a body of known length with its last chunk, because the response may arrive before the source reports
    // the end.
    if (this.#size === this.#length) this.#handOver();
    return super.write(chunk, release);
  }

  override end(trailers?: HeaderList): void {
    this.#handOver();
    super.end(trailers);
  }

  #handOver(): void {
    if (this.#copies !== undefined) this.#keep(concat(this.#copies));
    this.#copies = undefined;
  }
}
