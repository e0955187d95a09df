/** An error type of RFC 9209 §2.3, as in `ProxyError.code` and the `Proxy-Status` header. */
export type ProxyErrorCode =
  | "dns_timeout"
  | "dns_error"
  | "destination_unavailable"
  | "destination_ip_prohibited"
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
 * The status of the response to each error. The names are those of the proxy error types of RFC 9209 §2.3 that Fetchway
 * reports. This is the only mapping of errors to statuses.
 */
const STATUS_OF: Readonly<Record<ProxyErrorCode, number>> = {
  dns_timeout: 504,
  dns_error: 502,
  destination_unavailable: 503,
  destination_ip_prohibited: 502,
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
  proxy_loop_detected: 502,
};

/** The properties of a `ProxyError`, except its code. */
export interface ProxyErrorInit {
  /**
   * The status of the response, where it differs from the usual status of the code; 413, 499 and 505, for example, have
   * the code `http_request_error`.
   */
  status?: number;
  /** The description of the error for the operator. It is never sent to the client. */
  message?: string;
  /** The exception from which the error was made. It is never sent to the client, because it may contain addresses. */
  cause?: unknown;
  /**
   * Whether a reused connection was closed before the first byte of the response. The upstream may have closed it without
   * reading the request, so the request may be sent again.
   */
  stale?: boolean;
  /**
   * Whether the upstream has reported that it did not process the request (RFC 9113 §8.7), or none of several upstreams
   * could take it, so that a request with any method may be sent again.
   */
  unprocessed?: boolean;
  /** The seconds after which the client should try again; sent as `Retry-After`. */
  retryAfter?: number;
}

/**
 * The reason why a request could not be forwarded, or why its response could not be finished.
 *
 * The hook `onError` receives this error, and a response body that ends too early fails with it. Its `cause` may contain
 * addresses; its `message` contains none, unless it repeats the message of an exception, such as that of a hook. To log at
 * which upstream a request has failed, use `explainError` of `fetchway/errors`.
 * @see https://www.rfc-editor.org/rfc/rfc9209#section-2.3
 */
export class ProxyError extends Error {
  /** The name of the class: `"ProxyError"`. */
  override readonly name = "ProxyError";
  /** The error type of RFC 9209. */
  readonly code: ProxyErrorCode;
  /** The status of the response to the client: 400 to 599. */
  readonly status: number;
  /** Whether a reused connection was closed before the first byte of the response. */
  readonly stale: boolean;
  /** Whether the upstream has reported that it did not process the request, or none of several could take it. */
  readonly unprocessed: boolean;
  /** The seconds after which the client should try again; undefined if that is not known. */
  readonly retryAfter: number | undefined;

  /**
   * Makes an error with this code.
   * @throws RangeError for a status outside 400 to 599
   */
  constructor(code: ProxyErrorCode, init: ProxyErrorInit = {}) {
    super(init.message ?? code, init);
    this.code = code;
    const { status = STATUS_OF[code] } = init;
    if (!(status >= 400 && status <= 599)) {
      throw new RangeError(`fetchway: a ProxyError's status must be 400 to 599, not ${status}`);
    }
    this.status = status;
    this.stale = init.stale ?? false;
    this.unprocessed = init.unprocessed ?? false;
    this.retryAfter = init.retryAfter;
  }
}

/**
 * The upstream of a request that has failed, or several upstreams of which none could take the request. The core's
 * `Upstream` and `Upstreams` have these members.
 */
export interface ErrorPlace {
  /** The scheme and the authority of the upstream. */
  readonly origin?: string;
  /** The path of the upstream's Unix domain socket; undefined for none. */
  readonly socketPath?: string | undefined;
  /** The IP address that is set instead of a lookup; undefined for none. */
  readonly address?: string | undefined;
  /** The app in this process that is called instead of a server; undefined for a server. */
  readonly app?: object | undefined;
  /** Returns the state of each of several upstreams; left out by a single upstream. */
  states?(): readonly {
    readonly name: string;
    readonly state: string;
    readonly reason?: string | undefined;
  }[];
}

