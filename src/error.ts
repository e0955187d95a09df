import { BytesBody } from "./body/bytes.ts";
import type { HeaderList, UpstreamResponse } from "./transport.ts";

/** An error type of RFC 9209 §2.3, as in `ProxyError.code` and the `Proxy-Status` header. */
export type ProxyErrorCode =
  | "dns_timeout"
  | "dns_error"
  | "destination_unavailable"
  | "destination_ip_unroutable"
  | "connection_refused"
  | "connection_terminated"
  | "connection_timeout"
  | "connection_read_timeout"
  | "connection_limit_reached"
  | "tls_protocol_error"
  | "tls_certificate_error"
  | "tls_alert_received"
  | "http_request_error"
  | "http_response_incomplete"
  | "http_response_header_section_size"
  | "http_response_transfer_coding"
  | "http_response_timeout"
  | "http_protocol_error"
  | "proxy_internal_error"
  | "proxy_loop_detected";

/**
 * The registered proxy error types of RFC 9209 §2.3 that Fetchway reports, with
 * the status each one answers with. This is the only mapping of errors to statuses.
 */
const STATUS_OF: Readonly<Record<ProxyErrorCode, number>> = {
  dns_timeout: 504,
  dns_error: 502,
  destination_unavailable: 503,
  destination_ip_unroutable: 502,
  connection_refused: 502,
  connection_terminated: 502,
  connection_timeout: 504,
  connection_read_timeout: 504,
  connection_limit_reached: 503,
  tls_protocol_error: 502,
  tls_certificate_error: 502,
  tls_alert_received: 502,
  http_request_error: 400,
  http_response_incomplete: 502,
  http_response_header_section_size: 502,
  http_response_transfer_coding: 502,
  http_response_timeout: 504,
  http_protocol_error: 502,
  proxy_internal_error: 500,
  proxy_loop_detected: 508,
};

const REASON: Record<number, string> = {
  400: "Bad Request",
  413: "Content Too Large",
  499: "Client Closed Request",
  500: "Internal Server Error",
  501: "Not Implemented",
  502: "Bad Gateway",
  503: "Service Unavailable",
  504: "Gateway Timeout",
  505: "HTTP Version Not Supported",
  508: "Loop Detected",
};

/** What may be said of a `ProxyError` beside its code. */
export interface ProxyErrorInit {
  /** The status to answer with, where it is not the code's usual one (413, 499 and 505 are `http_request_error`). */
  status?: number;
  /** What went wrong, for the operator. It is never sent to the client. */
  message?: string;
  /** What the runtime's client threw. It is never sent to the client: it names addresses. */
  cause?: unknown;
  /** Whether a connection kept from an earlier request broke before a byte of the response: it may have been closed before. */
  stale?: boolean;
  /** Seconds after which the client may try again, where it is known to be worth it: `Retry-After` tells it. */
  retryAfter?: number;
}

/**
 * Why a request could not be forwarded, or its response not be finished.
 *
 * Handed to `onError`; also the error of a response body that broke off.
 * @see https://www.rfc-editor.org/rfc/rfc9209#section-2.3
 */
export class ProxyError extends Error {
  /** `"ProxyError"`. */
  override readonly name = "ProxyError";
  /** The error type of RFC 9209. */
  readonly code: ProxyErrorCode;
  /** The status of the response it becomes: 400 to 599. */
  readonly status: number;
  /** Whether a connection kept from an earlier request broke before a byte of the response. */
  readonly stale: boolean;
  /** Seconds after which the client may try again; undefined where nobody knows. */
  readonly retryAfter: number | undefined;

  /**
   * Makes an error of this type.
   * @throws RangeError for a status that is no error's
   */
  constructor(code: ProxyErrorCode, init: ProxyErrorInit = {}) {
    super(init.message ?? code, "cause" in init ? { cause: init.cause } : undefined);
    this.code = code;
    const { status = STATUS_OF[code] } = init;
    if (!(status >= 400 && status <= 599)) {
      throw new RangeError(`fetchway: a ProxyError's status must be 400 to 599, not ${status}`);
    }
    this.status = status;
    this.stale = init.stale ?? false;
    this.retryAfter = init.retryAfter;
  }
}

/** The error of a request that cannot go on as it is. */
export function badRequest(name: string, status = 400): ProxyError {
  return new ProxyError("http_request_error", {
    status,
    message: `the request's ${name} cannot be forwarded`,
  });
}

/** The error of a method that a client would refuse, or turn into another. */
export function unsendable(method: string): ProxyError {
  return new ProxyError("http_request_error", {
    status: 501,
    message: `${method} cannot be sent from here`,
  });
}

/** The error of a client that left before its response was complete. */
export function clientGone(cause?: unknown): ProxyError {
  return new ProxyError("http_request_error", {
    status: 499,
    message: "the client closed the request",
    ...(cause === undefined ? {} : { cause }),
  });
}

/** The error of a request body that failed before its end. */
export function brokenOff(thrown: unknown): ProxyError {
  if (thrown instanceof ProxyError) return thrown;
  const message = "the client broke off its request body";
  return new ProxyError("http_request_error", { message, cause: thrown });
}

/** Anything thrown on the way, as a `ProxyError`: what is not one already is a fault of ours or of a hook. */
export function toProxyError(thrown: unknown): ProxyError {
  if (thrown instanceof ProxyError) return thrown;
  const message = thrown instanceof Error ? thrown.message : String(thrown);
  return new ProxyError("proxy_internal_error", { message, cause: thrown });
}

const encoder = new TextEncoder();

/** The response an error becomes. It says which kind of error, and nothing of addresses or causes. */
export function toErrorResponse(error: ProxyError, method: string): UpstreamResponse {
  const statusText = REASON[error.status] ?? "";
  const bytes = encoder.encode(`${statusText || error.status}: ${error.code}\n`);
  const headers: HeaderList = [
    "Content-Type",
    "text/plain; charset=utf-8",
    "Content-Length",
    String(bytes.byteLength),
    "Proxy-Status",
    `fetchway; error=${error.code}`,
  ];
  if (error.retryAfter !== undefined) headers.push("Retry-After", String(error.retryAfter));
  const body = method === "HEAD" ? null : new BytesBody(bytes);
  return { status: error.status, statusText, headers, body };
}
