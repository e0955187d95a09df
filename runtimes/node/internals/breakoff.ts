/**
 * Aborts a response on Node, so that its body cannot look complete to the client.
 *
 * The end of a body at the end of the connection (RFC 9112 §6.3).
 * - Rests on: `chunkedEncoding` and `useChunkedEncodingByDefault` are false on a response without chunked coding.
 * - Check: only `true` means that a closed connection cannot be taken for the end of the body.
 * - Otherwise: the connection is reset, which no client takes for the end of a body.
 * - Test: test/internals.breakoff.node.test.ts, "a response that does not show its coding is reset".
 *
 * A pipelined response that is not the first.
 * - Rests on: such a response has no socket. Node's `assignSocket` later gives it one and emits `socket`, and writes what
 *   was buffered of the response in the same task.
 * - Check: the response must have `assignSocket`.
 * - Otherwise: the connection of its request is closed at once, with the responses in front of it.
 * - Test: test/internals.breakoff.node.test.ts, "a response that gets no socket".
 *
 * A response that fails as a web stream, on a server that may not close its connection.
 * - Rests on: `socket._httpMessage` (see pipelining.ts), and Node assigns the connection to the next response in its own
 *   listener of `finish`.
 * - Check: the response on the connection is compared with the one that failed, before the event and after it.
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

/** Whether the body ends with the connection: an orderly close would then say that it is complete. */
function endsWithConnection(res: ServerResponse): boolean {
  return !res.chunkedEncoding && !res.useChunkedEncodingByDefault;
}

/**
 * Closes the connection of a request whose response failed as a web stream, where the server may not close it. A server
 * may close an HTTP/1.0 connection in order, as after a complete body. It may end the response as if it were complete,
 * with the error's message in the last chunk (@hono/node-server). It may leave a pipelined response open that has no
 * connection yet.
 */
export function breakOffRequest(request: IncomingMessage): void {
  const { socket } = request;
  if (request.httpVersion === "1.0") return resetSocket(socket);
  const sent = responseOn(socket);
  if (sent === undefined) return destroySocket(socket);
  if (sent === null) return;
  if (sent.req === request) {
    // Nothing that the server writes after this is sent. If no head was sent yet, the server sends another response.
    if (sent.headersSent) socket.end();
    return;
  }
  // Run before Node's own listener, which assigns the connection to the next response and writes its buffered chunks.
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

function resetSocket(socket: Socket): void {
  try {
    socket.resetAndDestroy();
  } catch {
    // Only a TCP socket can be reset. A TLS connection is closed without close_notify instead.
    destroySocket(socket);
  }
}

/** Closes a connection. Test tools without a server have sockets that cannot be closed. */
function destroySocket(socket: Partial<Socket>): void {
  socket.destroy?.();
}
