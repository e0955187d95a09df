/**
 * A body has two ends: the source provides its chunks, and the sink receives them.
 *
 *     the server's request body → limit, copy for replay → the connection to the upstream
 *     the transport's response body                      → the server's response
 *
 * A body is taken once. The code that takes it first asks for all bytes with `whole()`: most bodies are small, and have
 * arrived by then. A body that is still arriving is piped to a sink with `pipe(body, sink)`:
 *
 * 1. The source calls `sink.flush()` if no chunk has arrived yet, and `sink.write(chunk)` for each chunk.
 * 2. If `write` returns false, the source stops reading, and waits for the callback of `sink.onDrain()`.
 * 3. The source calls `sink.end()` when the body is complete, or `sink.fail()` when it cannot be completed.
 * 4. If the sink needs no more chunks, the code that made the sink calls `source.cancel()`. The source then stops
 *    writing.
 *
 * `stream()` pipes the body to a sink that is a web stream. Code depends only on these interfaces, and never tests the
 * class of a body or of a sink.
 */
import { badLength } from "../error.ts";
import type { NameSet, HeaderList } from "../fields/headers.ts";
import type { Ownership, Release } from "./memory.ts";

/** The number of bytes that are buffered for a slow reader before the sender is paused. */
export const HIGH_WATER_MARK = 65_536;

/**
 * The destination of a body's chunks: a server's response, a request on a connection, or a web stream.
 *
 * A sink does not throw. It reports a failure on its own side, such as a closed connection, to the code that created
 * the sink, which then cancels the source.
 */
export interface Sink {
  /**
   * Whether nothing has been read from the sink so far. If so, the app may have dropped the response without reading
   * it. Left out by a sink that writes to a connection, where no app can drop the response.
   */
  readonly isUnread?: boolean;
  /**
   * The number of bytes that were written and that the receiver has not taken yet. Left out where the sink learns only
   * that a whole chunk has been taken.
   */
  readonly unsent?: number;
  /**
   * Writes one chunk.
   * @param release given only where `memory` is `"returned"`
   * @returns whether there is room for more; after `false`, the source waits for `onDrain`
   */
  write(chunk: Uint8Array, release?: Release): boolean;
  /** Calls the callback once, when there is room again. A callback costs less than a promise for each wait. */
  onDrain(callback: () => void): void;
  /** Sends the head of the message without waiting for the first chunk, because no chunk has arrived yet. */
  flush?(): void;
  /** Ends the body. Called after the last chunk. */
  end(trailers?: HeaderList): void;
  /**
   * Ends the body before it is complete. The sink makes sure that the receiver does not take it for a complete body.
   */
  fail(reason: unknown): void;
  /**
   * What the sink does with the memory of a chunk; `"owned"` if it is not set.
   *
   * - `"owned"`: the sink keeps, changes or transfers the ArrayBuffer, or passes it to other code. So the ArrayBuffer
   *   must not hold other bytes.
   * - `"borrowed"`: the sink only reads the bytes, and does not report when they are sent. So the bytes must never
   *   change. The ArrayBuffer may hold other bytes as well.
   * - `"returned"`: like `"borrowed"`, but no other code can see the chunk, and the sink calls `release` when the chunk
   *   has been sent.
   */
  readonly memory?: Ownership;
}

/** Options of the web stream of a body. */
export interface StreamOptions {
  /** Whether the stream fails with the reason `undefined`, because Bun's server prints any other reason. */
  readonly quiet?: boolean;
  /**
   * Whether the stream begins with an empty chunk if no chunk has arrived yet, because srvx sends the head only with
   * the first chunk.
   */
  readonly flush?: boolean;
  /** Called when the body fails, before the stream does. */
  readonly onFail?: (() => void) | undefined;
  /** Called with the trailer fields, before the stream ends. */
  readonly onTrailers?: ((trailers: HeaderList) => void) | undefined;
}

/** Options of `BodySource.whole`. */
export interface WholeOptions {
  /** The number of bytes up to which several chunks are joined into one; no limit if it is not set. */
  readonly joinUpTo?: number;
  /**
   * What the caller does with the memory of the bytes; `"owned"` if it is not set. With `"borrowed"`, the bytes may share
   * their ArrayBuffer with other bytes, and must not be changed or transferred.
   */
  readonly memory?: "owned" | "borrowed";
}

/**
 * The body of a request or a response.
 *
 * A body is taken once: as bytes with `whole()`, into a sink with `pipeTo()`, or as a web stream with `stream()`. The
 * first two cost less than a web stream.
 */
