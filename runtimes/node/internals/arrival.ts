/**
 * How long a small body takes to arrive, in turns of the event loop.
 *
 * - Rests on: Node parses a small request body after the handler has run, although it is in the same packet as the head.
 *   By the first `setImmediate`, the body has arrived. By the second, Node has polled all sockets, so that the transport
 *   has noticed which idle connections the upstream has closed. The rest of a small response arrives with the next read.
 * - Check: `BodySource.whole()` tells whether a body has arrived, after the wait and not before. The pool checks whether a
 *   connection is usable.
 * - Otherwise: the body is streamed. A request on a closed connection is retried if that is safe, else it gets 502.
 * - Test: test/internals.arrival.node.test.ts, and test/stale.test.ts, "costs nothing, not even a POST".
 */
import type { BeginLater } from "../../../src/http1/client.ts";

/** Begins an attempt after two turns of the event loop: by then, a small request body has arrived. */
export const beginAfterArrival: BeginLater = (attempt, pool) => {
  setImmediate(beginInNextTurn, attempt, pool);
};

/** This is a function of the module, because a closure would be allocated for each request. */
const beginInNextTurn: BeginLater = (attempt, pool) => {
  setImmediate(beginAttempt, attempt, pool);
};

const beginAttempt: BeginLater = (attempt, pool) => {
  attempt.begin(pool);
};

/** Waits for the rest of a small response body. */
export function waitForRest(): Promise<unknown> {
  return new Promise((resolve) => setImmediate(resolve));
}
