/**
 * How the body of an HTTP/2 stream has ended: complete, or cut off by RST_STREAM with NO_ERROR. `node:http2` emits `end` for
 * both, and documents no way to tell them apart.
 *
 * - Rests on: Node and Deno call `stream.push(null)` when END_STREAM arrives, and when the stream is reset or its connection
 *   is closed; only in the latter case, `closed` is true before the call. Bun destroys a stream that is reset before it emits
 *   `end`.
 * - Check: the first `push(null)` reads `closed`, and `end` reads `destroyed`.
 * - Otherwise: if `push` is not called, `closed` is read at `end`. A complete body may then fail, if its reader is slow; a
 *   body that was cut off is never taken for a complete one.
 * - Test: test/http2.truncation.test.ts.
 */
import type { ClientHttp2Stream } from "node:http2";

/** Watches a stream. The function that it returns tells at `end` whether the body is complete. */
export function watchEnd(stream: ClientHttp2Stream): () => boolean {
  const push = stream.push.bind(stream);
  let isInOrder: boolean | undefined;
  stream.push = (chunk: unknown, encoding?: BufferEncoding) => {
    if (chunk === null) isInOrder ??= !stream.closed;
    return push(chunk, encoding);
  };
  return () => (isInOrder ?? !stream.closed) && !stream.destroyed;
}
