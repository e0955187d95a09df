/**
 * Measures the progress of a write to a client that reads slowly.
 *
 * - Rests on: `socket._handle.writeQueueSize` is the number of bytes that the system has not taken yet. Node documents only
 *   `writableLength`, which changes when the system has taken a whole chunk.
 * - Check: the property must be a number.
 * - Otherwise: only whole chunks count as progress. A client that needs longer than the timeout to read one chunk is then
 *   treated as if it did not read.
 * - Test: test/command/writequeue.node.test.ts.
 */
import type { Socket } from "node:net";

/** Returns the number of bytes that wait for the client; it decreases while the client reads. */
export function countUnsent(socket: Socket): number {
  const handle = (socket as { _handle?: { writeQueueSize?: unknown } | null })._handle;
  const queued = handle?.writeQueueSize;
  return typeof queued === "number" ? queued : 0;
}
