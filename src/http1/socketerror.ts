import { ProxyError, type ProxyErrorCode } from "../error.ts";

/** What sockets call an error, as RFC 9209 does. */
const CODES: Readonly<Record<string, ProxyErrorCode>> = {
  ECONNREFUSED: "connection_refused",
  ECONNRESET: "connection_terminated",
  EPIPE: "connection_terminated",
  ENOENT: "connection_refused",
  EACCES: "connection_refused",
  ETIMEDOUT: "connection_timeout",
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
};

/**
 * An error of a socket as a `ProxyError`.
 * @param answered whether the response headers had come already
 * @param stale whether it was a kept connection's, before any byte of a response
 */
export function toNetworkError(thrown: unknown, answered: boolean, stale: boolean): ProxyError {
  const error = toProxyError(thrown);
  if (error.code !== "connection_terminated") return error;
  const { code, cause } = error;
  if (answered) return new ProxyError("http_response_incomplete", { cause });
  return stale ? new ProxyError(code, { cause, stale }) : error;
}

function toProxyError(thrown: unknown): ProxyError {
  if (thrown instanceof ProxyError) return thrown;
  const { code = "" } = (thrown ?? {}) as { code?: string };
  // What the system says names addresses, and some servers show an error's message to the client.
  return new ProxyError(classify(code), { cause: thrown });
}

function classify(code: string): ProxyErrorCode {
  if (code.startsWith("CERT_")) return "tls_certificate_error";
  if (code.startsWith("ERR_SSL_")) {
    return code.includes("ALERT") ? "tls_alert_received" : "tls_protocol_error";
  }
  return CODES[code] ?? "proxy_internal_error";
}