export interface BodySource {
  /**
   * Returns all bytes. Returns undefined if some bytes have not arrived yet, or if the bytes are in several chunks that are
   * together longer than `joinUpTo`; the body can then still be taken.
   *
   * The bytes belong to the caller, with two exceptions: the caller must not change or transfer borrowed bytes, which may share
   * their ArrayBuffer, nor bytes that are also in `replay`, which may be sent again.
   * @throws ProxyError for a body that has failed
   */
  whole(options?: WholeOptions): Uint8Array | undefined;
  /**
   * Writes the body to a sink, with backpressure, and then ends or fails the sink.
   *
   * A source may return a promise that is resolved at the end. If `pipeTo` throws, or the promise rejects, the caller
   * fails the sink.
   */
  pipeTo(sink: Sink): void | Promise<void>;
  /** Returns the body as a web stream. */
  stream(options?: StreamOptions): ReadableStream<Uint8Array>;
  /**
   * Stops the body, because the rest is not needed. The source then writes nothing more. The call has no effect on a
   * body that has ended.
   */
  cancel(reason?: unknown): void;
  /**
   * Waits for the first chunk of a body whose length is unknown, and then a moment for its end. A short body can then
   * be sent with `Content-Length`.
   * @returns null if the body is empty; otherwise the body to send in place of this one, which has a length if this body
   * ended in time
   */
  measure?(): Promise<BodySource | null>;
  /** Whether the client sends the body only after a 100 (Continue), which the server sends when the body is taken. */
  readonly awaitsContinue?: boolean;
  /**
   * Whether another attempt can still send the body: it was neither taken nor cancelled so far, or it can be taken again
   * after it was cancelled.
   */
  readonly isUntouched?: boolean;
  /** The bytes of the body, if all of them were kept and can be sent again. */
  readonly replay?: Uint8Array | undefined;
  /** The length of the body in bytes, where it is known. */
  readonly length?: number | undefined;
  /** The number of bytes that have arrived, but were not taken yet; undefined if the source does not know. */
  readonly buffered?: number | undefined;
  /** The reason why the body has failed; undefined if it has not failed. */
  readonly error?: Error | undefined;
  /** The trailer fields, once the body has ended; undefined for none. */
  readonly trailers?: HeaderList | undefined;
  /**
   * @internal Makes the body drop trailer fields with these names, and those that the message's `Connection` nominates. The
   * core calls it before the body is taken. Left out by bodies that never have trailer fields.
   */
  restrictTrailers?(dropped: NameSet | undefined, connection: string | undefined): void;
  /**
   * @internal Returns the announced names (`Trailer`) that this body's trailer fields may have; undefined for none. Left out by
   * bodies that never have trailer fields: a bundle that contains only these then does not contain the list of forbidden names.
   */
  announceTrailers?(names: string): string | undefined;
}

/**
 * Writes a body to a sink, and fails the sink if `pipeTo` throws or rejects. `pipeTo` throws if the body is taken twice,
 * and may throw in a body that an interceptor has made. On Node, a rejection without a handler would end the process.
 */
export function pipe(body: BodySource, sink: Sink): void {
  try {
    const piped = body.pipeTo(sink);
    if (piped !== undefined) piped.catch((thrown: unknown) => sink.fail(thrown));
  } catch (thrown) {
    sink.fail(thrown);
  }
}

/**
 * Returns the bytes of a body if all of them have arrived, and undefined if the body is still arriving.
 * @throws ProxyError for a body that is not as long as its Content-Length, or has failed
 */
export function takeWhole(body: BodySource, contentLength?: number): Uint8Array | undefined {
  const bytes = body.whole();
  if (bytes === undefined || contentLength === undefined) return bytes;
  if (bytes.byteLength !== contentLength) throw badLength(contentLength, bytes.byteLength);
  return bytes;
}

/** Returns the error of a body that is taken for the second time. */
export function alreadyTaken(): TypeError {
  return new TypeError(
    "fetchway: the body has already been taken, or cancelled; a body is taken once",
  );
}

/** The parts of a request that decide whether its body may go unread. */
interface MethodAndBody {
  readonly method: string;
  readonly body: BodySource | null;
}

/**
 * Whether an upstream may leave the body of a request unread, and take it for the next request on the connection: "content
 * received in a GET request has no generally defined semantics" (RFC 9110 §9.3.1), and the same holds for HEAD and DELETE.
 * Such a request is sent only once, with `Connection: close`, after which a server processes nothing more (RFC 9112 §9.6).
 */
export function mayGoUnread({ method, body }: MethodAndBody): boolean {
  return body !== null && (method === "GET" || method === "HEAD" || method === "DELETE");
}
