/** Explains what went wrong with a request, and what to do about it, with the names of the flags. */
import { ProxyError, type ProxyErrorCode } from "#fetchway";
import { escapeControls } from "./escape.ts";

/** A failure as the log and the status page show it. No text in it contains a control character. */
export interface Failure {
  /** The error type of RFC 9209, or `client_too_slow`, which RFC 9209 does not define. */
  readonly code: ProxyErrorCode | "client_too_slow";
  /** What happened, with the address of the upstream. */
  readonly cause: string;
  /** What the operator can do. */
  readonly fix: string | undefined;
}

/** The inputs of a diagnosis. */
interface FailureFacts {
  /** The upstream as host and port, or the path of its socket. */
  readonly at: string;
  /** The host name of the upstream, without the port. */
  readonly host: string;
  /** The message of the `ProxyError`; undefined if it is only the error's code. */
  readonly message: string | undefined;
  /** The exception that caused the error. */
  readonly thrown: Thrown;
  /** The status of the response for this error. */
  readonly status: number;
}

/** The properties of system errors and of TLS errors that the texts use. */
interface Thrown {
  readonly name?: string;
  readonly message?: string;
  readonly stack?: string;
  readonly code?: string;
  readonly address?: string;
  readonly port?: number;
  readonly hostname?: string;
  readonly reason?: string;
}

type Text = (facts: FailureFacts) => readonly [cause: string, fix?: string | undefined];

/** The advice about the limits for requests, by the status with which a limit refuses a request. */
const LIMITS: Readonly<Record<number, string>> = {
  408: "is the client stuck? see --headers-timeout and --body-timeout",
  413: "raise --body-limit to let it pass",
  431: "raise --max-header-size or --max-headers-count to let it pass",
};
const TRUST = "trust it by --ca <file>, or accept any by --insecure";
const REDIAL = "is the target right? does a firewall drop packets? see --connect-timeout";

const unknownAuthority: Text = ({ at }) => [
  `the certificate of ${at} is from an authority that is not trusted here`,
  TRUST,
];
const selfSigned: Text = ({ at }) => [`${at} has a self-signed certificate`, TRUST];
const tooManyFiles: Text = () => [
  "this process has too many open files",
  "raise the limit by ulimit -n, or lower --max-sockets",
];

/** The texts for the codes of system errors and of TLS errors. They take precedence over `BY_ERROR_TYPE`. */
const BY_CAUSE: Readonly<Record<string, Text>> = {
  ECONNREFUSED: ({ at }) => [at, "is it running?"],
  ENOENT: ({ at }) => [`there is no socket ${at}`, "is the upstream running? is the path right?"],
  EACCES: ({ at }) => [`no permission to connect to ${at}`, "run as a user that has it"],
  ECONNRESET: ({ at }) => [`${at} reset the connection`, "see its log"],
  EMFILE: tooManyFiles,
  ENFILE: tooManyFiles,
  EADDRNOTAVAIL: ({ at }) => [
    `this machine has no free port left for a connection to ${at}`,
    "is --keep-alive on? lower --max-sockets",
  ],
  EHOSTUNREACH: ({ at }) => [
    `there is no network route to ${at}`,
    "is the address right? is the network up?",
  ],
  ENETUNREACH: ({ at }) => [
    `there is no network route to ${at}`,
    "is the address right? is the network up?",
  ],
  ETIMEDOUT: ({ at }) => [`${at} does not answer`, REDIAL],
  ENOTFOUND: ({ host }) => [`cannot find host ${host}`, "is the name right?"],
  EAI_AGAIN: ({ host }) => [
    `no name server answers the query for ${host}`,
    "is the network up? is the name server of this machine right?",
  ],
  EAI_FAIL: ({ host }) => [`the name server refuses to look up ${host}`, "is the name right?"],
  DEPTH_ZERO_SELF_SIGNED_CERT: selfSigned,
  SELF_SIGNED_CERT_IN_CHAIN: unknownAuthority,
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: unknownAuthority,
  UNABLE_TO_GET_ISSUER_CERT: unknownAuthority,
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: unknownAuthority,
  CERT_HAS_EXPIRED: ({ at }) => [
    `the certificate of ${at} has expired`,
    "renew it, or accept any by --insecure",
  ],
  CERT_NOT_YET_VALID: ({ at }) => [
    `the certificate of ${at} is not valid yet`,
    "is the clock of this machine right?",
  ],
  ERR_TLS_CERT_ALTNAME_INVALID: ({ at, thrown }) => [
    `the certificate of ${at} is for another name${toClause(/altnames: (.*)/.exec(thrown.reason ?? "")?.[1])}`,
    "use a name of the certificate in the target, or accept any by --insecure",
  ],
  ERR_SSL_WRONG_VERSION_NUMBER: ({ at }) => [
    `${at} does not speak TLS`,
    "is the target http:// instead of https://?",
  ],
};

