import { ProxyError } from "../../../src/error.ts";
import { toSocketError } from "../../../src/transport/socketerror.ts";

/** Returns the error of a request that the upstream has not processed. */
export function unprocessed(message: string, cause?: unknown): ProxyError {
  return new ProxyError("connection_terminated", { message, cause, unprocessed: true });
}

/** The error codes of RFC 9113 §7 for a violation of the protocol. */
const PROTOCOL_CODES: ReadonlySet<number> = new Set([1, 3, 4, 5, 6, 9, 12]);
const REFUSED_STREAM = 7;
/**
 * The upstream's code for excessive load. The runtimes themselves reset a stream with the same code if the head of a response
 * is longer than the proxy accepts, so the code of a stream does not show which of the two has happened.
 */
const ENHANCE_YOUR_CALM = 11;
const CALM_GOAWAY =
  "the upstream has closed the connection because it is asked for too much (ENHANCE_YOUR_CALM)";
const CALM_STREAM =
  "its head is too long, or it has reset the stream because it is asked for too much (ENHANCE_YOUR_CALM)";

/**
 * Converts an error of a stream to a `ProxyError`.
 * @param code the code with which the stream was closed
 * @param isAnswered whether the response headers had arrived
 * @param isStale whether a reused connection failed before any byte of the response arrived
 * @param isOpen whether the stream had been opened
 */
export function toStreamError(
  thrown: unknown,
  code: number | undefined,
  isAnswered: boolean,
  isStale: boolean,
  isOpen = false,
): ProxyError {
  if (thrown instanceof ProxyError) {
    const isClosed = thrown.code === "connection_terminated" && !thrown.unprocessed;
    return isClosed ? toSocketError(thrown, isAnswered, isStale) : thrown;
  }
  const { code: name = "" } = (thrown ?? {}) as NodeJS.ErrnoException;
  if (thrown !== undefined && !name.startsWith("ERR_HTTP2")) {
    return toSocketError(thrown, isAnswered, isStale, isOpen);
  }
  if (isAnswered) return new ProxyError("http_response_incomplete", { cause: thrown });
  if (code === REFUSED_STREAM) return unprocessed("the upstream has refused the stream", thrown);
  if (code === ENHANCE_YOUR_CALM && name === "ERR_HTTP2_SESSION_ERROR") {
    return new ProxyError("connection_terminated", { message: CALM_GOAWAY, cause: thrown });
  }
  if (code === ENHANCE_YOUR_CALM || name === "ERR_HTTP2_TOO_MANY_CUSTOM_SETTINGS") {
    const message = code === ENHANCE_YOUR_CALM ? { message: CALM_STREAM } : undefined;
    return new ProxyError("http_response_header_section_size", { cause: thrown, ...message });
  }
  if (name === "ERR_HTTP2_ERROR" || (code !== undefined && PROTOCOL_CODES.has(code))) {
    return new ProxyError("http_protocol_error", { cause: thrown });
  }
  return toSocketError(
    new ProxyError("connection_terminated", { cause: thrown }),
    isAnswered,
    isStale,
  );
}
