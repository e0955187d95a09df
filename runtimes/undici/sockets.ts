import { subscribe } from "node:diagnostics_channel";
import type { Socket } from "node:net";

/** Bytes that a connection had received before the error that ended it. */
const received = new WeakMap<object, number>();
/** Whether undici is being told of a connection's error right now. */
let isBreaking = false;
let isWatching = false;

function onError(this: Socket, error: Error): void {
  received.set(error, this.bytesRead);
  isBreaking = true;
  // The listeners of `error` and `close` run in one callback of the event loop, before any microtask.
  queueMicrotask(() => (isBreaking = false));
}

/**
 * Watches the errors of undici's connections, of all dispatchers: undici shows no request's connection, but tells of each
 * that it opens. The listener comes before its own, which hands the error to the request.
 */
export function watchConnections(): void {
  if (isWatching) return;
  isWatching = true;
  subscribe("undici:client:connected", (message) => {
    (message as { socket?: Socket }).socket?.prependListener?.("error", onError);
  });
}

/** Whether the connection that an error ended had received anything before. */
export function hadReceived(error: unknown): boolean {
  if (typeof error !== "object" || error === null) return false;
  const { socket } = error as { socket?: { bytesRead?: number } | null };
  return (received.get(error) ?? socket?.bytesRead ?? 0) > 0;
}

/**
 * Whether a response that ends now ends because its connection was reset. undici takes the reset of a connection for the
 * end of a body without a length.
 */
export function isReset(): boolean {
  return isBreaking;
}
