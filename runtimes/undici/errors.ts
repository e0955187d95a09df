import { ProxyError, type ProxyErrorCode } from "../../src/error.ts";
import { poolClosed } from "../../src/closing.ts";
import { toNetworkError } from "../../src/http1/socketerror.ts";

/** What undici calls an error, as RFC 9209 does. Errors of sockets that undici passes on are in `pool/errors.ts`. */
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
  // A forward proxy that did not connect to the upstream: no byte of the request was sent.
  UND_ERR_PRX_CONN: "connection_refused",
  // The response interceptor `responseError` makes errors of statuses from 400 on.
  UND_ERR_RESPONSE: "http_protocol_error",
  // undici asserts what its parser accepts and HTTP does not, such as a status of 000.
  ERR_ASSERTION: "http_protocol_error",
};

/** How far a request had come when it failed. */
export interface Progress {
  /** Whether undici had begun to send it. */
  readonly isStarted: boolean;
  /** Whether the headers of the response had arrived. */
  readonly isAnswered: boolean;
  /** Whether its connection had carried a response before, and no byte of this one has arrived. */
  readonly isStale: boolean;
}

/** An error of undici's as a `ProxyError`, which has undici's as its cause. */
export function toUndiciError(thrown: unknown, progress: Progress): ProxyError {
  if (thrown instanceof ProxyError) return thrown;
  const { name = "", code = "", message = "" } = (thrown ?? {}) as Partial<NodeJS.ErrnoException>;
  if (code === "UND_ERR_CLOSED" || code === "UND_ERR_DESTROYED") return poolClosed();
  const known = classify(name, code, message, progress.isStarted);
  const error = known === undefined ? thrown : new ProxyError(known, { cause: thrown });
  return toNetworkError(error, progress.isAnswered, progress.isStale);
}

function classify(
  name: string,
  code: string,
  message: string,
  isStarted: boolean,
): ProxyErrorCode | undefined {
  switch (code) {
    case "UND_ERR_SOCKET":
      // A response that was not asked for: "bad response" (100), "bad upgrade" (101).
      return message.startsWith("bad ") ? "http_protocol_error" : CODES[code];
    case "UND_ERR_INVALID_ARG":
      // Before the start it is a path or a field that cannot be sent; after it, a forward proxy's 407.
      return isStarted ? "proxy_internal_error" : "http_request_error";
    case "UND_ERR_ABORTED":
      // Before the start, a forward proxy has refused the tunnel.
      return isStarted ? "connection_terminated" : "connection_refused";
  }
  const known = CODES[code];
  if (known !== undefined) return known;
  if (code.startsWith("UND_ERR_SOCKS5")) return "connection_refused";
  // Not each of its errors has a code.
  if (name === "HTTPParserError" || code.startsWith("ERR_HTTP2_")) return "http_protocol_error";
  return undefined;
}
