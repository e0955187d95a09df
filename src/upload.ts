import { toStream } from "./body.ts";
import type { Lifetime } from "./deadline.ts";
import { ProxyError } from "./error.ts";
import type { Body, Hop } from "./transport.ts";

/** A body of at most so many bytes counts as one piece: it is not worth watching. */
const ONE_PIECE = 65_536;

/**
 * A streamed request body; every piece of it restarts the deadline. If it fails,
 * the request is broken off first: some clients (workerd's) end it as if it were whole.
 */
export function toUpload(
  body: Body,
  { contentLength }: Hop,
  lifetime: Lifetime,
  controller: AbortController,
): ReadableStream<Uint8Array> {
  const stream = toStream(body);
  if (contentLength !== undefined && contentLength <= ONE_PIECE) return stream;
  const reader = stream.getReader();
  return new ReadableStream(
    {
      async pull(sink) {
        try {
          const { done, value } = await reader.read();
          lifetime.touch();
          if (done) sink.close();
          else sink.enqueue(value);
        } catch (thrown) {
          const error = lifetime.error ?? brokenOff(thrown);
          // Some clients reject with an error of their own: this one counts. After the headers nobody waits for it.
          lifetime.abort(error);
          controller.abort(error);
          throw error;
        }
      },
      cancel: (reason) => reader.cancel(reason),
    },
    { highWaterMark: 0 },
  );
}

function brokenOff(thrown: unknown): ProxyError {
  if (thrown instanceof ProxyError) return thrown;
  return new ProxyError("http_request_error", {
    message: "the client broke off its request body",
    cause: thrown,
  });
}
