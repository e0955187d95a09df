/**
 * Aborts a response on Node, so that its body cannot look complete to the client.
 *
 * A body that ends with the connection (RFC 9112 §6.3).
 * - Rests on: `chunkedEncoding` and `useChunkedEncodingByDefault` are both false on a response whose body ends with the
 *   connection.
 * - Check: one of them must be `true`. Then no client can take the end of the connection for the end of the body.
 * - Otherwise: the connection is reset, which no client takes for the end of a body.
 * - Test: test/runtimes/node/internals/breakoff.test.ts, "after a truncated response, the connection is reset if Node does
 *   not show the response's transfer coding".
 *
 * A response whose web stream fails, on a server that may leave the connection open.
 * - Rests on: `socket._httpMessage` (see pipelining.ts).
 * - Check: the response on the connection is compared with the one that failed.
 * - Otherwise: the connection is closed immediately.
 * - Test: test/runtimes/node/internals/breakoff.test.ts, "a response whose stream fails" and
 *   test/runtimes/node/apps.broken.test.ts.
 */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Http2ServerResponse } from "node:http2";
import type { Socket } from "node:net";
import { responseOn } from "./pipelining.ts";

/** The HTTP/2 error code for a fault that is not the client's (RFC 9113 §7). */
const INTERNAL_ERROR = 2;

export function breakOff(res: ServerResponse | Http2ServerResponse): void {
  if ("stream" in res) return res.stream.close(INTERNAL_ERROR);
  if (res.destroyed || res.writableFinished) return;
  // A response behind another one has no connection yet. Requests wait for their turn, so this happens only on a version of
  // Node that does not show the current response.
  if (res.socket === null) return destroySocket(res.req.socket);
  if (endsWithConnection(res)) resetSocket(res.socket);
  else res.destroy();
}

/**
 * Whether the body may end with the connection: the client could then take a graceful close for the end of the body. Also true
 * for an HTTP/1.0 response with `Content-Length`, although its body has a known end.
 */
function endsWithConnection(res: ServerResponse): boolean {
  return !res.chunkedEncoding && !res.useChunkedEncodingByDefault;
}

/**
 * Closes the connection of a request whose response's web stream failed. Without this, the response could look complete: the
 * server may close an HTTP/1.0 connection gracefully, as after a complete body, or send the error's message in the last chunk
 * (@hono/node-server).
 */
export function breakOffRequest(request: IncomingMessage): void {
  const { socket } = request;
  if (request.httpVersion === "1.0") return resetSocket(socket);
  const sent = responseOn(socket);
  if (sent === undefined) return destroySocket(socket);
  // After `end()`, nothing more that the server writes is sent. If no head was sent yet, do nothing: the server then sends
  // another response.
  if (sent?.req === request && sent.headersSent) socket.end();
}

/** Closes a connection immediately, without sending the bytes that still wait for the client. */
function resetSocket(socket: Socket): void {
  try {
    socket.resetAndDestroy();
  } catch {
    // Only a TCP socket can be reset. A TLS connection is closed without close_notify instead.
    destroySocket(socket);
  }
}

/** Closes a connection. The sockets of test tools that use no server have no `destroy`. */
function destroySocket(socket: Partial<Socket>): void {
  socket.destroy?.();
}
