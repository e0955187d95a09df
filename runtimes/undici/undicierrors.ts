import { subscribe } from "node:diagnostics_channel";
import type { Socket } from "node:net";
import { ProxyError, type ProxyErrorCode } from "../../src/error.ts";
import { toSocketError } from "../../src/transport/socketerror.ts";
import { poolClosed } from "../../src/transport/closing.ts";

/**
 * RFC 9209's names for undici's error codes. undici passes errors of sockets on unchanged, and `toSocketError` converts
 * them.
 */
const CODES: Readonly<Record<string, ProxyErrorCode>> = {
  UND_ERR_CONNECT_TIMEOUT: "connection_timeout",
  UND_ERR_HEADERS_TIMEOUT: "http_response_timeout",
  UND_ERR_BODY_TIMEOUT: "connection_read_timeout",
  UND_ERR_HEADERS_OVERFLOW: "http_response_header_section_size",
  HPE_HEADER_OVERFLOW: "http_response_header_section_size",
  UND_ERR_SOCKET: "connection_terminated",
  UND_ERR_INFO: "connection_terminated",
  UND_ERR_REQ_RETRY: "connection_terminated",
  UND_ERR_RES_CONTENT_LENGTH_MISMATCH: "http_response_incomplete",
  UND_ERR_RES_EXCEEDED_MAX_SIZE: "http_response_incomplete",
  UND_ERR_REQ_CONTENT_LENGTH_MISMATCH: "http_request_error",
  UND_ERR_NOT_SUPPORTED: "http_request_error",
  UND_ERR_MAX_ORIGINS_REACHED: "connection_limit_reached",
  UND_ERR_BPL_MISSING_UPSTREAM: "destination_unavailable",
  UND_ERR_PRX_TLS: "tls_certificate_error",
  // A forward proxy could not connect to the upstream: no byte of the request was sent.
  UND_ERR_PRX_CONN: "connection_refused",
  // The interceptor `responseError` turns responses with a status of at least 400 into errors.
  UND_ERR_RESPONSE: "http_protocol_error",
  // undici's parser accepts some bytes that HTTP does not allow, such as the status 000, and an assertion fails later.
  ERR_ASSERTION: "http_protocol_error",
};

/**
 * The messages of Node and of undici for a request that an HTTP/2 upstream has not processed: the upstream has refused the
 * stream, or its GOAWAY frame names an earlier stream as the last. undici itself sends such a request again once, if the
 * request body is in memory.
 */
const UNPROCESSED = /code NGHTTP2_REFUSED_STREAM$|^HTTP\/2: "GOAWAY" frame received/;

/** How far a request had come when it failed. */
export interface Progress {
  /** Whether undici had begun to send the request. */
  readonly isStarted: boolean;
  /** Whether the headers of the response had arrived. */
  readonly isAnswered: boolean;
  /** Whether the connection had carried an earlier response, and no byte of this response had arrived. */
  readonly isStale: boolean;
}

/** Converts an error of undici to a `ProxyError`. A `ProxyError` is returned unchanged. */
export function toUndiciError(thrown: unknown, progress: Progress): ProxyError {
  if (thrown instanceof ProxyError) return thrown;
  const { name = "", code = "", message = "" } = (thrown ?? {}) as Partial<NodeJS.ErrnoException>;
  if (code === "UND_ERR_CLOSED" || code === "UND_ERR_DESTROYED") return poolClosed();
  if (!progress.isAnswered && UNPROCESSED.test(message)) {
    return new ProxyError("connection_terminated", { cause: thrown, unprocessed: true });
  }
  const known = classifyUndiciError(name, code, message, progress.isStarted);
  const error = known === undefined ? thrown : new ProxyError(known, { cause: thrown });
  return toSocketError(error, progress.isAnswered, progress.isStale, progress.isStarted);
}

function classifyUndiciError(
  name: string,
  code: string,
  message: string,
  isStarted: boolean,
): ProxyErrorCode | undefined {
  switch (code) {
    case "UND_ERR_SOCKET":
      // "bad response" and "bad upgrade" are undici's messages for a status 100 or 101 that the request did not ask for.
      return message.startsWith("bad ") ? "http_protocol_error" : CODES[code];
    case "UND_ERR_INVALID_ARG":
      // Before undici has begun to send the request, this code means a path or a field that cannot be sent. Afterwards, it
      // means that a forward proxy has answered with the status 407.
      return isStarted ? "proxy_internal_error" : "http_request_error";
    case "UND_ERR_ABORTED":
      // Before undici has begun to send the request, this code means that a forward proxy has refused the tunnel.
      return isStarted ? "connection_terminated" : "connection_refused";
  }
  const known = CODES[code];
  if (known !== undefined) return known;
  if (code.startsWith("UND_ERR_SOCKS5")) return "connection_refused";
  // Some of undici's errors have no code.
  if (name === "HTTPParserError" || code.startsWith("ERR_HTTP2_")) return "http_protocol_error";
  return undefined;
}

// ── the state of the connection that failed, which undici's errors do not contain ──

/** For each error that ended a connection, the number of bytes that the connection had received before. */
const received = new WeakMap<object, number>();
/** Whether undici is handling the error of a connection in the current callback of the event loop. */
let isFailing = false;
let isWatching = false;

function onConnectionError(this: Socket, error: Error): void {
  received.set(error, this.bytesRead);
  isFailing = true;
  // The socket's `error` and `close` listeners run in one callback of the event loop, before any microtask.
  queueMicrotask(() => (isFailing = false));
}

/**
 * Watches the connections of all dispatchers for errors. undici does not show the connection of a request, but it
 * announces each new connection on a diagnostics channel. The listener is prepended, because undici's own `error` listener
 * passes the error to the request.
 */
export function watchConnections(): void {
  if (isWatching) return;
  isWatching = true;
  subscribe("undici:client:connected", (message) => {
    (message as { socket?: Socket }).socket?.prependListener?.("error", onConnectionError);
  });
}

/** Whether the connection that an error ended had received any bytes. */
export function hadReceived(error: unknown): boolean {
  if (typeof error !== "object" || error === null) return false;
  const { socket } = error as { socket?: { bytesRead?: number } | null };
  return (received.get(error) ?? socket?.bytesRead ?? 0) > 0;
}

/**
 * Whether the connection of a response that ends now has failed. undici takes the reset of a connection for the
 * regular end of a body without a length.
 */
export function isConnectionFailing(): boolean {
  return isFailing;
}
