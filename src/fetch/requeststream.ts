import type { BodySource } from "../body/source.ts";
import type { Scope } from "../exchange/scope.ts";
import { toRequestBodyError, ProxyError } from "../error.ts";
import type { UpstreamRequest } from "../transport.ts";

/**
 * A body of at most so many bytes counts as one chunk, which the runtime moves itself: to watch the chunks of a
 * body of 1 KB costs 40 % of the requests a second on workerd.
 */
const ONE_PIECE = 65_536;
/** Bytes of the buffer that the pieces of a body share: the longer they are, the fewer. */
const SHARED_BUFFER = 262_144;

/** How a client takes streams as request bodies. */
export interface UploadClient {
  /** Whether a stream is the runtime's own: it moves that without a script, and breaks off the request with it. */
  readonly isOwn?: (stream: ReadableStream<Uint8Array>) => boolean;
  /**
   * A pipe for so many bytes, where that is how a client is told the length of a body: it ends a script's
   * stream that breaks off as if it were whole otherwise. A piece has been taken when its write is done.
   */
  readonly createPipe?: (length: number) => TransformStream<Uint8Array, Uint8Array>;
}

/**
 * A streamed request body; every piece of it restarts the deadline. If it fails,
 * the request is broken off first: some clients (workerd's) end it as if it were whole.
 */
export function toUpload(
  body: BodySource,
  { contentLength }: UpstreamRequest,
  scope: Scope,
  controller: AbortController,
  { isOwn, createPipe }: UploadClient,
): ReadableStream<Uint8Array> {
  const stream = body.stream();
  const small = contentLength !== undefined && contentLength <= ONE_PIECE;
  if (small && (isOwn === undefined || isOwn(stream))) return stream;
  const source = readerOf(stream, createPipe !== undefined);
  const breakOff = (thrown: unknown): ProxyError => {
    const error = scope.error ?? toRequestBodyError(thrown);
    // Some clients reject with an error of their own: this one counts. After the headers nobody waits for it.
    scope.abort(error);
    controller.abort(error);
    return error;
  };
  if (createPipe !== undefined && contentLength !== undefined) {
    const { readable, writable } = createPipe(contentLength);
    const buffer = new ArrayBuffer(Math.min(contentLength, SHARED_BUFFER));
    void pump(source, writable.getWriter(), buffer, scope, breakOff);
    return readable;
  }
  const { signal } = controller;
  // The client of a server cannot send its next request before this body has been read, or let go of.
  const stop = (): void => void cancelLater(source, signal.reason);
  const finish = (): void => {
    unfinished.delete(controller);
    signal.removeEventListener("abort", stop);
  };
  unfinished.add(controller);
  signal.addEventListener("abort", stop);
  return new ReadableStream(
    {
      async pull(sink) {
        try {
          const { done, value } = await source.read();
          // A stream that was cancelled ends as a whole one does.
          signal.throwIfAborted();
          scope.touch();
          if (!done) return sink.enqueue(value);
          finish();
          sink.close();
        } catch (thrown) {
          finish();
          throw breakOff(thrown);
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

/** Node's own streams end the process where they are cancelled in the tick in which they were read. */
async function cancelLater(source: PieceReader, reason: unknown): Promise<void> {
  await new Promise((resolve) => setTimeout(resolve));
  await source.cancel(reason).catch(() => {});
}

/** The requests whose bodies have not been read to their ends. */
const unfinished: WeakSet<AbortController> = new WeakSet();

/**
 * Lets go of what is left of a request's body: the response is over, or there will be none. Nothing else cancels a stream
 * that a function of the app's has been given and does not read.
 */
export function stopUpload(controller: AbortController): void {
  if (!unfinished.has(controller)) return;
  controller.abort(
    new ProxyError("http_request_error", {
      message: "the response was over before all of the request's body was read",
    }),
  );
}

type Piece = ReadableStreamReadResult<Uint8Array>;

interface PieceReader {
  /** @param spare a buffer that nobody needs any more */
  read: (spare?: ArrayBufferLike) => Promise<Piece>;
  cancel: (reason: unknown) => Promise<void>;
}

function readerOf(stream: ReadableStream<Uint8Array>, ownBuffers: boolean): PieceReader {
  if (ownBuffers) {
    try {
      const reader = stream.getReader({ mode: "byob" });
      return {
        read: (spare = new ArrayBuffer(ONE_PIECE)) =>
          reader.read(new Uint8Array(spare as ArrayBuffer)),
        cancel: (reason) => reader.cancel(reason),
      };
    } catch {
      // It is not made of bytes.
    }
  }
  const reader = stream.getReader();
  return { read: () => reader.read(), cancel: (reason) => reader.cancel(reason) };
}

/** Moves a body, one piece at a time: each is read into the buffer of the one before, which has been taken then. */
async function pump(
  source: PieceReader,
  sink: WritableStreamDefaultWriter<Uint8Array>,
  buffer: ArrayBuffer,
  scope: Scope,
  breakOff: (thrown: unknown) => ProxyError,
): Promise<void> {
  const read = async (spare: ArrayBufferLike): Promise<Piece> => {
    try {
      return await source.read(spare);
    } catch (thrown) {
      throw breakOff(thrown);
    }
  };
  try {
    let piece = await read(buffer);
    while (!piece.done) {
      scope.touch();
      await sink.write(piece.value);
      piece = await read(piece.value.buffer);
    }
    await sink.close();
  } catch (thrown) {
    // Either side may have failed: the other one is told.
    await Promise.allSettled([source.cancel(thrown), sink.abort(thrown)]);
  }
}
