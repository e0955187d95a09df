/**
 * HTTP/2 with prior knowledge on a port without TLS (RFC 9113 §3.3).
 *
 * Node's HTTP/1.1 parser recognizes the connection preface, and stops after it with an error. An HTTP/1.1
 * connection therefore costs nothing extra, and the limits of HTTP/1.1 apply to the preface: a slow one gets 408, a wrong one
 * 400.
 *
 * - Rests on: the code of that error; and a listener for `readable` makes the HTTP/1.1 server stop reading the connection. The
 *   server still reports `headersTimeout` for the connection; that report is ignored.
 * - Check: the code, the number of bytes so far, and the bytes of the preface in the last packet.
 * - Otherwise: the preface gets 400.
 * - Test: test/command/priorknowledge.node.test.ts.
 */
import type { IncomingMessage, ServerResponse } from "node:http";
import { createServer, type ServerHttp2Session, type ServerOptions } from "node:http2";
import type { Server, Socket } from "node:net";
import type { ParserError } from "../limits/ownanswers.ts";

/** The connection preface of a client (RFC 9113 §3.4). */
const PREFACE = Buffer.from("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");

/**
 * Prepares an HTTP/1.1 server for HTTP/2. The server then emits the events of both protocols, as a server of `node:http2` with
 * `allowHTTP1` does. Its event `session` has the socket as a second argument.
 * @returns a function to call with each error of the parser and its socket. It returns whether the connection speaks HTTP/2;
 *   if so, the error needs no answer.
 */
export function acceptHttp2(
  server: Server,
  options: ServerOptions,
): (error: ParserError, socket: Socket) => boolean {
  const http2 = createServer(options);
  for (const event of ["request", "connect", "checkExpectation", "sessionError"]) {
    http2.on(event, (...values: unknown[]) => server.emit(event, ...values));
  }
  http2.on("checkContinue", (req: IncomingMessage, res: ServerResponse) => {
    if (server.emit("checkContinue", req, res)) return;
    res.writeContinue();
    server.emit("request", req, res);
  });
  const taken: WeakSet<Socket> = new WeakSet();
  return (error, socket) => {
    if (taken.has(socket)) return true;
    const rest = readAfterPreface(error, socket);
    if (rest === undefined) return false;
    taken.add(socket);
    socket.removeAllListeners("data");
    socket.once("readable", () => {});
    // The session reads these bytes in the next tick.
    socket.unshift(Buffer.concat([PREFACE, rest]));
    // As on a TLS connection, end the connection when the client ends its direction.
    socket.allowHalfOpen = false;
    http2.once("session", (session: ServerHttp2Session) => {
      server.emit("session", session, socket);
    });
    http2.emit("connection", socket);
    return true;
  };
}

/**
 * Returns the bytes that have arrived after the preface; undefined if the connection did not begin with the preface. If the
 * preface came in several packets, only the last packet is still available. The parser has checked the earlier ones, except
 * that it accepts any path of one character instead of `*`.
 */
function readAfterPreface(
  { code, rawPacket, bytesParsed = 0 }: ParserError,
  { bytesRead }: Socket,
): Buffer | undefined {
  if (code !== "HPE_PAUSED_H2_UPGRADE" || rawPacket === undefined) return undefined;
  if (bytesRead - rawPacket.length + bytesParsed !== PREFACE.length) return undefined;
  const last = rawPacket.subarray(0, bytesParsed);
  return PREFACE.subarray(-bytesParsed).equals(last) ? rawPacket.subarray(bytesParsed) : undefined;
}
