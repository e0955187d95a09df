import type { NameSet, HeaderList } from "../fields/headers.ts";
import { concat } from "./memory.ts";
import { type BodySource, pipe, type Sink, type StreamOptions } from "./source.ts";
import { toWebStream } from "./web.ts";

/**
 * Collects the chunks of a body up to a limit. If the body is longer than the limit, or `isEnough` returns true, no byte is
 * lost: this object is then itself a body, which first writes the collected chunks, and passes further chunks on as they
 * arrive.
 *
 *     source → write() → chunks in memory            while `collect()` is pending
 *     source → write() → the sink of `pipeTo(sink)`  afterwards, with the backpressure of that sink
 */
export class HeldBody implements BodySource, Sink {
  readonly #source: BodySource;
  readonly #limit: number;
  readonly #isEnough: ((chunk: Uint8Array) => boolean) | undefined;
  readonly #chunks: Uint8Array[] = [];
  #size = 0;
  #sink: Sink | undefined;
  /** The callback that the source has passed to `onDrain` before `pipeTo` was called; undefined for none. */
  #onDrain: (() => void) | undefined;
  #settle: ((bytes: Uint8Array | undefined) => void) | undefined;
  #reject: ((reason: unknown) => void) | undefined;
  /** Does to a sink what the source has done: ends or fails it. Undefined while the source may still write. */
  #finish: ((sink: Sink) => void) | undefined;
  #isCancelled = false;

  /**
   * @param limit the maximum number of bytes to collect
   * @param isEnough called with each chunk; returns whether no further chunk needs to be collected
   */
  constructor(source: BodySource, limit: number, isEnough?: (chunk: Uint8Array) => boolean) {
    this.#source = source;
    this.#limit = limit;
    this.#isEnough = isEnough;
  }

  /**
   * Waits for the end of the body, and returns its bytes. Returns undefined as soon as the body exceeds the limit, or
   * `isEnough` returns true; the caller then passes this body on, or cancels it.
   */
  collect(): Promise<Uint8Array | undefined> {
    return new Promise((resolve, reject) => {
      this.#settle = resolve;
      this.#reject = reject;
      pipe(this.#source, this);
    });
  }

  // ── `Sink`: called by the source ──

  write(chunk: Uint8Array): boolean {
    if (this.#sink !== undefined) return this.#sink.write(chunk);
    this.#chunks.push(chunk);
    this.#size += chunk.byteLength;
    const hasRoom = this.#size <= this.#limit;
    if (!hasRoom || this.#isEnough?.(chunk) === true) this.#settle?.(undefined);
    return hasRoom;
  }

  /** Whether no sink has the body yet, or its sink is unread. If so, the idle timeout runs: the body may never be read. */
  get isUnread(): boolean {
    return this.#sink === undefined || this.#sink.isUnread === true;
  }

  onDrain(callback: () => void): void {
    if (this.#sink !== undefined) this.#sink.onDrain(callback);
    else this.#onDrain = callback;
  }

  end(trailers?: HeaderList): void {
    this.#close((sink) => sink.end(trailers));
    this.#settle?.(this.#size <= this.#limit ? concat(this.#chunks) : undefined);
  }

  fail(reason: unknown): void {
    this.#close((sink) => sink.fail(reason));
    this.#reject?.(reason);
  }

  #close(finish: (sink: Sink) => void): void {
    this.#finish = finish;
    if (this.#sink !== undefined) finish(this.#sink);
  }

  // ── `BodySource`: called by the code that takes the body ──

  /** Always returns undefined: code that needs all bytes of a short body calls `collect` instead. */
  whole(): undefined {}

  pipeTo(sink: Sink): void {
    let hasRoom = true;
    for (const chunk of this.#chunks.splice(0)) {
      hasRoom = sink.write(chunk);
      // The write may have caused a cancellation of the body. If so, write nothing more.
      if (this.#isCancelled) return;
    }
    if (this.#finish !== undefined) return this.#finish(sink);
    this.#sink = sink;
    const resume = this.#onDrain;
    if (resume === undefined) return;
    if (hasRoom) resume();
    else sink.onDrain(resume);
  }

  stream(options?: StreamOptions): ReadableStream<Uint8Array> {
    return toWebStream(this, options);
  }

  cancel(reason?: unknown): void {
    this.#isCancelled = true;
    this.#chunks.length = 0;
    this.#source.cancel(reason);
  }

  get length(): number | undefined {
    return this.#source.length;
  }

  get error(): Error | undefined {
    return this.#source.error;
  }

  get trailers(): HeaderList | undefined {
    return this.#source.trailers;
  }

  restrictTrailers(dropped: NameSet | undefined, connection: string | undefined): void {
    this.#source.restrictTrailers?.(dropped, connection);
  }

  announceTrailers(names: string): string | undefined {
    return this.#source.announceTrailers?.(names);
  }
}
