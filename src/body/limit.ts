import { ProxyError } from "../error.ts";
import type { HeaderList } from "../fields/headers.ts";
import type { Release } from "./memory.ts";
import { PassBody, PassSink } from "./pass.ts";
import type { BodySource, Sink, WholeOptions } from "./source.ts";

/** Returns the error of a request body that is longer than `bodyLimit`. */
export function tooLarge(limit: number): ProxyError {
  return new ProxyError("http_request_error", {
    status: 413,
    message: `the request body is over the limit of ${limit} bytes`,
  });
}

/** The part of an exchange's scope that a limited body uses. */
interface Abortable {
  abort(reason: unknown): void;
}

/** A body that must not exceed a limit: otherwise, `whole` throws, and `pipeTo` aborts the exchange. */
export class LimitedBody extends PassBody {
  readonly #limit: number;
  readonly #scope: Abortable;

  constructor(source: BodySource, limit: number, scope: Abortable) {
    super(source);
    this.#limit = limit;
    this.#scope = scope;
  }

  override whole(options?: WholeOptions): Uint8Array | undefined {
    const bytes = this.source.whole(options);
    if (bytes !== undefined && bytes.byteLength > this.#limit) throw tooLarge(this.#limit);
    return bytes;
  }

  override pipeTo(sink: Sink): void | Promise<void> {
    return this.source.pipeTo(new LimitSink(sink, this.#limit, () => this.#exceed(sink)));
  }

  #exceed(sink: Sink): void {
    const error = tooLarge(this.#limit);
    this.#scope.abort(error);
    this.source.cancel(error);
    sink.fail(error);
  }
}

/**
 * Counts the bytes on their way to a sink. When they exceed the limit, it calls `exceed`, and passes nothing on
 * afterwards.
 */
class LimitSink extends PassSink {
  readonly #exceed: () => void;
  #left: number;

  constructor(sink: Sink, limit: number, exceed: () => void) {
    super(sink);
    this.#left = limit;
    this.#exceed = exceed;
  }

  override write(chunk: Uint8Array, release?: Release): boolean {
    if (this.#left < 0) return true;
    this.#left -= chunk.byteLength;
    if (this.#left >= 0) return super.write(chunk, release);
    this.#exceed();
    return true;
  }

  override end(trailers?: HeaderList): void {
    if (this.#left >= 0) super.end(trailers);
  }

  override fail(reason: unknown): void {
    if (this.#left >= 0) super.fail(reason);
  }
}
