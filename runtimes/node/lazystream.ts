import { type BodySource, HIGH_WATER_MARK, type StreamOptions } from "../../src/body/source.ts";
import { sizeOf, StreamSink } from "../../src/body/web.ts";

/** A sink that takes the body only when the stream is read. */
class LazySink extends StreamSink {
  #isTaken = false;

  override get isUnread(): boolean {
    return !this.#isTaken;
  }

  override start(controller: ReadableStreamDefaultController<Uint8Array>): void {
    this.controller = controller;
  }

  override pull(): void {
    if (this.#isTaken) return super.pull();
    this.#isTaken = true;
    this.take();
  }

  override write(chunk: Uint8Array): boolean {
    const hasRoom = super.write(chunk);
    return hasRoom || (this.controller.desiredSize ?? 0) + HIGH_WATER_MARK > 0;
  }
}

/**
 * With a high-water mark of 0, the stream calls `pull` only when it is read. Such a stream never reports room for a chunk, so
 * `LazySink.write` allows `HIGH_WATER_MARK` bytes itself.
 */
const STRATEGY: QueuingStrategy<Uint8Array> = { highWaterMark: 0, size: sizeOf };

/**
 * Returns a web stream into which a body is piped once the stream is read: until then, other code may take the body.
 * Cancelling the stream cancels the body.
 */
export function toLazyStream(body: BodySource, options: StreamOptions): ReadableStream<Uint8Array> {
  return new ReadableStream(new LazySink(body, options), STRATEGY);
}
