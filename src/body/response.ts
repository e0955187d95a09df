import type { Scope } from "../scope.ts";
import { clientGone, type ProxyError } from "../error.ts";
import type { HeaderList } from "../transport.ts";
import { concat } from "./bytes.ts";
import { type BodySource, HIGH_WATER_MARK, type Sink, type StreamOptions } from "./source.ts";
import { toWebStream } from "./web.ts";

/** What a transport does for the response body that it fills. */
export interface Inlet {
  /** The client is slow: leave further bytes at the upstream. */
  pause(): void;
  /** The client takes more. */
  resume(): void;
  /** Nobody needs the rest: break off the exchange. */
  fail(reason: ProxyError): void;
}

/** Memory that chunks share with later ones, where a transport reads into buffers that it uses again. */
export interface Recycler {
  /** Whether a chunk lies in such memory. */
  has(chunk: Uint8Array): boolean;
  /** A copy of a chunk in memory of its own; the chunk is released. */
  take(chunk: Uint8Array): Uint8Array;
  /** The chunk's memory is no longer needed. */
  release(chunk: Uint8Array): void;
}

/**
 * A response body that a transport fills with chunks as they arrive.
 *
 * A small body has arrived as a whole in the same event as its head, and travels as bytes; only a body that is
 * still arriving is piped or streamed. The chunks restart the idle timeout, and while the client takes none, it pauses.
 */
export class ResponseBody implements BodySource {
  /** The length in bytes, where it is known. */
  readonly length: number | undefined;
  /** Bytes that have arrived and were not taken yet. */
  buffered = 0;
  /** Why the body broke off, where it has. */
  error: ProxyError | undefined;
  /** The trailer fields, once the body has ended. */
  trailers: HeaderList | undefined;
  /** Whether the transport was told to pause. */
  isPaused = false;
  readonly #scope: Scope;
  readonly #inlet: Inlet;
  readonly #recycler: Recycler | undefined;
  /** Chunks that arrived before the body was taken. */
  #chunks: Uint8Array[] = [];
  #isTaken = false;
  #isComplete = false;
  #isCancelled = false;
  #sink: Sink | undefined;
  /** Whether the sink has no room. */
  #isWaiting = false;
  /** Ends `pipeTo`. */
  #onOver: (() => void) | undefined;

  /**
   * Makes the body of a response whose headers have arrived.
   * @param inlet what fills the body: it is told when the client is slow, and when the rest is not needed
   * @param length the length in bytes where it is known
   * @param recycler where chunks may lie in memory that is used again
   */
  constructor(scope: Scope, inlet: Inlet, length?: number, recycler?: Recycler) {
    this.#scope = scope;
    this.#inlet = inlet;
    this.length = length;
    this.#recycler = recycler;
  }

  // ── for the transport ──

  /** A chunk has arrived. It must not change any more. */
  push(chunk: Uint8Array): void {
    if (this.#isOver) return;
    this.#scope.touch();
    const sink = this.#sink;
    if (sink === undefined) {
      this.#chunks.push(chunk);
      this.buffered += chunk.byteLength;
      // The idle timer goes on: it ends a body that is never taken.
      if (this.buffered >= HIGH_WATER_MARK) this.#pause();
      return;
    }
    if (!this.#write(sink, chunk) && this.#sink !== undefined) this.#wait(sink);
  }

  /** All chunks have arrived. */
  end(trailers?: HeaderList): void {
    if (this.#isOver) return;
    this.#isComplete = true;
    this.trailers = trailers;
    this.#scope.end();
    if (this.#sink !== undefined) this.#finish(this.#sink);
  }

  /** The upstream broke off, or the exchange was stopped. */
  fail(error: ProxyError): void {
    if (this.#isOver) return;
    this.error = error;
    this.#scope.end();
    const sink = this.#sink;
    this.#sink = undefined;
    sink?.fail(error);
    this.#onOver?.();
  }

  // ── for the server ──

  /** All bytes, where all of them have arrived. */
  whole(limit: number = Infinity): Uint8Array | undefined {
    if (this.error !== undefined) throw this.error;
    if (!this.#isComplete) return undefined;
    if (this.#chunks.length > 1 && this.buffered > limit) return undefined;
    return this.#join(this.#take());
  }

  /** Writes the chunks to a sink as they arrive. */
  pipeTo(sink: Sink): Promise<void> {
    const chunks = this.#take();
    const over = new Promise<void>((resolve) => {
      this.#onOver = resolve;
    });
    this.#start(sink, chunks);
    return over;
  }

  /** The chunks as a web stream. */
  stream(options?: StreamOptions): ReadableStream<Uint8Array> {
    return toWebStream(this, options);
  }

  /** Breaks off the exchange, unless the body has ended. */
  cancel(reason?: unknown): void {
    if (this.#isCancelled) return;
    this.#isCancelled = true;
    this.#sink = undefined;
    if (!this.#isOver) this.#inlet.fail(clientGone(reason));
    this.#onOver?.();
  }

  get #isOver(): boolean {
    return this.#isComplete || this.error !== undefined;
  }

  #take(): Uint8Array[] {
    if (this.#isTaken) throw new TypeError("fetchway: the response's body has already been taken");
    this.#isTaken = true;
    this.buffered = 0;
    return this.#chunks.splice(0);
  }

  #start(sink: Sink, chunks: readonly Uint8Array[]): void {
    const { error } = this;
    if (error !== undefined || (chunks.length === 0 && !this.#isComplete)) sink.flush?.();
    if (error !== undefined) {
      sink.fail(error);
      return this.#onOver?.();
    }
    let hasRoom = true;
    for (const chunk of chunks) {
      hasRoom = this.#write(sink, chunk);
      // The sink may cancel the body, or abort the exchange.
      if (this.#isCancelled) return;
      if (this.error !== undefined) {
        sink.fail(this.error);
        return this.#onOver?.();
      }
    }
    if (this.#isComplete) return this.#finish(sink);
    this.#sink = sink;
    if (hasRoom) this.#resume();
    else this.#wait(sink);
  }

  #join(chunks: readonly Uint8Array[]): Uint8Array {
    const recycler = this.#recycler;
    const bytes = concat(chunks);
    if (recycler === undefined) return bytes;
    if (chunks.length === 1) return recycler.has(bytes) ? recycler.take(bytes) : bytes;
    for (const chunk of chunks) if (recycler.has(chunk)) recycler.release(chunk);
    return bytes;
  }

  #finish(sink: Sink): void {
    sink.end(this.trailers);
    this.#onOver?.();
  }

  /** Writes a chunk. Memory that is used again goes to a sink only that gives it back. */
  #write(sink: Sink, chunk: Uint8Array): boolean {
    const recycler = this.#recycler;
    if (recycler === undefined || !recycler.has(chunk)) return sink.write(chunk);
    if (sink.memory !== "returned") return sink.write(recycler.take(chunk));
    return sink.write(chunk, () => recycler.release(chunk));
  }

  /** The client is slow: while it takes no chunks, the silence is not the upstream's fault. */
  #wait(sink: Sink): void {
    this.#scope.pauseIdle(true);
    this.#pause();
    // Chunks that were read before the pause are written meanwhile.
    if (this.#isWaiting) return;
    this.#isWaiting = true;
    sink.onDrain(() => {
      this.#isWaiting = false;
      this.#resume();
    });
  }

  #pause(): void {
    if (this.isPaused) return;
    this.isPaused = true;
    this.#inlet.pause();
  }

  #resume(): void {
    if (!this.isPaused || this.#isOver) return;
    this.isPaused = false;
    this.#scope.pauseIdle(false);
    this.#inlet.resume();
  }
}
