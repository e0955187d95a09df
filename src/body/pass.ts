import type { NameSet, HeaderList } from "../fields/headers.ts";
import type { Ownership, Release } from "./memory.ts";
import type { BodySource, Sink, StreamOptions, WholeOptions } from "./source.ts";
import { toWebStream } from "./web.ts";

/**
 * A body that passes on another body. A subclass implements `whole` and `pipeTo`, and sees all bytes there, because
 * `stream` calls `pipeTo`.
 */
export abstract class PassBody implements BodySource {
  protected readonly source: BodySource;

  constructor(source: BodySource) {
    this.source = source;
  }

  abstract whole(options?: WholeOptions): Uint8Array | undefined;

  abstract pipeTo(sink: Sink): void | Promise<void>;

  stream(options?: StreamOptions): ReadableStream<Uint8Array> {
    return toWebStream(this, options);
  }

  cancel(reason?: unknown): void {
    this.source.cancel(reason);
  }

  get isUntouched(): boolean {
    return this.source.isUntouched === true;
  }

  get replay(): Uint8Array | undefined {
    return this.source.replay;
  }

  get length(): number | undefined {
    return this.source.length;
  }

  get awaitsContinue(): boolean {
    return this.source.awaitsContinue === true;
  }

  get trailers(): HeaderList | undefined {
    return this.source.trailers;
  }

  restrictTrailers(dropped: NameSet | undefined, connection: string | undefined): void {
    this.source.restrictTrailers?.(dropped, connection);
  }

  announceTrailers(names: string): string | undefined {
    return this.source.announceTrailers?.(names);
  }
}

/** A sink that passes everything on to another sink. */
export class PassSink implements Sink {
  readonly sink: Sink;

  constructor(sink: Sink) {
    this.sink = sink;
  }

  write(chunk: Uint8Array, release?: Release): boolean {
    return this.sink.write(chunk, release);
  }

  onDrain(callback: () => void): void {
    this.sink.onDrain(callback);
  }

  flush(): void {
    this.sink.flush?.();
  }

  end(trailers?: HeaderList): void {
    this.sink.end(trailers);
  }

  fail(reason: unknown): void {
    this.sink.fail(reason);
  }

  get isUnread(): boolean {
    return this.sink.isUnread === true;
  }

  get memory(): Ownership {
    return this.sink.memory ?? "owned";
  }
}
