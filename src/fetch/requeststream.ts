import { cancelLater } from "../body/chunks.ts";
import type { BodySource } from "../body/source.ts";
import { ProxyError, toRequestBodyError } from "../error.ts";
import type { Scope } from "../transport/scope.ts";

/**
 * A stream of at most this number of bytes is passed to `fetch` unread, if the runtime sends it with its length. On
 * workerd, reading the chunks of a body of 1 KB costs 40 % of the requests per second.
 */
export const SMALL_BODY = 65_536;
/** The size in bytes of the read buffer for a stream that has no pipe, because its length is unknown. */
const CHUNK_SIZE = 65_536;
/** The maximum size in bytes of the read buffer for a pipe. It is large, because fewer chunks cost less. */
const PIPED_CHUNK_SIZE = 262_144;
/** The size in bytes of the read buffer for the first chunk of a body that the runtime moves by itself afterwards. */
const FIRST_CHUNK_SIZE = 16_384;

/**
 * The milliseconds for which the proxy waits for `fetch` to settle after a request body could not be moved to the upstream. If
 * the upstream is at fault or has responded early, `fetch` settles within a few turns of the event loop. If `fetch` does not
 * settle, the client is at fault.
 */
const REPORT_TIME = 100;

/** How a `fetch` function handles request bodies that are streams. */
export interface StreamClient {
  /**
   * Returns how many bytes are left in a stream, if the runtime knows that, as it does for the body of the incoming request.
   * The runtime sends such a stream with its length and without running JavaScript, and aborts the request if the stream
   * fails. If `readLeft` is not set, every stream counts as such a stream.
   */
  readonly readLeft?: (stream: ReadableStream<Uint8Array>) => bigint | undefined;
  /**
   * Whether the runtime can move the rest of a stream to a pipe. If not, or if `isPipeable` is not set, the proxy itself
   * reads the stream to its end.
   */
  readonly isPipeable?: (stream: ReadableStream<Uint8Array>) => boolean;
  /**
   * Makes a pipe for a body of this length, for a runtime that can learn the length of a stream only from its own kind
   * of pipe (workerd). If a stream of another kind fails, the runtime ends the body as if it were complete. A write to
   * the pipe resolves when the pipe no longer needs the chunk's memory.
   */
  readonly createPipe?: (length: number) => TransformStream<Uint8Array, Uint8Array>;
  /**
   * Whether the runtime prints the error of a request body, and the reason of an abort during an upload, as exceptions that
   * nothing has caught, although the promise of `fetch` rejects with the same exception. The runtime prints nothing if the
   * abort has no reason, and the body then stays open until the runtime itself cancels the body.
   */
  readonly printsFailures?: boolean;
}

/** One attempt to send a request through a `fetch`: the state that the streams of the two bodies share. */
export interface FetchAttempt<Client extends StreamClient = StreamClient> {
  readonly client: Client;
  readonly scope: Scope;
  /** Aborts the fetch. */
  readonly controller: AbortController;
  /** Whether `fetch` has a stream that the proxy made and that has not ended yet; pipes do not count. */
  isUploading: boolean;
  /** Whether the promise of `fetch` is settled. */
  isSettled: boolean;
}

/**
 * Returns a request body as a stream for `fetch`. A small stream that the runtime can send is returned unchanged.
 * Otherwise, each chunk restarts the deadline, and if the body fails, the fetch is aborted before the stream fails. If
 * the stream failed first, some runtimes, such as workerd, would end the body as if it were complete.
 * @param length the length that the request declares; undefined if it declares none
 */
