/**
 * Aborts a response on Node, so that its body cannot look complete to the client.
 *
 * The end of a body at the end of the connection (RFC 9112 §6.3).
 * - Rests on: `chunkedEncoding` and `useChunkedEncodingByDefault` are false on a response without chunked coding.
 * - Check: only if one of them is `true` can no client take the end of the connection for the end of the body.
 * - Otherwise: the connection is reset, which no client takes for the end of a body.
 * - Test: test/internals.breakoff.node.test.ts, "a response that does not show its coding is reset".
 *
 * A pipelined response that is not the first.
 * - Rests on: such a response has no socket. Node's `assignSocket` later gives it one and emits `socket`, and writes what
 *   was buffered of the response in the same task.
 * - Check: the response must have `assignSocket`.
 * - Otherwise: the connection of its request is closed at once, which also ends the responses in front of it.
 * - Test: test/internals.breakoff.node.test.ts, "a response that gets no socket".
 *
 * A response whose web stream fails, on a server that may leave the connection open.
 * - Rests on: `socket._httpMessage` (see pipelining.ts), and Node assigns the connection to the next response in its own
 *   listener of `finish`.
 * - Check: the response on the connection is compared with the one that failed, before and after the event `finish`.
 * - Otherwise: the connection is closed at once.
 * - Test: test/internals.breakoff.node.test.ts, "a stream that fails" and test/apps.broken.node.test.ts.
 */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Http2ServerResponse } from "node:http2";
import type { Socket } from "node:net";
import { responseOn } from "./pipelining.ts";

/** The HTTP/2 error code for a fault that is not the client's (RFC 9113 §7). */
const INTERNAL_ERROR = 2;

/** Aborts a response. */
export function breakOff(res: ServerResponse | Http2ServerResponse): void {
  if ("stream" in res) return res.stream.close(INTERNAL_ERROR);
  if (res.destroyed || res.writableFinished) return;
  if (res.socket === null) {
    if (typeof (res as Partial<ServerResponse>).assignSocket !== "function") {
      return destroySocket(res.req.socket);
    }
    // Node writes what was buffered of the response before the microtask runs.
    return void res.once("socket", () => queueMicrotask(() => breakOff(res)));
  }
  if (endsWithConnection(res)) resetSocket(res.socket);
  else res.destroy();
}

/** Whether the body ends with the connection: the client would then take an orderly close for the end of the body. */
function endsWithConnection(res: ServerResponse): boolean {
  return !res.chunkedEncoding && !res.useChunkedEncodingByDefault;
}

/**
 * Closes the connection of a request whose response's web stream failed. The server alone would do one of these: end an
 * HTTP/1.0 connection in order, as after a complete body; end the response as if it were complete, with the error's
 * message in the last chunk (@hono/node-server); or leave a pipelined response open that has no connection yet.
 */
export function breakOffRequest(request: IncomingMessage): void {
  const { socket } = request;
  if (request.httpVersion === "1.0") return resetSocket(socket);
  const sent = responseOn(socket);
  if (sent === undefined) return destroySocket(socket);
  if (sent === null) return;
  if (sent.req === request) {
    // After `end()`, nothing more that the server writes is sent. If no head was sent yet, do nothing: the server then
    // sends another response.
    if (sent.headersSent) socket.end();
    return;
  }
  // Run before Node's own listener, which assigns the connection to the next response and writes the chunks that are
  // buffered in that response.
  sent.prependOnceListener("finish", () => {
    socket.cork();
    queueMicrotask(() => {
      const next = responseOn(socket);
      if (!next || next.req === request) return destroySocket(socket);
      breakOffRequest(request);
      socket.uncork();
    });
  });
}

/** Closes a connection at once, without sending what still waits for the client. */
export function resetSocket(socket: Socket): void {
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
