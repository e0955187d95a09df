/**
 * Counts the bytes of a response that still wait in this process, because the client takes them slowly.
 *
 * - Rests on: `socket._handle.writeQueueSize` is the number of bytes that Node has passed to libuv and that the system has not
 *   taken yet. Over TLS, `_handle._parent` has such a number as well. Node documents only `writableLength`, which changes when
 *   the system has taken a whole chunk.
 * - Check: the properties must be numbers.
 * - Otherwise: only whole chunks count. A client that needs longer than `minRateGrace` for one chunk then counts as a client
 *   that does not read.
 * - Test: test/runtimes/node/internals/untaken.test.ts.
 */
import type { ServerResponse } from "node:http";

interface Handle {
  readonly writeQueueSize?: unknown;
  readonly _parent?: Handle | null;
}

/**
 * Returns the number of bytes that wait to be sent. While nothing is written, it falls with each byte that the system takes,
 * even within a chunk.
 */
export function countUntaken({ writableLength, socket }: ServerResponse): number {
  const handle = (socket as { _handle?: Handle | null } | null)?._handle;
  return writableLength + queueSizeOf(handle) + queueSizeOf(handle?._parent);
}

function queueSizeOf(handle: Handle | null | undefined): number {
  const size = handle?.writeQueueSize;
  return typeof size === "number" ? size : 0;
}
