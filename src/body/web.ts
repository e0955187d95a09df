import type { HeaderList } from "../fields/headers.ts";
import { type BodySource, HIGH_WATER_MARK, type Sink, type StreamOptions } from "./source.ts";

/**
 * A sink that is the underlying source of a web stream: the stream yields the chunks that are written to the sink. The
 * class does not declare that it implements `UnderlyingDefaultSource`, because apps that use Node's types without the
 * types of the DOM have no type of that name.
 */
export class StreamSink implements Sink {
  readonly #source: BodySource;
  readonly #options: StreamOptions;
  #onDrain: (() => void) | undefined;
  #written = 0;
  protected controller!: ReadableStreamDefaultController<Uint8Array>;
  protected isCancelled = false;

  constructor(source: BodySource, options: StreamOptions = {}) {
    this.#source = source;
    this.#options = options;
  }

  start(controller: ReadableStreamDefaultController<Uint8Array>): void {
    this.controller = controller;
    this.take();
  }

  /** Takes the body: from now on, its chunks are written to this sink. */
  protected take(): void {
    // An exception of `pipeTo` is thrown to the code that asked for the stream, unlike in `pipe()`, which fails the sink.
    const piped = this.#source.pipeTo(this);
    if (piped !== undefined) piped.catch((thrown: unknown) => this.fail(thrown));
  }

  pull(): void {
    const onDrain = this.#onDrain;
    this.#onDrain = undefined;
    onDrain?.();
  }

  cancel(reason: unknown): void {
    this.isCancelled = true;
    this.#source.cancel(reason);
  }

  /** Whether nothing has been read from the stream, which then still holds all bytes that were written to it. */
  get isUnread(): boolean {
    return HIGH_WATER_MARK - (this.controller.desiredSize ?? Infinity) >= this.#written;
  }

  flush(): void {
    if (this.#options.flush === true && !this.isCancelled)
      this.controller.enqueue(new Uint8Array());
  }

  write(chunk: Uint8Array): boolean {
    if (this.isCancelled) return true;
    this.controller.enqueue(chunk);
    this.#written += chunk.byteLength;
    return (this.controller.desiredSize ?? 0) > 0;
  }

  onDrain(callback: () => void): void {
    this.#onDrain = callback;
  }

  end(trailers?: HeaderList): void {
    if (this.isCancelled) return;
    if (trailers !== undefined) this.#options.onTrailers?.(trailers);
    this.controller.close();
  }

  fail(reason: unknown): void {
    if (this.isCancelled) return;
    this.#options.onFail?.();
    this.controller.error(this.#options.quiet === true ? undefined : reason);
  }
}

/** Returns the size of a chunk in bytes, for a stream whose queue is limited in bytes. */
export function sizeOf({ byteLength }: Uint8Array): number {
  return byteLength;
}

const STRATEGY: QueuingStrategy<Uint8Array> = { highWaterMark: HIGH_WATER_MARK, size: sizeOf };

/**
 * Returns a web stream into which a body is piped; cancelling the stream cancels the body. The chunks belong to the
 * reader of the stream.
 * @throws what `source.pipeTo` throws
 */
export function toWebStream(
  source: BodySource,
  options?: StreamOptions,
): ReadableStream<Uint8Array> {
  return new ReadableStream(new StreamSink(source, options), STRATEGY);
}
