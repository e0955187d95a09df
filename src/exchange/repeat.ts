/**
 * The rule for sending a request again. After a failure or a status in `statusCodes`, and when `attemptTimeout` is over,
 * `nextAttempt` is called by `sendAttempts` in send.ts (one upstream) and by `LeasedAttempt` in upstreams/failover.ts (several
 * upstreams); `HeldRequests` in wait.ts calls it before a request waits. Redirects and mirrors do not call it: they send other
 * requests.
 */
import { replayOf } from "../body/replay.ts";
import { type BodySource, mayGoUnread } from "../body/source.ts";
import { ProxyError, type ProxyErrorCode } from "../error.ts";
import type { RetryOptions } from "../options/repeatoptions.ts";
import type { UpstreamRequest } from "../transport/message.ts";

/** The outcome of an attempt, which decides whether the request may be sent again. */
export type Outcome =
  /** The connection was refused: nothing was sent. */
  | "refused"
  /** The name of the upstream was not found: nothing was sent. */
  | "unresolved"
  /** No connection was established, for another reason: nothing was sent. */
  | "unsent"
  /**
   * The upstream says that it has processed nothing: it has refused the HTTP/2 stream, or has sent a GOAWAY that excludes
   * it. Or none of several upstreams could take the request.
   */
  | "unprocessed"
  /** A reused connection was closed before the first byte of the response. */
  | "stale"
  /** The proxy has given the attempt up: it took too long, or the body of its response did not begin (`awaitFirstByte`). */
  | "abandoned"
  /** A new connection broke before the response headers arrived. */
  | "broken"
  /** The response has a status that is in `statusCodes`. */
  | "status"
  /** Anything else. */
  | "final";

/**
 * Where the next attempt would go. `"alone"`: to the only upstream. `"same"` and `"another"`: to the same or another one of
 * several upstreams. `"later"`: to any upstream of the target, after the request has waited (option `wait`).
 */
export type RetryPlace = "alone" | "same" | "another" | "later";

/**
 * Which requests are sent again after an outcome. `"listed"`: requests whose method is in the option `methods`. `"any"`:
 * requests with any method. `"free"`: requests with any method, and the new attempt does not count towards `attempts`, because
 * nothing was sent or processed. Without an entry, no request is sent again.
 *
 * "A client SHOULD NOT automatically retry a request with a non-idempotent method unless it has some means to know that the
 * request semantics are actually idempotent [the option], or some means to detect that the original request was never
 * applied [any, free]" (RFC 9110 §9.2.2). "Requests that have not been processed have not failed; clients MAY automatically
 * retry them, even those with non-idempotent methods" (RFC 9113 §8.7).
 */
const RULES: Readonly<Record<Outcome, Partial<Record<RetryPlace, "listed" | "any" | "free">>>> = {
  // A request whose method is not listed could be sent to the only upstream again as well, because nothing was sent. It is
  // not sent again immediately, because that upstream would most likely refuse the connection again.
  refused: { alone: "listed", another: "free", later: "free" },
  unresolved: { another: "free", later: "free" },
  unsent: { another: "free" },
  unprocessed: { alone: "any", same: "any", another: "free", later: "free" },
  stale: { alone: "listed", same: "listed", another: "listed", later: "listed" },
  abandoned: { alone: "listed", another: "listed" },
  broken: { another: "listed", later: "listed" },
  status: { alone: "listed", another: "listed" },
  final: {},
};

/** The options that decide whether and when a request is sent again. */
export interface AttemptOptions {
  /** Whether requests wait if no upstream can take them (`wait`). */
  readonly waits: boolean;
  readonly retry: Required<RetryOptions>;
  /**
   * Milliseconds after which an attempt without response headers is stopped and replaced by another one; 0 for no limit.
   */
  readonly attemptTimeout: number;
  /** Whether the transport passes bodies on unread: a response then counts as over as soon as its headers have arrived. */
  readonly handsBodiesThrough: boolean;
}

/** The next attempt to send a request. */
export interface NextAttempt {
  readonly request: UpstreamRequest;
  /** How often the request may be sent again after this attempt. */
  readonly left: number;
}

/**
 * Returns the next attempt to send a request; undefined if there must be none. Ask for the retry budget of the upstreams
 * only after this function has returned an attempt: asking spends from the budget.
 *
 * "A client SHOULD NOT automatically retry a failed automatic retry" (RFC 9110 §9.2.2): `left` counts the attempts at all
 * upstreams together. A `"free"` attempt does not reduce `left`, because the request goes to each other upstream at most once,
 * or waits no longer than `wait`.
 * @param left how often the request may still be sent again
 */
export function nextAttempt(
  request: UpstreamRequest,
  outcome: Outcome,
  place: RetryPlace,
  { attempts, methods }: Required<RetryOptions>,
  left: number,
): NextAttempt | undefined {
  const rule = RULES[outcome][place];
  const isFree = rule === "free";
  // With `retry: false`, a request is not sent to another upstream even after a refused connection.
  if (rule === undefined || (attempts === 0 && place !== "later")) return undefined;
  if (!isFree && left === 0) return undefined;
  if (rule === "listed" && !methods.includes(request.method)) return undefined;
  // `newConnection` is set once the request has been sent again to the same upstream, or has waited. From then on, the request
  // is sent on new connections only, and to each upstream at most once, unless it waits again.
  if (place === "same" && request.newConnection === true) return undefined;
  const body = bodyToSend(request);
  if (body === undefined) return undefined;
  // Use a new connection, because the upstream may have closed the other idle connections as well.
  const needsNew = place !== "another" && outcome !== "status";
  const newConnection = needsNew || (request.newConnection ?? false);
  return { request: { ...request, body, newConnection }, left: isFree ? left : left - 1 };
}

/**
 * Returns the body for another attempt: the same body if it can still be sent from its beginning, and otherwise a body of the
 * kept bytes; undefined if not all bytes were kept.
 */
function bodyToSend(request: UpstreamRequest): BodySource | null | undefined {
  const { body } = request;
  if (body?.isUntouched === true) return body;
  return mayGoUnread(request) ? undefined : replayOf(body);
}

/** The error of an attempt that took too long, or whose response body did not begin (`awaitFirstByte`). */
export class AbandonedAttempt extends ProxyError {}

export function attemptTooLong(limit: number): AbandonedAttempt {
  return new AbandonedAttempt("http_response_timeout", {
    message: `an attempt took longer than ${limit} ms`,
  });
}

/** The codes of failures before a connection was established, except refusals and failed lookups: nothing was sent. */
const UNSENT: ReadonlySet<ProxyErrorCode> = new Set<ProxyErrorCode>([
  "connection_timeout",
  "connection_limit_reached",
  "destination_ip_prohibited",
  "destination_ip_unroutable",
  "tls_certificate_error",
]);

/** The codes of failures of an established connection. The upstream may have received the request. */
const BROKEN: ReadonlySet<ProxyErrorCode> = new Set<ProxyErrorCode>([
  "connection_terminated",
  "tls_protocol_error",
  "tls_alert_received",
]);

/** Returns the outcome of an attempt that failed with this error. */
export function outcomeOf(error: unknown): Outcome {
  if (error instanceof AbandonedAttempt) return "abandoned";
  if (!(error instanceof ProxyError)) return "final";
  if (error.unprocessed) return "unprocessed";
  if (error.stale) return "stale";
  if (error.code === "connection_refused") return "refused";
  if (error.code === "dns_error" || error.code === "dns_timeout") return "unresolved";
  if (UNSENT.has(error.code)) return "unsent";
  return BROKEN.has(error.code) ? "broken" : "final";
}
