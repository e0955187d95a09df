import { toStream } from "./body.ts";
import type { Lifetime } from "./deadline.ts";
import { ProxyError } from "./error.ts";
import type { Body, Hop } from "./transport.ts";

/** A body of at most so many bytes counts as one piece: it is not worth watching. */
const ONE_PIECE = 65_536;

/**
 * A streamed request body; every piece of it restarts the deadline. If it fails,
 * the request is broken off first: some clients (workerd's) end it as if it were whole.
 *
 * @param ownBuffers whether to read into buffers of our own where the stream takes such
 */
export function toUpload(
  body: Body,
  { contentLength }: Hop,
  lifetime: Lifetime,
  controller: AbortController,
  ownBuffers = false,
): ReadableStream<Uint8Array> {
  const stream = toStream(body);
  if (contentLength !== undefined && contentLength <= ONE_PIECE) return stream;
  const { read, cancel } = readerOf(stream, ownBuffers);
  return new ReadableStream(
    {
      async pull(sink) {
        try {
          const { done, value } = await read();
          lifetime.touch();
          if (done) sink.close();
          else sink.enqueue(value as Uint8Array);
        } catch (thrown) {
          const error = lifetime.error ?? brokenOff(thrown);
          // Some clients reject with an error of their own: this one counts. After the headers nobody waits for it.
          lifetime.abort(error);
          controller.abort(error);
          throw error;
        }
      },
      cancel,
    },
    { highWaterMark: 0 },
  );
}

interface PieceReader {
  read: () => Promise<{ done: boolean; value?: Uint8Array | undefined }>;
  cancel: (reason: unknown) => Promise<void>;
}

function readerOf(stream: ReadableStream<Uint8Array>, ownBuffers: boolean): PieceReader {
  if (ownBuffers) {
    try {
      const reader = stream.getReader({ mode: "byob" });
      return {
        read: () => reader.read(new Uint8Array(ONE_PIECE)),
        cancel: (reason) => reader.cancel(reason),
      };
    } catch {
      // It is not made of bytes.
    }
  }
  const reader = stream.getReader();
  return { read: () => reader.read(), cancel: (reason) => reader.cancel(reason) };
}

function brokenOff(thrown: unknown): ProxyError {
  if (thrown instanceof ProxyError) return thrown;
  return new ProxyError("http_request_error", {
    message: "the client broke off its request body",
    cause: thrown,
  });
}
