import { Readable } from "node:stream";
import { type BodySource, HIGH_WATER_MARK, type Sink } from "../../src/body/source.ts";
import type { Lifetime } from "../../src/deadline.ts";
import { brokenOff } from "../../src/error.ts";
import { badLength } from "../http/writer.ts";

/**
 * A request body that is still arriving, as a stream that undici reads.
 *
 * undici destroys it when the response is complete first, or when the request fails: the body is cancelled then.
 */
export class Upload extends Readable implements Sink {
  readonly #source: BodySource;
  readonly #length: number | undefined;
  readonly #scope: Lifetime;
  #written = 0;
  #isPiped = false;
  #onRoom: (() => void) | undefined;

  /** Interceptors of the app's may keep the chunks that they see. */
  readonly memory: "owned" | "borrowed";

  /**
   * @param length the length that was announced; undefined for chunked coding
   * @param isSeen whether other code than undici's sees the chunks
   */
  constructor(source: BodySource, length: number | undefined, scope: Lifetime, isSeen: boolean) {
    super({ highWaterMark: HIGH_WATER_MARK });
    this.#source = source;
    this.#length = length;
    this.#scope = scope;
    this.memory = isSeen ? "owned" : "borrowed";
    // undici stops listening when the request is over; Node throws an error that has no listener.
    this.on("error", () => {});
  }

  // ── for the body ──

  write(chunk: Uint8Array): Promise<void> | undefined {
    if (this.destroyed || chunk.byteLength === 0) return undefined;
    this.#scope.touch();
    this.#written += chunk.byteLength;
    // A dispatcher with `strictContentLength: false` would send the rest as the next request (RFC 9112 §6.3).
    if (this.#length !== undefined && this.#written > this.#length) {
      this.destroy(badLength());
      return undefined;
    }
    if (this.push(chunk)) return undefined;
    return new Promise((resolve) => {
      this.#onRoom = resolve;
    });
  }

  end(): void {
    if (this.destroyed) return;
    if (this.#length !== undefined && this.#written < this.#length) this.destroy(badLength());
    else this.push(null);
  }

  fail(reason: unknown): void {
    this.destroy(brokenOff(reason));
  }

  // ── for undici ──

  override _read(): void {
    if (!this.#isPiped) {
      this.#isPiped = true;
      return void this.#source.pipeTo(this);
    }
    const onRoom = this.#onRoom;
    this.#onRoom = undefined;
    onRoom?.();
  }

  override _destroy(error: Error | null, callback: (error?: Error | null) => void): void {
    // Whoever waits for room is released: the source is told by `cancel`.
    if (!this.readableEnded) this.#source.cancel(error);
    this.#onRoom?.();
    callback(error);
  }
}
