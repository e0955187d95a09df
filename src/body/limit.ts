import type { Scope } from "../exchange/scope.ts";
import { ProxyError } from "../error.ts";
import type { Interceptor } from "../exchange/send.ts";
import type { HeaderList } from "../transport.ts";
import type { Release } from "./memory.ts";
import { PassBody, PassSink } from "./pass.ts";
import type { BodySource, Sink, WholeOptions } from "./source.ts";

/** Returns the error of a request body that is longer than `bodyLimit`. */
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
class LimitedBody extends PassBody {
  readonly #limit: number;
  readonly #scope: Scope;

  constructor(source: BodySource, limit: number, scope: Scope) {
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

/** Counts the bytes on their way to a sink. It calls back when they exceed the limit, and passes nothing on afterwards. */
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
