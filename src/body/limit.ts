import type { Scope } from "../exchange/scope.ts";
import { ProxyError } from "../error.ts";
import type { Interceptor } from "../exchange/send.ts";
import type { BodySource, Sink, StreamOptions } from "./source.ts";
import { toWebStream } from "./web.ts";

/** The error of a request body that is longer than `bodyLimit`. */
function tooLarge(limit: number): ProxyError {
  return new ProxyError("http_request_error", {
    status: 413,
    message: `the request body is over the limit of ${limit} bytes`,
  });
}

/**
 * Refuses request bodies above a limit with 413: immediately where the length is known, else when a chunk exceeds the
 * limit. The request to the upstream is then aborted, so that the body cannot look complete to the upstream.
 * @param limit the maximum length in bytes
 */
export function limitBody(limit: number): Interceptor {
  return (next) => (request, scope) => {
    const { body, contentLength } = request;
    if (body === null) return next(request, scope);
    if ((contentLength ?? body.length ?? 0) > limit) return Promise.reject(tooLarge(limit));
    return next({ ...request, body: new LimitedBody(body, limit, scope) }, scope);
  };
}

/** A body that aborts the exchange when it exceeds the limit. */
class LimitedBody implements BodySource {
  readonly #source: BodySource;
  readonly #limit: number;
  readonly #scope: Scope;

  constructor(source: BodySource, limit: number, scope: Scope) {
    this.#source = source;
    this.#limit = limit;
    this.#scope = scope;
  }

  get replay(): Uint8Array | undefined {
    return this.#source.replay;
  }

  get length(): number | undefined {
    return this.#source.length;
  }

  whole(limit?: number): Uint8Array | undefined {
    const bytes = this.#source.whole(limit);
    if (bytes !== undefined && bytes.byteLength > this.#limit) throw tooLarge(this.#limit);
    return bytes;
  }

  pipeTo(sink: Sink): Promise<void> {
    return this.#source.pipeTo(new LimitSink(sink, this.#limit, () => this.#exceed(sink)));
  }

  stream(options?: StreamOptions): ReadableStream<Uint8Array> {
    return toWebStream(this, options);
  }

  cancel(reason?: unknown): void {
    this.#source.cancel(reason);
  }

  #exceed(sink: Sink): void {
    const error = tooLarge(this.#limit);
    this.#scope.abort(error);
    this.#source.cancel(error);
    sink.fail(error);
  }
}

/** Counts the bytes on their way to a sink, and calls back when they exceed the limit. */
class LimitSink implements Sink {
  readonly #sink: Sink;
  readonly #exceed: () => void;
  #left: number;

  constructor(sink: Sink, limit: number, exceed: () => void) {
    this.#sink = sink;
    this.#left = limit;
    this.#exceed = exceed;
  }

  get memory(): NonNullable<Sink["memory"]> {
    return this.#sink.memory ?? "owned";
  }

  flush(): void {
    this.#sink.flush?.();
  }

  write(chunk: Uint8Array, release?: () => void): boolean {
    if (this.#left < 0) return true;
    this.#left -= chunk.byteLength;
    if (this.#left >= 0) return this.#sink.write(chunk, release);
    this.#exceed();
    return true;
  }

  onDrain(callback: () => void): void {
    this.#sink.onDrain(callback);
  }

  end(): void {
    if (this.#left >= 0) this.#sink.end();
  }

  fail(reason: unknown): void {
    if (this.#left >= 0) this.#sink.fail(reason);
  }
}
