import type { NameSet, HeaderList } from "../fields/headers.ts";
import type { Ownership, Release } from "./memory.ts";
import type { BodySource, Sink, StreamOptions, WholeOptions } from "./source.ts";
import { toWebStream } from "./web.ts";

/**
 * A body that passes on another body. A subclass implements `whole` and `pipeTo`, and sees all bytes there, because
 * `stream` calls `pipeTo`.
 */
export abstract class PassBody implements BodySource {
  /** The body that is passed on. */
  protected readonly source: BodySource;

  /**
   * Passes on a body.
   * @param source the body to pass on
   */
  constructor(source: BodySource) {
    this.source = source;
  }

  /** Returns all bytes if they have arrived; see `BodySource`. */
  abstract whole(options?: WholeOptions): Uint8Array | undefined;

  /** Writes the body to a sink. */
  abstract pipeTo(sink: Sink): void | Promise<void>;

  /** Returns the chunks as a web stream. */
  stream(options?: StreamOptions): ReadableStream<Uint8Array> {
    return toWebStream(this, options);
  }

  /** Cancels the body that is passed on. */
  cancel(reason?: unknown): void {
    this.source.cancel(reason);
  }

  /** Whether another attempt can still send the body; see `BodySource`. */
  get isUntouched(): boolean {
    return this.source.isUntouched === true;
  }

  /** The bytes of the body, if all of them were kept for another attempt; otherwise undefined. */
  get replay(): Uint8Array | undefined {
    return this.source.replay;
  }

  /** The length in bytes, where it is known. */
  get length(): number | undefined {
    return this.source.length;
  }

  /** Whether the client sends the body only after a 100 (Continue). */
  get awaitsContinue(): boolean {
    return this.source.awaitsContinue === true;
  }

  /** The trailer fields, once the body has ended. */
  get trailers(): HeaderList | undefined {
    return this.source.trailers;
  }

  /** @internal */
  restrictTrailers(dropped: NameSet | undefined, connection: string | undefined): void {
    this.source.restrictTrailers?.(dropped, connection);
  }

  /** Returns the names in a value of `Trailer` that may be forwarded; undefined if there are none. */
  announceTrailers(names: string): string | undefined {
    return this.source.announceTrailers?.(names);
  }
}

/** A sink that passes everything on to another sink. */
export class PassSink implements Sink {
  /** The sink that gets everything. */
  readonly sink: Sink;

  /**
   * Passes a body on to a sink.
   * @param sink the sink that gets everything
   */
  constructor(sink: Sink) {
    this.sink = sink;
  }

  /** Passes a chunk on. */
  write(chunk: Uint8Array, release?: Release): boolean {
    return this.sink.write(chunk, release);
  }

  /** Calls the callback once, when there is room again. */
  onDrain(callback: () => void): void {
    this.sink.onDrain(callback);
  }

  /** Asks the sink to send the head of the message before the first chunk. */
  flush(): void {
    this.sink.flush?.();
  }

  /** Passes the end of the body on. */
  end(trailers?: HeaderList): void {
    this.sink.end(trailers);
  }

  /** Reports to the sink that the body cannot be completed. */
  fail(reason: unknown): void {
    this.sink.fail(reason);
  }

  /** Whether the reader of the sink has read no byte. */
  get isUnread(): boolean {
    return this.sink.isUnread === true;
  }

  /** What the sink does with the memory of its chunks. */
  get memory(): Ownership {
    return this.sink.memory ?? "owned";
  }
}
