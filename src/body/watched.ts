import { clientGone } from "../error.ts";
import type { HeaderList } from "../fields/headers.ts";
import type { Release } from "./memory.ts";
import { PassBody, PassSink } from "./pass.ts";
import type { BodySource, Sink, WholeOptions } from "./source.ts";

/** Watches a body. It is not a function, because an object that exists anyway can be the watcher, which costs less memory. */
export interface BodyWatcher {
  /**
   * Called when the body is over: without a reason after its last byte, and otherwise with the reason why it ended early.
   * Called again if the body is cancelled after that.
   */
  bodyOver(reason?: unknown): void;
  /** Called with the number of bytes that were taken so far. */
  bodyTaken?(bytes: number): void;
}

/** A body that reports when it is over, and how many bytes of it were taken. */
export class WatchedBody extends PassBody {
  readonly #watcher: BodyWatcher;

  constructor(source: BodySource, watcher: BodyWatcher) {
    super(source);
    this.#watcher = watcher;
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
    this.#watcher.bodyTaken?.(bytes.byteLength);
    this.#watcher.bodyOver();
    return bytes;
  }

  override pipeTo(sink: Sink): void | Promise<void> {
    return this.source.pipeTo(new WatchedSink(sink, this.#watcher));
  }

  override cancel(reason?: unknown): void {
    this.source.cancel(reason);
    this.#watcher.bodyOver(this.source.error ?? clientGone(reason));
  }
}

class WatchedSink extends PassSink {
  readonly #watcher: BodyWatcher;
  #bytes = 0;

  constructor(sink: Sink, watcher: BodyWatcher) {
    super(sink);
    this.#watcher = watcher;
  }

  override write(chunk: Uint8Array, release?: Release): boolean {
    this.#bytes += chunk.byteLength;
    this.#watcher.bodyTaken?.(this.#bytes);
    return super.write(chunk, release);
  }

  override end(trailers?: HeaderList): void {
    super.end(trailers);
    this.#watcher.bodyOver();
  }

  override fail(reason: unknown): void {
    super.fail(reason);
    this.#watcher.bodyOver(reason);
  }
}
