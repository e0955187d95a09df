/**
 * How the body of an HTTP/2 stream has ended: complete, or cut off by RST_STREAM with NO_ERROR. `node:http2` emits `end` for
 * both, and documents no way to distinguish them.
 *
 * - Rests on: Node and Deno call `stream.push(null)` in two cases: when END_STREAM arrives, while `closed` is false; and when
 *   the stream is reset or its connection is closed, after `closed` has become true. When a stream is reset, Bun destroys it
 *   before it emits `end`.
 * - Check: `closed` is read at the first `push(null)`, and `destroyed` is read at `end`.
 * - Otherwise: if `push` is not called, `closed` is read at `end`. A complete body may then fail, if its reader is slow; a
 *   body that was cut off is never taken for a complete one.
 * - Test: test/runtimes/sockets/http2/truncation.test.ts.
 */
import type { ClientHttp2Stream } from "node:http2";

const PUSH: unique symbol = Symbol("push");
const IN_ORDER: unique symbol = Symbol("in order");

/** A watched stream. Its state is in properties, so that one `push` serves all streams: a closure for each costs memory. */
type WatchedStream = ClientHttp2Stream & {
  [PUSH]?: ClientHttp2Stream["push"];
  [IN_ORDER]?: boolean | undefined;
};

/** Watches a stream, so that `isWhole` can find out at `end` whether the body is complete. */
export function watchEnd(stream: WatchedStream): void {
  // oxlint-disable-next-line typescript/unbound-method -- it is called on the stream
  stream[PUSH] = stream.push;
  stream[IN_ORDER] = undefined;
  stream.push = pushWatched;
}

/** Returns at the `end` of a watched stream whether its body is complete. */
export function isWhole(stream: WatchedStream): boolean {
  return (stream[IN_ORDER] ?? !stream.closed) && !stream.destroyed;
}

function pushWatched(this: WatchedStream, chunk: unknown, encoding?: BufferEncoding): boolean {
  if (chunk === null) this[IN_ORDER] ??= !this.closed;
  return this[PUSH]?.(chunk, encoding) ?? false;
}
