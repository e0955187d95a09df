import { Readable } from "node:stream";
import { type BodySource, HIGH_WATER_MARK, pipe, type Sink } from "../../src/body/source.ts";
import { badLength, toRequestBodyError } from "../../src/error.ts";
import type { Scope } from "../../src/transport/scope.ts";

/**
 * A request body that is still arriving, as a stream that undici reads.
 *
 * undici destroys the stream when the response is complete before the body, or when the request fails. If undici has begun to
 * read the body, this also cancels the body's source.
 */
export class UploadStream extends Readable implements Sink {
  readonly #source: BodySource;
  readonly #length: number | undefined;
  readonly #scope: Scope;
  #written = 0;
  #isPiped = false;
  #onDrain: (() => void) | undefined;

  /** `"owned"` if code other than undici's sees the chunks, such as an interceptor of the app, which may keep them. */
  readonly memory: "owned" | "borrowed";

  /**
   * @param length the length that was announced; undefined for chunked coding
   * @param isSeen whether code other than undici's sees the chunks
   */
  constructor(source: BodySource, length: number | undefined, scope: Scope, isSeen: boolean) {
    super({ highWaterMark: HIGH_WATER_MARK });
    this.#source = source;
    this.#length = length;
    this.#scope = scope;
    this.memory = isSeen ? "owned" : "borrowed";
    // undici removes its listeners when the request is over, and Node throws an error that has no listener.
    this.on("error", () => {});
  }

  // ── Sink: the body writes here ──

  write(chunk: Uint8Array): boolean {
    if (this.destroyed || chunk.byteLength === 0) return true;
    this.#scope.touch();
    this.#written += chunk.byteLength;
    // A dispatcher with `strictContentLength: false` would send the excess bytes, which the upstream would parse as the next
    // request (RFC 9112 §6.3).
    if (this.#length !== undefined && this.#written > this.#length) {
      this.destroy(badLength(this.#length, this.#written));
      return true;
    }
    return this.push(chunk);
  }

  onDrain(callback: () => void): void {
    this.#onDrain = callback;
  }

  end(): void {
    if (this.destroyed) return;
    if (this.#length !== undefined && this.#written < this.#length)
      this.destroy(badLength(this.#length, this.#written));
    else this.push(null);
  }

  fail(reason: unknown): void {
    this.destroy(toRequestBodyError(reason));
  }

  // ── Readable: undici reads here ──

  override _read(): void {
    if (!this.#isPiped) {
      this.#isPiped = true;
      return pipe(this.#source, this);
    }
    const onDrain = this.#onDrain;
    this.#onDrain = undefined;
    onDrain?.();
  }

  override _destroy(error: Error | null, callback: (error?: Error | null) => void): void {
    // A body of which nothing was read is left to another attempt.
    if (this.#isPiped && !this.readableEnded) this.#source.cancel(error);
    // Call back a source that waits for room, so that it notices the cancellation.
    this.#onDrain?.();
    callback(error);
  }
}
