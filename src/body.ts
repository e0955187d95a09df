import { ProxyError } from "./error.ts";
import type { Body } from "./transport.ts";

/** A body as a web stream. */
export function toStream(body: Body): ReadableStream<Uint8Array> {
  if (body instanceof ReadableStream) return body;
  if (!(body instanceof Uint8Array)) return body.stream();
  return new ReadableStream({
    start(controller) {
      if (body.byteLength > 0) controller.enqueue(body);
      controller.close();
    },
  });
}

/** How many bytes several pieces are. */
export function lengthOf(chunks: readonly Uint8Array[]): number {
  let length = 0;
  for (const chunk of chunks) length += chunk.byteLength;
  return length;
}

/** Several pieces as one; the very piece where there is but one. */
export function concat(chunks: readonly Uint8Array[]): Uint8Array {
  if (chunks.length === 1) return chunks[0] as Uint8Array;
  const bytes = new Uint8Array(lengthOf(chunks));
  let at = 0;
  for (const chunk of chunks) {
    bytes.set(chunk, at);
    at += chunk.byteLength;
  }
  return bytes;
}

/** The error of a request body that is longer than `bodyLimit`. */
function tooLarge(limit: number): ProxyError {
  return new ProxyError("http_request_error", {
    status: 413,
    message: `the request body is over the limit of ${limit} bytes`,
  });
}

/**
 * Holds a request body to a limit: at once where its length is known, else while it streams.
 *
 * @param length its length in bytes where it is known
 * @param exceeded told when a stream goes over the limit; the body then fails, so that it cannot be taken for whole
 * @throws ProxyError 413
 */
export function limitBody(
  body: Body,
  limit: number,
  length: number | undefined,
  exceeded: (error: ProxyError) => void,
): Body {
  const known = body instanceof Uint8Array ? body.byteLength : length;
  if (known !== undefined && known > limit) throw tooLarge(limit);
  // Servers hold native bodies to the length that was announced; of other streams nobody knows.
  if (known !== undefined && !(body instanceof ReadableStream)) return body;
  let seen = 0;
  return toStream(body).pipeThrough(
    new TransformStream<Uint8Array, Uint8Array>({
      transform(chunk, controller): void {
        seen += chunk.byteLength;
        if (seen <= limit) return controller.enqueue(chunk);
        const error = tooLarge(limit);
        exceeded(error);
        controller.error(error);
      },
    }),
  );
}
