import { cancelLater } from "../body/chunks.ts";
import type { BodySource } from "../body/source.ts";
import type { Scope } from "../exchange/scope.ts";
import { ProxyError, toRequestBodyError } from "../error.ts";

/**
 * A body of at most this number of bytes is passed on unread, where the stream is the client's own: on workerd, reading
 * the chunks of a body of 1 KB costs 40 % of the requests per second.
 */
const SMALL = 65_536;
/** The number of bytes that one chunk is read into, where the client tells no length. */
const CHUNK_SIZE = 65_536;
/** The number of bytes that one chunk is read into, where the client is told the length: larger chunks are fewer. */
const PIPED_CHUNK_SIZE = 262_144;

/** How a client with a `fetch` interface handles streams as bodies. */
export interface StreamClient {
  /**
   * Tells whether a stream is the client's own: the client sends it without running a script, and aborts the request if
   * the stream fails. If it is not set, every stream is.
   */
  readonly isOwn?: (stream: ReadableStream<Uint8Array>) => boolean;
  /**
   * Makes a pipe for a body of this length, for a client that learns the length of a body in no other way. Such a client
   * ends the body as if it were complete when another stream fails. A write to the pipe resolves when the pipe no longer
   * needs the chunk's memory.
   */
  readonly createPipe?: (length: number) => TransformStream<Uint8Array, Uint8Array>;
}

/** One attempt to send a request through a `fetch`, as the streams of its two bodies see it. */
export interface FetchAttempt<Client extends StreamClient = StreamClient> {
  readonly client: Client;
  readonly scope: Scope;
  /** Aborts the fetch. */
  readonly controller: AbortController;
  /** Whether a request body is read by the proxy, and not to its end yet. */
  isUploading: boolean;
}

/**
 * Returns a request body as a stream for `fetch`. Each chunk restarts the deadline. If the body fails, the fetch is
 * aborted first: otherwise some clients, such as workerd's, end the body as if it were complete.
 * @param length the length that the request declares, where it does
 */
export function toRequestStream(
  body: BodySource,
  length: number | undefined,
  attempt: FetchAttempt,
): ReadableStream<Uint8Array> {
  const { scope, controller } = attempt;
  const { isOwn, createPipe } = attempt.client;
  const stream = body.stream();
  const isSmall = length !== undefined && length <= SMALL;
  if (isSmall && (isOwn === undefined || isOwn(stream))) return stream;
  const source = createReader(stream, createPipe !== undefined);
  const fail = (thrown: unknown): ProxyError => {
    const error = scope.error ?? toRequestBodyError(thrown);
    // The client may reject with an error of its own: the scope keeps this one. After the response headers, the
    // rejection reaches no code.
    scope.abort(error);
    controller.abort(error);
    return error;
  };
  if (createPipe !== undefined && length !== undefined) {
    const { readable, writable } = createPipe(length);
    const buffer = new ArrayBuffer(Math.min(length, PIPED_CHUNK_SIZE));
    void pumpRequest(source, writable.getWriter(), buffer, scope, fail);
    return readable;
  }
  const { signal } = controller;
  // A client of the server cannot send its next request before this body is read or cancelled.
  const stop = (): void => void cancelLater(source, signal.reason);
  const finish = (): void => {
    attempt.isUploading = false;
    signal.removeEventListener("abort", stop);
  };
  attempt.isUploading = true;
  signal.addEventListener("abort", stop);
  return new ReadableStream(
    {
      async pull(sink) {
        try {
          const { done, value } = await source.read();
          // A cancelled stream ends like a complete one.
          signal.throwIfAborted();
          scope.touch();
          if (!done) return sink.enqueue(value);
          finish();
          sink.close();
        } catch (thrown) {
          finish();
          throw fail(thrown);
        }
      },
      cancel(reason) {
        finish();
        return cancelLater(source, reason);
      },
    },
    { highWaterMark: 0 },
  );
}

/**
 * Stops the request body, if it is not read to its end: the response is complete, or there will be none. Nothing else
 * cancels a stream that an app's function was given and does not read.
 */
export function stopRequestStream({ isUploading, controller }: FetchAttempt): void {
  if (!isUploading) return;
  controller.abort(
    new ProxyError("http_request_error", {
      message: "the response was over before all of the request's body was read",
    }),
  );
}

type ReadResult = ReadableStreamReadResult<Uint8Array>;

interface Reader {
  /** @param spare a buffer for the bytes; its earlier bytes are no longer needed */
  read: (spare?: ArrayBufferLike) => Promise<ReadResult>;
  cancel: (reason: unknown) => Promise<void>;
}

/** @param readsInto whether chunks are read into buffers of our own, where the stream is a byte stream */
function createReader(stream: ReadableStream<Uint8Array>, readsInto: boolean): Reader {
  if (readsInto) {
    try {
      const reader = stream.getReader({ mode: "byob" });
      return {
        read: (spare = new ArrayBuffer(CHUNK_SIZE)) =>
          reader.read(new Uint8Array(spare as ArrayBuffer)),
        cancel: (reason) => reader.cancel(reason),
      };
    } catch {
      // Not a byte stream.
    }
  }
  const reader = stream.getReader();
  return { read: () => reader.read(), cancel: (reason) => reader.cancel(reason) };
}

/** Writes a body to a pipe. Each chunk is read into the buffer of the chunk before it, which the pipe no longer needs. */
async function pumpRequest(
  source: Reader,
  sink: WritableStreamDefaultWriter<Uint8Array>,
  buffer: ArrayBuffer,
  scope: Scope,
  fail: (thrown: unknown) => ProxyError,
): Promise<void> {
  const read = async (spare: ArrayBufferLike): Promise<ReadResult> => {
    try {
      return await source.read(spare);
    } catch (thrown) {
      throw fail(thrown);
    }
  };
  try {
    let next = await read(buffer);
    while (!next.done) {
      scope.touch();
      await sink.write(next.value);
      next = await read(next.value.buffer);
    }
    await sink.close();
  } catch (thrown) {
    // Either the source or the pipe has failed: tell both.
    await Promise.allSettled([source.cancel(thrown), sink.abort(thrown)]);
  }
}
