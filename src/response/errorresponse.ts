import { BytesBody } from "../body/bytes.ts";
import { encodeText } from "../body/memory.ts";
import type { ProxyError } from "../error.ts";
import type { HeaderList } from "../fields/headers.ts";
import type { UpstreamResponse } from "../transport/message.ts";

/**
 * The reason phrases of the statuses that errors of this library have: those in `STATUS_OF` (error.ts), and those that are
 * set by `ProxyErrorInit.status`.
 */
const REASON: Record<number, string> = {
  400: "Bad Request",
  405: "Method Not Allowed",
  408: "Request Timeout",
  413: "Content Too Large",
  499: "Client Closed Request",
  500: "Internal Server Error",
  501: "Not Implemented",
  502: "Bad Gateway",
  503: "Service Unavailable",
  504: "Gateway Timeout",
  505: "HTTP Version Not Supported",
};

/** The `Allow` that a 405 must have (RFC 9110 §15.5.6). The proxy does not know which of these methods the upstream allows. */
const FORWARDED_METHODS = "GET, HEAD, POST, PUT, DELETE, OPTIONS, PATCH, QUERY";

/** The text of a 505, which names the versions that the server supports (RFC 9110 §15.6.6). */
const VERSIONS = "The supported versions are HTTP/1.0 and HTTP/1.1.\n";

/** A token of a structured field (RFC 9651 §3.3.4). */
const SF_TOKEN = /^[A-Za-z*][\w!#$%&'*+.^`|~:/-]*$/;

/**
 * Makes the response to the client from an error. It contains the code of the error, but neither addresses nor causes.
 * @param name the name of this proxy in `Proxy-Status`
 */
export function toErrorResponse(
  error: ProxyError,
  method: string,
  name: string = "fetchway",
): UpstreamResponse {
  const statusText = REASON[error.status] ?? "";
  const details = error.status === 505 ? VERSIONS : "";
  const bytes = encodeText(`${statusText || error.status}: ${error.code}\n${details}`);
  const headers: HeaderList = [
    "Content-Type",
    "text/plain; charset=utf-8",
    "Content-Length",
    String(bytes.byteLength),
    "Proxy-Status",
    `${SF_TOKEN.test(name) ? name : `"${name}"`}; error=${error.code}`,
  ];
  if (error.status === 405) headers.push("Allow", FORWARDED_METHODS);
  if (error.retryAfter !== undefined) headers.push("Retry-After", String(error.retryAfter));
  const body = method === "HEAD" ? null : new BytesBody(bytes);
  return { status: error.status, statusText, headers, body };
}
