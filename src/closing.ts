/** What all transports share to close their connections. */
import { ProxyError } from "./error.ts";
import { milliseconds } from "./options/kinds.ts";

/**
 * Returns the error of a request that arrives after `close()`, or that `destroy()` aborts. It asks the client to try
 * again after one second, because a closed proxy is usually being replaced by a new one.
 */
export function poolClosed(): ProxyError {
  return new ProxyError("destination_unavailable", {
    message: "the proxy has been closed",
    retryAfter: 1,
  });
}

/** Whether this is the error of `poolClosed`. */
export function isPoolClosed(error: unknown): boolean {
  // No other error of a running exchange or tunnel has this code and tells when to try again.
  return (
    error instanceof ProxyError &&
    error.code === "destination_unavailable" &&
    error.retryAfter !== undefined
  );
}

/**
 * Waits until the connections have closed, and destroys the remaining ones after a time.
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