/** The texts for the error types of RFC 9209. */
const BY_ERROR_TYPE: Readonly<Record<ProxyErrorCode, Text>> = {
  dns_timeout: ({ host }) => [
    `no name server answered in time for ${host}`,
    "is the network up? is the name server of this machine right?",
  ],
  dns_error: ({ host }) => [`cannot find host ${host}`, "is the name right?"],
  destination_unavailable: ({ message }) => [message ?? "the upstream cannot be used now"],
  destination_ip_prohibited: ({ at, thrown }) => {
    const [flag = "--allow-net"] = /--allow-[\w-]+/.exec(thrown.message ?? "") ?? [];
    const fix = `is ${flag} of the runtime missing? does a firewall forbid it?`;
    return [`this process may not connect to ${at}`, fix];
  },
  destination_ip_unroutable: ({ at }) => [
    `there is no network route to ${at}`,
    "is the address right?",
  ],
  connection_refused: ({ at }) => [at, "is it running?"],
  connection_terminated: ({ at, message }) => [
    message ?? `${at} closed the connection without an answer`,
    "see its log; does it expect https://?",
  ],
  connection_timeout: ({ at, message }) => [
    message === undefined ? `no connection to ${at} in time` : `${message} from ${at}`,
    REDIAL,
  ],
  connection_read_timeout: ({ at, message = "" }) => [
    `${at} fell silent${/^(?:the tunnel did not end|no further chunk)/.test(message) ? toClause(message) : ""}`,
    message.includes("tunnel")
      ? "does it still read? see --tunnel-close-timeout"
      : "see its log; the limits are --idle-timeout and --socket-timeout",
  ],
  connection_limit_reached: ({ at, message = "too many requests wait" }) =>
    message.includes("maxRequests")
      ? [
          message,
          "raise maxRequests, maxQueue or queueTimeout of balance, or find out why they are slow",
        ]
      : [
          `${at}: ${message}`,
          "raise --max-sockets, --max-queued or --queue-timeout, or find out why it is slow",
        ],
  tls_protocol_error: ({ at, thrown }) => [
    `no TLS with ${at}${toClause(thrown.reason ?? thrown.message)}`,
    "is the target http:// instead of https://?",
  ],
  tls_certificate_error: ({ at, thrown }) => [
    `the certificate of ${at} cannot be trusted${toClause(thrown.reason ?? thrown.message)}`,
    TRUST,
  ],
  tls_alert_received: ({ at, thrown }) => [
    `${at} refused TLS${toClause(thrown.reason ?? thrown.message)}`,
    "does it need a client certificate, or another server name?",
  ],
  http_request_error: ({ message = "the request cannot be forwarded", status }) => [
    message,
    message.includes("not valid HTTP") && status !== 431 ? undefined : LIMITS[status],
  ],
  http_response_incomplete: ({ at, message }) => [
    `${at} closed the connection in the middle of the response${toClause(message)}`,
    "see its log",
  ],
  http_response_header_section_size: ({ at, message }) => [
    message === undefined ? `${at} sent too long a header section` : `${at}: ${message}`,
    "shorten its header fields, such as cookies",
  ],
  http_response_transfer_coding: ({ at, message }) => [
    `${at} sent a body whose coding cannot be forwarded${toClause(message)}`,
    "make it send a chunked body, or a Content-Length",
  ],
  http_response_timeout: ({ at, message }) => [
    `${at} does not answer${toClause(message)}`,
    "see its log; the limit is --timeout",
  ],
  http_protocol_error: ({ at, message }) =>
    message?.includes("speak HTTP/2")
      ? [`${at} does not speak HTTP/2`, "leave out --http2"]
      : [
          `${at} broke the rules of HTTP${toClause(message)}`,
          "is it an HTTP server? does it expect https://?",
        ],
  proxy_internal_error: explainException,
  proxy_loop_detected: ({ message }) => [
    message ?? "the request came back to this proxy",
    "is the target this proxy itself?",
  ],
};

/**
 * The texts for the system errors that a hook may have thrown. They concern files of the hook, not connections to the
 * upstream.
 */