export function toRequestStream(
  body: BodySource,
  length: number | undefined,
  attempt: FetchAttempt,
): ReadableStream<Uint8Array> {
  const { scope } = attempt;
  const { signal } = attempt.controller;
  const { readLeft, isPipeable, createPipe } = attempt.client;
  const stream = body.stream();
  const isKnown = readLeft === undefined || readLeft(stream) !== undefined;
  if (length !== undefined && length <= SMALL_BODY && isKnown) return stream;
  const fail = (thrown: unknown): ProxyError => {
    const error = scope.error ?? toRequestBodyError(thrown);
    // `fetch` may reject with another error, so the scope keeps this one. After the response headers, the promise of
    // `fetch` is settled, and cannot report the error. After an abort of the fetch, the scope may serve the next attempt already.
    if (!signal.aborted) scope.abort(error);
    abortFetch(attempt, error);
    return error;
  };
  if (createPipe !== undefined && length !== undefined) {
    const { readable, writable } = createPipe(length);
    const moves = isPipeable?.(stream) ? readLeft : undefined;
    void pumpRequest(stream, writable, length, attempt, fail, moves);
    return readable;
  }
  const source = createReader(stream, createPipe !== undefined);
  // Cancel the body if the fetch is aborted, because the client cannot send its next request on the connection before
  // this body is read or cancelled.
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
          // A read of a cancelled stream returns `done`, like the end of a complete stream.
          signal.throwIfAborted();
          scope.touch();
          if (!done) return sink.enqueue(value);
          finish();
          sink.close();
        } catch (thrown) {
          finish();
          const error = fail(thrown);
          if (!attempt.client.printsFailures) throw error;
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
 * Stops the request body if it was not read to its end, by aborting the fetch. Called when the response is complete, or when
 * there will be none. Otherwise, no code would cancel a stream that an app has received but does not read.
 */
export function stopRequestStream(attempt: FetchAttempt): void {
  if (!attempt.isUploading) return;
  abortFetch(
    attempt,
    new ProxyError("http_request_error", {
      message: "the response was over before all of the request's body was read",
    }),
  );
}

/** Aborts the fetch. The caller keeps the reason elsewhere, because `fetch` does not get it if the runtime would print it. */
export function abortFetch({ client, controller }: FetchAttempt, reason: unknown): void {
  controller.abort(client.printsFailures ? undefined : reason);
}

type ReadResult = ReadableStreamReadResult<Uint8Array>;

interface Reader {
  /** @param spare a buffer that the bytes may be read into; its content is no longer needed */
  read: (spare?: ArrayBufferLike) => Promise<ReadResult>;
  cancel: (reason: unknown) => Promise<void>;
  release: () => void;
}

/** @param readsInto whether chunks are read into the caller's buffers if the stream is a byte stream */
function createReader(stream: ReadableStream<Uint8Array>, readsInto: boolean): Reader {
  if (readsInto) {
    try {
      const reader = stream.getReader({ mode: "byob" });
      return {
        read: (spare = new ArrayBuffer(CHUNK_SIZE)) =>
          reader.read(new Uint8Array(spare as ArrayBuffer)),
        cancel: (reason) => reader.cancel(reason),
        release: () => reader.releaseLock(),
      };
    } catch {
      // The stream is not a byte stream.
    }
  }
  const reader = stream.getReader();
  return {
    read: () => reader.read(),
    cancel: (reason) => reader.cancel(reason),
    release: () => reader.releaseLock(),
  };
}

/**
 * Writes a body to a pipe. Each chunk is read into the buffer of the chunk before it, which the pipe no longer needs.
 *
 * Once `readLeft` returns the right number after a chunk, the runtime moves the rest of the body, and the exchange's timer
 * checks the progress with `readLeft`, so that no JavaScript runs for a chunk. Otherwise, the stream is read to its end: if
 * the result of `readLeft` did not change, a deadline would abort an upload that makes progress.
 * @param readLeft returns how many bytes are left in the stream; undefined if the runtime does not know the number
 */
async function pumpRequest(
  stream: ReadableStream<Uint8Array>,
  writable: WritableStream<Uint8Array>,
  length: number,
  attempt: FetchAttempt,
  fail: (thrown: unknown) => ProxyError,
  readLeft: StreamClient["readLeft"],
): Promise<void> {
  const { scope } = attempt;
  const source = createReader(stream, true);
  const sink = writable.getWriter();
  const read = async (spare: ArrayBufferLike): Promise<ReadResult> => {
    try {
      return await source.read(spare);
    } catch (thrown) {
      throw fail(thrown);
    }
  };
  let left = BigInt(length);
  try {
    const size = readLeft === undefined ? PIPED_CHUNK_SIZE : FIRST_CHUNK_SIZE;
    let next = await read(new ArrayBuffer(Math.min(length, size)));
    while (!next.done) {
      scope.touch();
      left -= BigInt(next.value.byteLength);
      await sink.write(next.value);
      if (readLeft?.(stream) === left) break;
      next = await read(next.value.buffer);
    }
    if (next.done) return await sink.close();
  } catch (thrown) {
    // Either the source or the pipe has failed: stop both.
    await Promise.allSettled([source.cancel(thrown), sink.abort(thrown)]);
    return;
  }
  source.release();
  sink.releaseLock();
  scope.watchProgress(() => {
    const before = left;
    left = readLeft?.(stream) ?? 0n;
    return left !== before;
  });
  try {
    await stream.pipeTo(writable, { preventAbort: true });
  } catch (thrown) {
    // workerd throws the same error whether the client or the upstream has disconnected. `preventAbort` has left the pipe
    // open: `fetch` settles if the upstream has disconnected or responded, and otherwise keeps waiting for the body.
    await new Promise((resolve) => setTimeout(resolve, REPORT_TIME));
    if (!attempt.isSettled) fail(thrown);
    await writable.abort(thrown).catch(() => {});
  } finally {
    scope.watchProgress(undefined);
  }
}
