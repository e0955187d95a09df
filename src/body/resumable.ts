import type { HeaderList } from "../fields/headers.ts";
import { copyBytes, type Ownership, type Release } from "./memory.ts";
import { PassBody } from "./pass.ts";
import { alreadyTaken, type BodySource, pipe, type Sink, type WholeOptions } from "./source.ts";

/**
 * A body that the next attempt can send from the beginning: a copy of each chunk is kept, up to a limit. While all bytes
 * that were read are kept, `cancel()` only makes the source wait, and the body can be taken again. The attempt that has taken
 * it last gets its bytes.
 *
 *     source → write() → copies in memory → the sink of an attempt
 *                        copies in memory → the sink of the next attempt ← write() ← the rest of the source
 */
export class ResumableBody extends PassBody implements Sink {
  readonly #limit: number;
  /** The copies of all chunks so far; undefined once they exceed the limit, or no other attempt follows. */
  #kept: Uint8Array[] | undefined = [];
  #size = 0;
  /** The bytes that `whole` has returned, if they are within the limit; otherwise undefined. */
  #whole: Uint8Array | undefined;
  #isPiped = false;
  /** The sink of the present attempt; undefined after its end. */
  #sink: Sink | undefined;
  /** The sink of the latest attempt. It is kept after the end of that attempt. */
  #lastSink: Sink | undefined;
  /** Cancels the source; set when an attempt has cancelled this body, and another attempt may still take it. */
  #cancelSource: (() => void) | undefined;
  /** The `onDrain` callback of the source while the source waits for room; otherwise undefined. */
  #onDrain: (() => void) | undefined;
  /** Does to a sink what the source has done: ends or fails it. Undefined while the source may still write. */
  #finish: ((sink: Sink) => void) | undefined;

  /** @param limit the number of bytes above which no copy is kept */
  constructor(source: BodySource, limit: number) {
    super(source);
    this.#limit = limit;
  }

  /** Makes the present attempt the last one. If that attempt has cancelled the body, the source is cancelled now. */
  settle(): void {
    this.#kept = undefined;
    this.#cancelSource?.();
  }

  // ── `BodySource`: called by the attempts ──

  override get isUntouched(): boolean {
    return this.#isPiped ? this.#kept !== undefined : super.isUntouched;
  }

  override get replay(): Uint8Array | undefined {
    return this.#whole ?? super.replay;
  }

  override whole(options?: WholeOptions): Uint8Array | undefined {
    if (this.#isPiped) return undefined;
    const bytes = this.source.whole(options);
    if (bytes !== undefined && bytes.byteLength <= this.#limit) this.#whole = bytes;
    return bytes;
  }

  override pipeTo(sink: Sink): void {
    const isFirst = !this.#isPiped;
    if (!isFirst && !this.isUntouched) return sink.fail(alreadyTaken());
    this.#isPiped = true;
    // The web stream of a failed attempt may be cancelled only after this attempt has begun. Fail that stream, so that its
    // cancellation no longer reaches this body.
    this.#lastSink?.fail(alreadyTaken());
    this.#sink = this.#lastSink = sink;
    this.#cancelSource = undefined;
    if (isFirst) pipe(this.source, this);
    else this.#resume(sink, this.#kept ?? []);
  }

  /** Writes the copies, which are at most one chunk longer than the limit, and lets the source go on. */
  #resume(sink: Sink, kept: readonly Uint8Array[]): void {
    if (kept.length === 0) sink.flush?.();
    let hasRoom = true;
    const isOwned = (sink.memory ?? "owned") === "owned";
    for (const chunk of kept) {
      hasRoom = sink.write(isOwned ? copyBytes(chunk) : chunk);
      // The write may have ended the attempt. If so, write nothing more.
      if (this.#sink !== sink) return;
    }
    if (this.#size > this.#limit) this.#kept = undefined;
    if (this.#finish !== undefined) return this.#close(this.#finish);
    if (hasRoom) this.#drained(sink);
    else sink.onDrain(() => this.#drained(sink));
  }

  override cancel(reason?: unknown): void {
    this.#sink = undefined;
    if (this.#kept === undefined) this.source.cancel(reason);
    else this.#cancelSource = () => this.source.cancel(reason);
  }

  // ── `Sink`: called by the source ──

  /**
   * While copies are kept, `"returned"` becomes `"borrowed"`. Otherwise, the source could wait for the `release` of a chunk
   * that an earlier attempt has not sent, and would write nothing to the sink of the next attempt.
   */
  get memory(): Ownership {
    const { memory = "owned" } = this.#sink ?? {};
    return memory === "returned" && this.#kept !== undefined ? "borrowed" : memory;
  }

  flush(): void {
    this.#sink?.flush?.();
  }

  write(chunk: Uint8Array, release?: Release): boolean {
    const sink = this.#sink;
    this.#size += chunk.byteLength;
    if (sink === undefined) {
      this.#kept?.push(chunk);
      return false;
    }
    if (this.#size > this.#limit) this.#kept = undefined;
    this.#kept?.push(copyBytes(chunk));
    return sink.write(chunk, release);
  }

  onDrain(callback: () => void): void {
    this.#onDrain = callback;
    const sink = this.#sink;
    sink?.onDrain(() => this.#drained(sink));
  }

  /** Resumes the source, unless the attempt of the sink is over. */
  #drained(sink: Sink): void {
    if (this.#sink !== sink) return;
    const onDrain = this.#onDrain;
    this.#onDrain = undefined;
    onDrain?.();
  }

  end(trailers?: HeaderList): void {
    this.#close((sink) => sink.end(trailers));
  }

  fail(reason: unknown): void {
    this.#close((sink) => sink.fail(reason));
  }

  #close(finish: (sink: Sink) => void): void {
    const sink = this.#sink;
    this.#finish = finish;
    this.#sink = undefined;
    if (sink !== undefined) finish(sink);
  }
}