const BY_INTERNAL_CAUSE: Readonly<Record<string, Text>> = {
  EMFILE: tooManyFiles,
  ENFILE: tooManyFiles,
};

/**
 * Explains the failure of a request.
 * @param error a `ProxyError`, or the exception of a hook
 * @param upstream where the request was to go, such as `http://127.0.0.1:4000` or `unix:/run/app.sock`
 */
export function diagnoseFailure(error: unknown, upstream: string | undefined): Failure {
  const isOurs = error instanceof ProxyError;
  const code = isOurs ? error.code : "proxy_internal_error";
  const thrown = Object(isOurs ? error.cause : error) as Thrown;
  // An error that was created without a message has its code as the message.
  const message =
    isOurs && error.message !== code ? error.message.replace("the upstream's", "its") : undefined;
  const facts = {
    ...locateUpstream(upstream, thrown),
    message,
    thrown,
    status: isOurs ? error.status : 500,
  };
  if (isClientSlow(error)) {
    const fix = "the limit is --min-rate; --max-sockets lets more requests run";
    return { code: "client_too_slow", cause: escapeControls(facts.message ?? code), fix };
  }
  const causes = code === "proxy_internal_error" ? BY_INTERNAL_CAUSE : BY_CAUSE;
  const text = causes[String(thrown.code)] ?? BY_ERROR_TYPE[code];
  const [cause, fix] = text(facts);
  // The message of an error does not name the upstream, because the app may show it to the client. The log does name the
  // upstream.
  const named = cause.replace(/^the upstream\b/, facts.at);
  return { code, cause: escapeControls(named), fix };
}

/** Renders a failure as the end of a line. */
export function renderFailure({ code, cause, fix }: Failure): string {
  return `${code}: ${cause}${fix === undefined ? "" : ` (${fix})`}`;
}

/** Whether an error says that the client disconnected before its response was complete. This is no failure of the proxy. */
export function isClientGone(error: unknown): boolean {
  return error instanceof ProxyError && error.status === 499;
}

/**
 * Whether an error says that the client was slower than `minRate` while other requests waited. This is no failure of the
 * proxy either.
 */
export function isClientSlow(error: unknown): boolean {
  // Only this 408 names the option: the server's own 408, for a header section or a body that takes too long, does not.
  return error instanceof ProxyError && error.status === 408 && error.message.includes("(minRate)");
}

/** Returns the name of an upstream without `http://`, because most upstreams have it. */
export function nameUpstream(upstream: string): string {
  return upstream.replace(/^http:\/\//, "");
}

function locateUpstream(
  upstream: string | undefined,
  thrown: Thrown,
): { at: string; host: string } {
  const { hostname } = thrown;
  const errors: readonly unknown[] = thrown instanceof AggregateError ? thrown.errors : [thrown];
  // The members may be of any type, because a hook may have thrown the error.
  const failed = errors
    .map((each) => Object(each) as Thrown)
    .filter(({ address }) => address !== undefined);
  const addresses = failed.map(({ address }) => address);
  const dialed = failed.map(({ address = "", port }) => joinAddress(address, port));
  const named = upstream?.replace(/^(?:https?:\/\/|unix:)/, "");
  const at = named ?? dialed[0] ?? hostname ?? "the upstream";
  const host = hostname ?? at.replace(/:\d+$/, "");
  // A host name may have several addresses, such as 127.0.0.1 and `::1` for `localhost`, so name those that failed.
  const isOther = dialed.length > 0 && !dialed.includes(at) && !at.startsWith("/");
  return { at: isOther ? `${at} at ${addresses.join(" and ")}` : at, host };
}

function joinAddress(address: string, port: number | undefined): string {
  if (port === undefined) return address;
  return `${address.includes(":") ? `[${address}]` : address}:${port}`;
}

function toClause(detail: string | undefined): string {
  return detail === undefined ? "" : `: ${detail.trim()}`;
}

/**
 * Renders an exception, which is usually thrown by a hook, with the place in the code where it was thrown: the first line of
 * the stack.
 */
function explainException({ message, thrown }: FailureFacts): readonly [string] {
  if (!(thrown instanceof Error)) return [message ?? "something other than an Error was thrown"];
  const [, place] = /^ {1,16}at (.*)$/m.exec(thrown.stack ?? "") ?? [];
  const where =
    place === undefined ? "" : `, thrown at ${place.replace(/file:\/\/|\?read=\d+/g, "")}`;
  return [`${thrown.name}: ${thrown.message}${where}`];
}
