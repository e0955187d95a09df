import { ProxyError, type ProxyErrorCode, type ProxyErrorInit } from "../error.ts";

/** The error types of RFC 9209 for the error codes of sockets. */
const CODES: Readonly<Record<string, ProxyErrorCode>> = {
  ECONNREFUSED: "connection_refused",
  ECONNRESET: "connection_terminated",
  EPIPE: "connection_terminated",
  ENOENT: "connection_refused",
  EACCES: "connection_refused",
  ETIMEDOUT: "connection_timeout",
  // Refused by a local firewall, by the permissions of Node, or by those of Deno, whose errors have a name but no code.
  EPERM: "destination_ip_prohibited",
  ERR_ACCESS_DENIED: "destination_ip_prohibited",
  NotCapable: "destination_ip_prohibited",
  EHOSTUNREACH: "destination_ip_unroutable",
  ENETUNREACH: "destination_ip_unroutable",
  ENOTFOUND: "dns_error",
  EAI_AGAIN: "dns_error",
  EAI_FAIL: "dns_error",
  // This machine has no descriptor or port left, or this process may open no more. RFC 9209 has no type for that. The
  // closest type is the one for a configured limit on connections, which has the status 503, and does not blame the
  // upstream.
  EMFILE: "connection_limit_reached",
  ENFILE: "connection_limit_reached",
  EADDRNOTAVAIL: "connection_limit_reached",
  EPROTO: "tls_protocol_error",
  DEPTH_ZERO_SELF_SIGNED_CERT: "tls_certificate_error",
  SELF_SIGNED_CERT_IN_CHAIN: "tls_certificate_error",
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: "tls_certificate_error",
  UNABLE_TO_GET_ISSUER_CERT: "tls_certificate_error",
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: "tls_certificate_error",
  ERR_TLS_CERT_ALTNAME_INVALID: "tls_certificate_error",
};

const UNTRUSTED =
  "the upstream's certificate is not accepted: pass its CA as `tls: { ca }` of the target or the pool, " +
  "and the name in the certificate as `tls: { servername }` if it differs from the URL's";

/** The parts of a system error that this file reads. `errors` has one error per address, if several were tried. */
interface FailedConnect {
  readonly code?: string;
  readonly name?: string;
  readonly errors?: readonly FailedConnect[];
}

/** The messages and other properties of the `ProxyError` for some error types. */
const DETAILS: Partial<Record<ProxyErrorCode, ProxyErrorInit>> = {
  tls_certificate_error: { message: UNTRUSTED },
  destination_ip_prohibited: { message: "this process may not connect to the upstream" },
  connection_limit_reached: {
    message: "this machine has no free descriptor or port for a connection",
    retryAfter: 1,
  },
};

/** The errors of a connection that was not established, so that nothing of the request was sent. */
const UNOPENED: ReadonlySet<ProxyErrorCode> = new Set<ProxyErrorCode>([
  "connection_refused",
  "connection_timeout",
  "destination_ip_prohibited",
  "destination_ip_unroutable",
]);

/**
 * Converts an error of a socket to a `ProxyError`.
 * @param isAnswered whether the response headers had arrived
 * @param isStale whether a reused connection failed before any byte of the response arrived
 * @param isOpen whether the connection had been established, so that the upstream may have received the request before
 * it became unreachable
 */
export function toSocketError(
  thrown: unknown,
  isAnswered: boolean,
  isStale: boolean,
  isOpen = false,
): ProxyError {
  const error = withErrorType(thrown);
  const isLost = isOpen && UNOPENED.has(error.code);
  if (error.code !== "connection_terminated" && !isLost) return error;
  const { cause } = error;
  if (isAnswered) return new ProxyError("http_response_incomplete", { cause });
  if (!isStale && !isLost) return error;
  return new ProxyError("connection_terminated", { cause, stale: isStale });
}

function withErrorType(thrown: unknown): ProxyError {
  if (thrown instanceof ProxyError) return thrown;
  // Keep the system error only as the cause, because its message contains addresses, and some servers show messages to
  // the client.
  const type = socketErrorType(thrown);
  return new ProxyError(type, { cause: thrown, ...DETAILS[type] });
}

/**
 * The error types that this machine may cause, not the upstream: it may lack the address family, a permission, a descriptor
 * or a port.
 */
const OF_THIS_MACHINE: ReadonlySet<ProxyErrorCode | undefined> = new Set<ProxyErrorCode>([
  "connection_limit_reached",
  "destination_ip_prohibited",
  "destination_ip_unroutable",
]);

/**
 * Returns the code of a system error. If all addresses of a name have failed, an error from an upstream is preferred to a
 * local error, such as `EADDRNOTAVAIL` for an address family that this machine lacks.
 */
export function codeOf(thrown: unknown): string {
  const error = (thrown ?? {}) as FailedConnect;
  if (error.errors === undefined) return codeOrName(error);
  const codes = [error, ...error.errors].map(codeOrName).filter((each) => each !== "");
  return codes.find((each) => !OF_THIS_MACHINE.has(CODES[each])) ?? codes[0] ?? "";
}

function codeOrName({ code, name }: FailedConnect): string {
  return code ?? (name === "NotCapable" ? name : "");
}

/** Returns the error type of the `ProxyError` for an error of a socket. */
export function socketErrorType(thrown: unknown): ProxyErrorCode {
  return thrown instanceof ProxyError ? thrown.code : errorTypeOf(codeOf(thrown));
}

function errorTypeOf(code: string): ProxyErrorCode {
  if (code.startsWith("CERT_")) return "tls_certificate_error";
  if (code.startsWith("ERR_SSL_")) {
    return code.includes("ALERT") ? "tls_alert_received" : "tls_protocol_error";
  }
  return CODES[code] ?? "proxy_internal_error";
}
