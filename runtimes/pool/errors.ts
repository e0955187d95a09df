import { ProxyError, type ProxyErrorCode } from "../../src/error.ts";

/** What Node and undici call an error, as RFC 9209 does. */
const CODES: Readonly<Record<string, ProxyErrorCode>> = {
  HPE_HEADER_OVERFLOW: "http_response_header_section_size",
  ECONNREFUSED: "connection_refused",
  ECONNRESET: "connection_terminated",
  EPIPE: "connection_terminated",
  ENOENT: "connection_refused",
  EACCES: "connection_refused",
  ETIMEDOUT: "connection_timeout",
  UND_ERR_CONNECT_TIMEOUT: "connection_timeout",
  EHOSTUNREACH: "destination_ip_unroutable",
  ENETUNREACH: "destination_ip_unroutable",
  ENOTFOUND: "dns_error",
  EAI_AGAIN: "dns_error",
  EAI_FAIL: "dns_error",
  EPROTO: "tls_protocol_error",
  DEPTH_ZERO_SELF_SIGNED_CERT: "tls_certificate_error",
  SELF_SIGNED_CERT_IN_CHAIN: "tls_certificate_error",
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: "tls_certificate_error",
  UNABLE_TO_GET_ISSUER_CERT: "tls_certificate_error",
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: "tls_certificate_error",
  ERR_TLS_CERT_ALTNAME_INVALID: "tls_certificate_error",
  UND_ERR_SOCKET: "connection_terminated",
  UND_ERR_HEADERS_OVERFLOW: "http_response_header_section_size",
  UND_ERR_RES_CONTENT_LENGTH_MISMATCH: "http_response_incomplete",
  // The client's own doing: a body that is not what its Content-Length said, a field nobody can send.
  UND_ERR_REQ_CONTENT_LENGTH_MISMATCH: "http_request_error",
  ERR_INVALID_CHAR: "http_request_error",
  UND_ERR_INVALID_ARG: "http_request_error",
  UND_ERR_NOT_SUPPORTED: "http_request_error",
};

/**
 * An error of Node's or undici's as a `ProxyError`.
 * @param answered whether the response headers had come already
 */
export function toNetworkError(thrown: unknown, answered: boolean): ProxyError {
  if (thrown instanceof ProxyError) return thrown;
  const {
    name = "",
    code = "",
    message = "",
  } = (thrown ?? {}) as Partial<Error & { code: string }>;
  // What Node says names addresses, and some servers show an error's message to the client.
  return new ProxyError(classify(name, code, message, answered), { cause: thrown });
}

function classify(name: string, code: string, message: string, answered: boolean): ProxyErrorCode {
  // undici asserts what llhttp lets through and HTTP does not: a status of 000.
  if (name === "HTTPParserError" || code === "ERR_ASSERTION") return "http_protocol_error";
  if (code.startsWith("CERT_")) return "tls_certificate_error";
  if (code.startsWith("ERR_SSL_")) {
    return code.includes("ALERT") ? "tls_alert_received" : "tls_protocol_error";
  }
  // An answer that nobody asked for: "bad response" (100), "bad upgrade" (101).
  if (code === "UND_ERR_SOCKET" && message.startsWith("bad ")) return "http_protocol_error";
  const fallback = code.startsWith("HPE_") ? "http_protocol_error" : "proxy_internal_error";
  const known = CODES[code] ?? fallback;
  return answered && known === "connection_terminated" ? "http_response_incomplete" : known;
}
