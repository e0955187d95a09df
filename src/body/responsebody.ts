import { clientGone, type ProxyError } from "../error.ts";
import type { HeaderList } from "../fields/headers.ts";
import { cleanTrailerNames, cleanTrailers } from "../fields/trailers.ts";
import { concat, type ReadMemory } from "./memory.ts";
import {
  alreadyTaken,
  type BodySource,
  HIGH_WATER_MARK,
  type Sink,
  type StreamOptions,
  type WholeOptions,
} from "./source.ts";
import { toWebStream } from "./web.ts";

/** The transport's side of a response body. The body calls it when the client is slow, or does not need the rest. */
export interface Inlet {
  /** Stops reading from the upstream, because the client is slow; further bytes then wait at the upstream. */
  pause(): void;
  /** Continues reading from the upstream, because the client takes chunks again. */
  resume(): void;
  /** Aborts the exchange, because the rest of the body is not needed. */
  cancel(reason: ProxyError): void;
}

/** The part of an attempt's scope that a response body uses. */
export interface BodyScope {
  /** Reports that a chunk has arrived. */
  touch(): void;
  /**
   * Pauses the idle timeout while the client takes no chunks, and resumes it afterwards.
   * @param reader the sink of the body; the timeout keeps running while `reader.isUnread` is true
   */
  pauseIdle(isPaused: boolean, reader?: { readonly isUnread?: boolean }): void;
  /** Reports that the body has failed. The body calls `end` afterwards. */
  failed(error: ProxyError): void;
  /** Reports that the body has ended. */
  end(): void;
}

const NO_CHUNKS: readonly Uint8Array[] = [];

/**
 * A response body that a transport fills with chunks as they arrive.
 *
 * A small body usually arrives together with its head, and `whole()` then returns its bytes; a body that is still
 * arriving is piped or streamed. Each chunk restarts the idle timeout. Once the client has begun to take chunks, the timeout
 * is paused whenever the client takes none.
 */
export class ResponseBody implements BodySource {
  /** The length in bytes, where it is known. */
  readonly length: number | undefined;
  /** The number of bytes that have arrived, but were not taken yet. */
  buffered = 0;
  /** The reason why the body has failed; undefined if it has not failed. */
  error: ProxyError | undefined;
  /** Whether the transport is paused. */
  isPaused = false;
  readonly #scope: BodyScope;
  readonly #inlet: Inlet;
  readonly #readMemory: ReadMemory | undefined;
  /** Chunks that arrived before the body was taken; undefined while there are none. */
  #chunks: Uint8Array[] | undefined;
  #isTaken = false;
  #isComplete = false;
  #isCancelled = false;
  #sink: Sink | undefined;
  /** The trailer fields as they arrived. */
  #trailers: HeaderList | undefined;
  /** The value of the response's `Connection`, which names trailer fields to drop; undefined for none. */
  #connection: string | undefined;
  /** Whether an `onDrain` callback is pending at the sink. */
  #isWaiting = false;

  /**
   * Makes the body of a response whose headers have arrived.
   * @param inlet the transport's side, which is called when the client is slow, and when the rest is not needed
   * @param length the length in bytes where it is known
   * @param readMemory identifies the chunks that share an ArrayBuffer, or are freed after use; undefined if each chunk has
   * an ArrayBuffer of its own, which is not freed. `sharedMemory` is for HTTP clients whose chunks are views of larger buffers
   */
  constructor(scope: BodyScope, inlet: Inlet, length?: number, readMemory?: ReadMemory) {
    this.#scope = scope;
    this.#inlet = inlet;
    this.length = length;
    this.#readMemory = readMemory;
  }

  // ── for the transport ──

