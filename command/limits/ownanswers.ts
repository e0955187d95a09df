/**
 * The responses that Node's server or the command sends itself, to requests that no proxy sees. These are logged and counted
 * like all others.
 *
 * - Rests on: `socket._httpMessage` is the response that is being sent on a connection, as in Node's own listener for errors.
 * - Check: a value without `headersSent` counts as no response.
 * - Otherwise: the 400 for a bad request may follow the bytes of the response before it. The connection is closed anyway.
 * - Test: test/command/ownanswers.node.test.ts.
 */
import { type IncomingMessage, type ServerResponse, STATUS_CODES } from "node:http";
import type { Http2ServerRequest, ServerHttp2Session } from "node:http2";
import type { Server, Socket } from "node:net";
import { ProxyError, type RequestEnd } from "#fetchway";
import { quoteInput } from "#fetchway/options";
import { unmapAddress } from "#fetchway/requests";

type Message = IncomingMessage | Http2ServerRequest;

/** Receives the end of a request that no proxy has seen. */
export type Report = (end: RequestEnd) => void;

/** A placeholder for the web `Request`, which a refused request does not have. */
const UNKNOWN = new Request("http://unknown.invalid/");

/** The known facts about a request that no proxy has answered. */
interface Known {
  readonly method?: string | undefined;
  readonly path?: string | undefined;
  readonly authority?: string | undefined;
  readonly address: string | undefined;
}

/** The error that Node passes to a listener of `clientError`. */
export interface ParserError extends Error {
  readonly code?: string;
  readonly reason?: string;
  readonly rawPacket?: Buffer;
  readonly bytesParsed?: number;
}

/** The reasons for which the command has ended running requests, by the HTTP/1.1 socket or the HTTP/2 stream. */
const ended: WeakMap<object, ProxyError> = new WeakMap();

/**
 * Notes why the command ends a running request, so that its end is not reported as a disconnect of the client.
 * @param carrier the HTTP/1.1 socket or the HTTP/2 stream of the request
 */
export function noteEnd(carrier: object, status: number, cause: string): void {
  ended.set(carrier, makeRefusal(status, cause));
}

/**
 * Returns the end of a request as it must be reported. If the command itself has ended the request, the error says why; it
 * does not say that the client disconnected.
 */
export function correctEnd(end: RequestEnd): RequestEnd {
  if (!isBrokenOff(end.error)) return end;
  const { request } = end;
  const message = (request as { runtime?: { node?: { req?: Message } } }).runtime?.node?.req;
  const carrier = message && ("stream" in message ? message.stream : message.socket);
  const error = carrier && ended.get(carrier);
  if (error === undefined) return end;
  return { ...end, request, error, status: end.status >= 400 ? error.status : end.status };
}

/** Whether an error says that the client has disconnected, or may have broken off the body of its request. */
function isBrokenOff(error: unknown): boolean {
  return error instanceof ProxyError && (error.status === 499 || error.status === 400);
}

/**
 * Refuses a request before a proxy sees it. An HTTP/1.1 connection is closed, because the bytes that follow may not be a
 * request.
 */
export function refuseEarly(
  message: Message,
  status: number,
  cause: string,
  report: Report,
): Response {
  report(toEnd(readKnown(message), status, cause));
  const fields = new Headers({ "content-type": "text/plain" });
  if (!("stream" in message)) fields.set("connection", "close");
  const statusText = STATUS_CODES[status] ?? "";
  return new Response(`${statusText}\n`, { status, statusText, headers: fields });
}

function readKnown({ method, url: path, headers, socket }: Message): Known {
  const authority = (headers[":authority"] ?? headers.host) as string;
  return { method, path, authority, address: socket.remoteAddress };
}

/**
 * Refuses requests that expect something unknown (RFC 9110 §10.1.1), as Node does if `checkExpectation` has no listener, and
 * reports them. Over HTTP/2, Node emits that event also for `100-Continue`, although the value is case-insensitive.
 */
function answerExpectations(server: Server, report: Report): void {
  server.on("checkExpectation", (message: Message, response: ServerResponse) => {
    const { expect = "" } = message.headers;
    if (/^100-continue$/i.test(expect)) return server.emit("checkContinue", message, response);
    report(toEnd(readKnown(message), 417, `the request expects ${quoteInput(expect)}`));
    return response.writeHead(417).end();
  });
}

/**
 * Answers requests that Node's parser or server refuses, as Node does if `clientError` has no listener, and reports them.
 * @param takes called with each error; returns whether another protocol has taken the connection, so that no answer is needed
 */
