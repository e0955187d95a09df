/** Code for closing connections, which all transports share. */
import { ProxyError } from "../error.ts";
import { milliseconds } from "../schema/kinds.ts";

/**
 * The errors that `poolClosed` has made. Their properties do not identify them, because other errors may have the same
 * `code` and `retryAfter`.
 */
const closedErrors = new WeakSet<object>();

/**
 * Returns the error of a request that arrives after `close()`, or that `destroy()` aborts. The error asks the client to
 * try again after one second, because a closed proxy is usually being replaced by a new one.
 */
export function poolClosed(): ProxyError {
  const message = "the proxy has been closed";
  const error = new ProxyError("destination_unavailable", { message, retryAfter: 1 });
  closedErrors.add(error);
  return error;
}

/** Whether `poolClosed` has made this error. */
export function isPoolClosed(error: unknown): boolean {
  return closedErrors.has(error as object);
}

/**
 * Waits until the connections have closed, and destroys the remaining ones after the timeout.
 * @param timeout milliseconds; 0 for no limit
 * @throws TypeError for a timeout that is not whole milliseconds
 */
export async function closeWithin(
  timeout: number,
  closing: () => Promise<unknown>,
  destroy: () => void,
): Promise<void> {
  const wrong = milliseconds.check(timeout);
  if (wrong) throw new TypeError(`fetchway: close(timeout): ${wrong}`);
  const timer = timeout > 0 ? setTimeout(destroy, timeout) : undefined;
  await closing();
  clearTimeout(timer);
}
