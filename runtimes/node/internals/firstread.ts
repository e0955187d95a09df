/**
 * When other code begins to read the body of a request.
 *
 * - Rests on: a readable stream calls its own method `_read` when it is read for the first time, in whichever way, and a
 *   property of the instance stands in front of the method of the class. Node documents `_read` for those who implement
 *   streams, not for requests.
 * - Check: the request must have the method.
 * - Otherwise: the callback is called at once, as if the body were being read.
 * - Test: test/internals.firstread.node.test.ts.
 */
import type { IncomingMessage } from "node:http";

/** Calls back once, immediately before the first read of a request's body. */
export function onFirstRead(message: IncomingMessage, callback: () => void): void {
  if (!("_read" in message)) return callback();
  message._read = (size) => {
    Reflect.deleteProperty(message, "_read");
    callback();
    message._read(size);
  };
}
