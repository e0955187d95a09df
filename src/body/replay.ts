import { concat, copyBytes } from "./bytes.ts";
import type { Interceptor } from "../exchange/send.ts";
import type { BodySource, Sink, StreamOptions } from "./source.ts";
import { toWebStream } from "./web.ts";

/**
 * Returns the bytes of a request body that can be sent again; `null` for no body.
 * @returns undefined for a body whose bytes were not kept, or not all of them
 */
export function replayOf(body: BodySource | null): Uint8Array | null | undefined {
  return body === null ? null : body.replay;
}

/**
 * Keeps a copy of each request body while it is sent, so that a redirect or another attempt can send it again.
 * @param limit the number of bytes above which no copy of a body is kept
 * @param methods the methods whose bodies are kept; undefined for all
 */
export function keepBody(limit: number, methods?: readonly string[]): Interceptor {
  return (next) => (request, scope) => {
    const { body, contentLength } = request;
    // The bytes are in memory already and need no copy.
    if (body === null || body.replay !== undefined) return next(request, scope);
    if (methods?.includes(request.method) === false) return next(request, scope);
    return next({ ...request, body: new ReplayBody(body, limit, contentLength) }, scope);
  };
}

/** A body that keeps a copy of its chunks while it is sent, up to a limit. */
export class ReplayBody implements BodySource {
  readonly length: number | undefined;
  replay: Uint8Array | undefined;
  readonly #source: BodySource;
  readonly #limit: number;

  /** @param length the length in bytes where it is known */
  constructor(source: BodySource, limit: number, length: number | undefined) {
    this.#source = source;
    this.#limit = limit;
    this.length = length ?? source.length;
  }

  whole(limit?: number): Uint8Array | undefined {
    const bytes = this.#source.whole(limit);
    if (bytes !== undefined && bytes.byteLength <= this.#limit) this.replay = bytes;
    return bytes;
  }

  pipeTo(sink: Sink): Promise<void> {
    const isKept = (this.length ?? 0) <= this.#limit;
    return this.#source.pipeTo(isKept ? new CopySink(sink, this, this.#limit) : sink);
  }

  stream(options?: StreamOptions): ReadableStream<Uint8Array> {
    return toWebStream(this, options);
  }

  cancel(reason?: unknown): void {
    this.#source.cancel(reason);
  }
}

/** Copies the chunks on their way to a sink, and hands the copy to the body once it is complete. */
class CopySink implements Sink {
  readonly #sink: Sink;
  readonly #body: ReplayBody;
  readonly #limit: number;
  #copies: Uint8Array[] | undefined = [];
  #size = 0;

  constructor(sink: Sink, body: ReplayBody, limit: number) {
    this.#sink = sink;
    this.#body = body;
    this.#limit = limit;
  }

  get memory(): NonNullable<Sink["memory"]> {
    return this.#sink.memory ?? "owned";
  }

  flush(): void {
    this.#sink.flush?.();
  }

  write(chunk: Uint8Array, release?: () => void): boolean {
    this.#size += chunk.byteLength;
    if (this.#size > this.#limit) this.#copies = undefined;
    else this.#copies?.push(copyBytes(chunk));
    // Keep a body of known length with its last chunk: the response may arrive before the source reports the end.
    if (this.#size === this.#body.length) this.#keep();
    return this.#sink.write(chunk, release);
  }

  onDrain(callback: () => void): void {
    this.#sink.onDrain(callback);
  }

  end(): void {
    this.#keep();
    this.#sink.end();
  }

  fail(reason: unknown): void {
    this.#sink.fail(reason);
  }

  #keep(): void {
    if (this.#copies !== undefined) this.#body.replay = concat(this.#copies);
    this.#copies = undefined;
  }
}
