import { clientGone } from "../error.ts";
import type { HeaderList } from "../fields/headers.ts";
import type { Release } from "./memory.ts";
import { PassBody, PassSink } from "./pass.ts";
import type { BodySource, Sink, WholeOptions } from "./source.ts";

/**
 * Called when a body is over: without a reason after its last byte, and otherwise with the reason why it ended early.
 */
type OnEnd = (reason?: unknown) => void;
/** Called with the number of bytes that were taken so far. */
type OnBytes = (bytes: number) => void;

/** A body that reports when it is over, and how many bytes of it were taken. */
export class WatchedBody extends PassBody {
  readonly #onEnd: OnEnd;
  readonly #onBytes: OnBytes | undefined;

  constructor(source: BodySource, onEnd: OnEnd, onBytes?: OnBytes) {
    super(source);
    this.#onEnd = onEnd;
    this.#onBytes = onBytes;
  }

  get buffered(): number | undefined {
    return this.source.buffered;
  }

  get error(): Error | undefined {
    return this.source.error;
  }

  override whole(options?: WholeOptions): Uint8Array | undefined {
    const bytes = this.source.whole(options);
    if (bytes === undefined) return undefined;
    this.#onBytes?.(bytes.byteLength);
    this.#onEnd();
    return bytes;
  }

  override pipeTo(sink: Sink): void | Promise<void> {
    return this.source.pipeTo(new WatchedSink(sink, this.#onEnd, this.#onBytes));
  }

  override cancel(reason?: unknown): void {
    this.source.cancel(reason);
    this.#onEnd(this.source.error ?? clientGone(reason));
  }
}

class WatchedSink extends PassSink {
  readonly #onEnd: OnEnd;
  readonly #onBytes: OnBytes | undefined;
  #bytes = 0;

  constructor(sink: Sink, onEnd: OnEnd, onBytes?: OnBytes) {
    super(sink);
    this.#onEnd = onEnd;
    this.#onBytes = onBytes;
  }

  override write(chunk: Uint8Array, release?: Release): boolean {
    this.#bytes += chunk.byteLength;
    this.#onBytes?.(this.#bytes);
    return super.write(chunk, release);
  }

  override end(trailers?: HeaderList): void {
    super.end(trailers);
    this.#onEnd();
  }

  override fail(reason: unknown): void {
    super.fail(reason);
    this.#onEnd(reason);
  }
}