/**
 * The `ErrorPlace` of each error. It is not a property of the error, because apps may print errors, or send them to clients,
 * which must not see addresses.
 */
const places: WeakMap<ProxyError, ErrorPlace> = new WeakMap();

/** Stores the `ErrorPlace` of an error for `explainError`, unless the error already has one. */
export function placeError(error: ProxyError, place: ErrorPlace | undefined): void {
  if (place !== undefined && !places.has(error)) places.set(error, place);
}

/**
 * Returns the `ErrorPlace` of an error; undefined if `placeError` was not called for it, for example because no target was
 * chosen yet.
 */
export function placeOf(error: ProxyError): ErrorPlace | undefined {
  return places.get(error);
}

/**
 * Returns the error of a request that must not be forwarded.
 * @param name the part of the request that is wrong, such as the name of a field
 */
export function badRequest(name: string, status = 400): ProxyError {
  return new ProxyError("http_request_error", {
    status,
    message: `the request's ${name} cannot be forwarded`,
  });
}

/** Returns the error of a method that the proxy does not forward: CONNECT, and TRACE unless the option `trace` is set. */
export function methodNotAllowed(method: string): ProxyError {
  return new ProxyError("http_request_error", {
    status: 405,
    message: `${method} is not forwarded`,
  });
}

/**
 * Returns the error of a request that the transport cannot send, or would send with another method.
 * @param method what cannot be sent: the method, alone or with another part of the request, as in "GET with a body"
 */
export function unsendable(method: string): ProxyError {
  return new ProxyError("http_request_error", {
    status: 501,
    message: `the transport cannot send ${method}`,
  });
}

/** Returns the error of a client that has disconnected before its response was complete. */
export function clientGone(cause?: unknown): ProxyError {
  return new ProxyError("http_request_error", {
    status: 499,
    message: "the client closed the request",
    ...(cause === undefined ? {} : { cause }),
  });
}

/**
 * Converts an exception into the error of a request body that failed before its end: the client has disconnected, or
 * the framework has ended the stream. A framework's error for a body above its limit has the status 413, which is kept.
 */
export function toRequestBodyError(thrown: unknown): ProxyError {
  if (thrown instanceof ProxyError) return thrown;
  const message = `the stream of the request body failed: ${textOf(thrown)}`;
  const status = (thrown as { status?: unknown } | undefined)?.status === 413 ? 413 : 400;
  return new ProxyError("http_request_error", { status, message, cause: thrown });
}

/**
 * Returns the error of a request body whose length differs from its Content-Length.
 * @param received the number of bytes of the body; if there are too many, the number of bytes so far
 */
export function badLength(length: number, received: number): ProxyError {
  const message = `the request body has ${received} of ${length} bytes`;
  return new ProxyError("http_request_error", { message });
}

/**
 * Returns the error of a time limit that passes while the upstream waits for the rest of the request body. Either the client
 * has stopped sending, or a framework has made the stream from a request that a body parser has already read: that stream never
 * ends.
 */
export function bodyStopped(sent: number): ProxyError {
  return new ProxyError("http_response_timeout", {
    message: `no response headers, and the request body stopped after ${sent} bytes`,
  });
}

/**
 * Converts anything thrown to a `ProxyError`. A thrown value of another class comes from code of the app, such as a
 * hook, or from a bug in this library; it becomes the `cause` of a `proxy_internal_error`.
 */
export function toProxyError(thrown: unknown): ProxyError {
  if (thrown instanceof ProxyError) return thrown;
  return new ProxyError("proxy_internal_error", { message: textOf(thrown), cause: thrown });
}

function textOf(thrown: unknown): string {
  return thrown instanceof Error ? thrown.message : String(thrown);
}