  /** Adds a chunk that has arrived. Its bytes must not change any more. */
  push(chunk: Uint8Array): void {
    if (this.#isOver) return;
    this.#scope.touch();
    const sink = this.#sink;
    if (sink === undefined) {
      // A small body is one chunk. An array literal with that chunk takes less memory than an empty array that grows
      // with `push`.
      if (this.#chunks === undefined) this.#chunks = [chunk];
      else this.#chunks.push(chunk);
      this.buffered += chunk.byteLength;
      // The idle timer keeps running, so that it aborts an exchange whose body is never taken.
      if (this.buffered >= HIGH_WATER_MARK) this.#pause();
      return;
    }
    if (!this.#write(sink, chunk) && this.#sink !== undefined) this.#wait(sink);
  }

  /** Ends the body. Called after the last chunk. */
  end(trailers?: HeaderList): void {
    if (this.#isOver) return;
    this.#isComplete = true;
    this.#trailers = trailers;
    this.#scope.end();
    this.#sink?.end(this.trailers);
  }

  /** Fails the body. Called when the upstream has closed the connection too early, or the exchange was aborted. */
  fail(error: ProxyError): void {
    if (this.#isOver) return;
    this.error = error;
    this.#scope.failed(error);
    this.#scope.end();
    const sink = this.#sink;
    this.#sink = undefined;
    sink?.fail(error);
  }

  // ── for the server ──

  /** The trailer fields that may be forwarded, once the body has ended; undefined for none. */
  get trailers(): HeaderList | undefined {
    return this.#trailers && cleanTrailers(this.#trailers, undefined, this.#connection);
  }

  /** Makes `trailers` leave out the fields that the response's `Connection` nominates. */
  restrictTrailers(_dropped: undefined, connection: string | undefined): void {
    this.#connection = connection;
  }

  /** Returns the names in a value of `Trailer` that may be forwarded; undefined if there are none. */
  announceTrailers(names: string): string | undefined {
    return cleanTrailerNames(names);
  }

  /**
   * Returns all bytes. Returns undefined if some bytes have not arrived yet, or if the bytes are in several chunks that are
   * together longer than `joinUpTo`; the body can then still be taken.
   * @throws ProxyError for a body that has failed
   */
  whole(options?: WholeOptions): Uint8Array | undefined {
    if (this.error !== undefined) throw this.error;
    if (!this.#isComplete) return undefined;
    const isSplit = this.#chunks !== undefined && this.#chunks.length > 1;
    if (isSplit && this.buffered > (options?.joinUpTo ?? Infinity)) return undefined;
    return this.#join(this.#takeChunks(), options?.memory === "borrowed");
  }

  /** Writes the chunks that have arrived to a sink, and then each further chunk when it arrives. */
  pipeTo(sink: Sink): void {
    const chunks = this.#takeChunks();
    if (this.error !== undefined || (chunks.length === 0 && !this.#isComplete)) sink.flush?.();
    let hasRoom = true;
    for (const chunk of chunks) {
      if (this.error !== undefined) break;
      hasRoom = this.#write(sink, chunk);
      // The write may have caused a cancellation of the body. If so, write nothing more.
      if (this.#isCancelled) return;
    }
    if (this.error !== undefined) return sink.fail(this.error);
    if (this.#isComplete) return sink.end(this.trailers);
    this.#sink = sink;
    if (hasRoom) this.#resume();
    else this.#wait(sink);
  }

  /** Returns the chunks as a web stream. */
  stream(options?: StreamOptions): ReadableStream<Uint8Array> {
    return toWebStream(this, options);
  }

  /** Aborts the exchange, unless the body has ended. */
  cancel(reason?: unknown): void {
    if (this.#isCancelled) return;
    this.#isCancelled = true;
    this.#sink = undefined;
    if (!this.#isOver) this.#inlet.cancel(clientGone(reason));
  }

  get #isOver(): boolean {
    return this.#isComplete || this.error !== undefined;
  }

  /** Marks the body as taken, and returns the chunks that have arrived. */
  #takeChunks(): readonly Uint8Array[] {
    if (this.#isTaken) throw alreadyTaken();
    this.#isTaken = true;
    this.buffered = 0;
    const chunks = this.#chunks ?? NO_CHUNKS;
    this.#chunks = undefined;
    return chunks;
  }

  /**
   * Joins chunks into one.
   * @param mayShare whether the result may lie in shared memory
   */
  #join(chunks: readonly Uint8Array[], mayShare: boolean): Uint8Array {
    const readMemory = this.#readMemory;
    if (chunks.length === 1) {
      const chunk = chunks[0] as Uint8Array;
      if (readMemory === undefined || (mayShare && readMemory.release === undefined)) return chunk;
      return readMemory.has(chunk) ? readMemory.copyOut(chunk) : chunk;
    }
    if (chunks.length === 0) return new Uint8Array(0);
    const bytes = concat(chunks);
    if (readMemory?.release !== undefined) {
      for (const chunk of chunks) if (readMemory.has(chunk)) readMemory.release(chunk);
    }
    return bytes;
  }

  /** Writes a chunk to a sink: the chunk itself if its memory allows what `sink.memory` says, and otherwise a copy. */
  #write(sink: Sink, chunk: Uint8Array): boolean {
    const readMemory = this.#readMemory;
    if (readMemory === undefined || !readMemory.has(chunk)) return sink.write(chunk);
    const { memory = "owned" } = sink;
    if (readMemory.release === undefined) {
      return sink.write(memory === "owned" ? readMemory.copyOut(chunk) : chunk);
    }
    if (memory !== "returned") return sink.write(readMemory.copyOut(chunk));
    return sink.write(chunk, (error) => {
      if (!error) readMemory.release?.(chunk);
    });
  }

  /**
   * Pauses the transport and the idle timeout until the sink has room, because the client is slow, not the upstream.
   */
  #wait(sink: Sink): void {
    this.#scope.pauseIdle(true, sink);
    this.#pause();
    // Chunks that were read before the pause still arrive, and call this method again. One callback is enough for all.
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