export function answerRefusals(
  server: Server,
  headersTimeout: number,
  report: Report,
  takes: (error: ParserError, socket: Socket) => boolean = () => false,
): void {
  answerExpectations(server, report);
  server.on("clientError", (error: ParserError, socket: Socket) => {
    if (takes(error, socket)) return;
    const { code = "" } = error;
    const isTimeout = code === "ERR_HTTP_REQUEST_TIMEOUT";
    // Other errors concern the connection, such as a reset. The client cannot receive an answer then.
    if (!isTimeout && !code.startsWith("HPE_")) return socket.destroy(error);
    const status = isTimeout ? 408 : (STATUSES[code] ?? 400);
    const cause = isTimeout
      ? `no complete header section within ${headersTimeout} ms`
      : (explainHeader(error) ??
        `the request is not valid HTTP/1.1: ${error.reason ?? error.message}`);
    const running = findRunning(socket);
    if (running === undefined) {
      report(toEnd({ ...readRequestLine(error), address: socket.remoteAddress }, status, cause));
    } else if (code !== "HPE_INVALID_EOF_STATE") {
      // `HPE_INVALID_EOF_STATE` means that the client has disconnected in the middle of its body, and is reported as a
      // disconnect.
      noteEnd(socket, status, cause);
    }
    if (socket.writable && running?.headersSent !== true) {
      socket.write(`HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\nConnection: close\r\n\r\n`);
    }
    socket.destroy(error);
  });
  const addresses = new WeakMap<object, string | undefined>();
  server.on("session", (session: ServerHttp2Session) => {
    addresses.set(session, session.socket.remoteAddress);
  });
  server.on("sessionError", (error: ParserError, session: ServerHttp2Session) => {
    // Report only the errors that nghttp2 has found. The other session errors are errors that the client itself has reported,
    // and errors of the connection.
    if (error.code !== "ERR_HTTP2_ERROR") return;
    const cause = `the connection is not valid HTTP/2: ${error.message}`;
    report(toEnd({ address: addresses.get(session) }, 400, cause));
  });
}

/** The status for each code of an error of Node's parser; a code that is not listed gets 400. */
const STATUSES: Readonly<Record<string, number>> = {
  HPE_HEADER_OVERFLOW: 431,
  HPE_CHUNK_EXTENSIONS_OVERFLOW: 413,
};

/** Matches the beginning of a header of the PROXY protocol, version 1 or 2. */
const PROXY_HEADER = /^(?:PROXY (?:TCP|UNKNOWN)|\r\n\r\n\0\r\nQUIT\n)/;

/** Returns the message for a request that begins with a header of the PROXY protocol; undefined for any other request. */
function explainHeader({ rawPacket }: ParserError): string | undefined {
  return PROXY_HEADER.test(rawPacket?.toString("latin1", 0, 16) ?? "")
    ? "PROXY protocol: a header from a peer that --proxy-protocol does not name, or a second header"
    : undefined;
}

function findRunning(socket: Socket): { headersSent: boolean } | undefined {
  const response = (socket as { _httpMessage?: Partial<ServerResponse> | null })._httpMessage;
  return typeof response?.headersSent === "boolean"
    ? (response as { headersSent: boolean })
    : undefined;
}

const REQUEST_LINE = /^([!#$%&'*+.^_`|~\w-]+) (\S+) HTTP\/1\.[01]\r?$/gm;
/** The number of bytes, from the start of the refused packet, in which `readRequestLine` searches. */
const MAX_REQUEST_LINE = 16_384;

/**
 * Finds the last request line that begins before the byte at which the parser stopped, or at that byte. It finds none if the
 * line was in an earlier packet, because only the packet that the parser refused is available.
 */
function readRequestLine({ rawPacket, bytesParsed = 0 }: ParserError): Partial<Known> {
  const text = rawPacket?.toString("latin1", 0, MAX_REQUEST_LINE) ?? "";
  let found: Partial<Known> = {};
  for (const { index, 1: method, 2: path } of text.matchAll(REQUEST_LINE)) {
    if (index <= bytesParsed) found = { method, path };
  }
  return found;
}

function makeRefusal(status: number, message: string): ProxyError {
  return new ProxyError("http_request_error", { status, message });
}

/**
 * Returns the end of a request that the command has answered itself.
 * @param cause why the request was refused; undefined if it was not
 */
export function toEnd(
  { method = "-", path = "-", authority = "-", address }: Known,
  status: number,
  cause: string | undefined,
): RequestEnd {
  return {
    method,
    path,
    route: undefined,
    authority,
    clientAddress: address === undefined ? undefined : unmapAddress(address),
    upstream: undefined,
    status,
    protocol: undefined,
    error: cause === undefined ? undefined : makeRefusal(status, cause),
    attempts: 0,
    reused: undefined,
    traceparent: undefined,
    bytesIn: 0,
    bytesOut: 0,
    startedAt: Date.now(),
    timings: {
      held: undefined,
      queue: undefined,
      connect: undefined,
      firstByte: undefined,
      total: 0,
    },
    request: UNKNOWN,
  };
}
