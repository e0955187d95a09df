/**
 * The rule for sending a request again. `sendAttempts` (one upstream), `LeasedAttempt` (several) and their timers of
 * `attemptTimeout` ask `nextAttempt`. Redirects and mirrors do not: they send other requests.
 */
import { replayOf } from "../body/replay.ts";
import { type BodySource, mayGoUnread } from "../body/source.ts";
import { ProxyError, type ProxyErrorCode } from "../error.ts";
import type { RetryOptions } from "../options/repeatoptions.ts";
import type { UpstreamRequest } from "../transport/message.ts";

/** What is known of an attempt that another one may follow. */
export type Outcome =
  /** The connection was refused: nothing was sent. */
  | "refused"
  /** There was no connection for another reason: nothing was sent. */
  | "unsent"
  /** The upstream says that it has processed nothing: a refused HTTP/2 stream, or one above the last of a GOAWAY. */
  | "unprocessed"
  /** A reused connection was closed before the first byte of the response. */
  | "stale"
  /** No response headers within `attemptTimeout`. */
  | "slow"
  /** A new connection broke before the response headers. */
  | "broken"
  /** A response whose status is in `statusCodes`. */
  | "status"
  /** Anything else. */
  | "final";

/** Where the next attempt would go: to the only upstream, to the same one of several, or to another one. */
export type RetryPlace = "alone" | "same" | "another";

/**
 * Which requests are sent again (without an entry, none): `"listed"` if the method is in the option `methods`, `"any"` with any method, and `"free"`
 * with any method and without counting for `attempts`, because nothing was sent or processed.
 *
 * "A client SHOULD NOT automatically retry a request with a non-idempotent method unless it has some means to know that the
 * request semantics are actually idempotent [the option], or some means to detect that the original request was never
 * applied [any, free]" (RFC 9110 §9.2.2). "Requests that have not been processed have not failed; clients MAY automatically retry
 * them, even those with non-idempotent methods" (RFC 9113 §8.7).
 */
const RULES: Readonly<Record<Outcome, Partial<Record<RetryPlace, "listed" | "any" | "free">>>> = {
  // To the only upstream, a refused request of another method could go as well. It does not: nothing has changed since.
  refused: { alone: "listed", another: "free" },
  unsent: { another: "free" },
  unprocessed: { alone: "any", same: "any", another: "free" },
  stale: { alone: "listed", same: "listed", another: "listed" },
  slow: { alone: "listed", another: "listed" },
  broken: { another: "listed" },
  status: { alone: "listed", another: "listed" },
  final: {},
};

/** How attempts are made. */
export interface AttemptOptions {
  readonly retry: Required<RetryOptions>;
  /** Milliseconds after which an attempt without response headers is left for another one; 0 for no limit. */
  readonly attemptTimeout: number;
  /** Whether bodies are not to be read: a response then counts as over when its headers have arrived. */
  readonly handsBodiesThrough: boolean;
}

/** The next attempt to send a request. */
export interface NextAttempt {
  readonly request: UpstreamRequest;
  /** How often the request may be sent again after this attempt. */
  readonly left: number;
}

/**
 * Returns the next attempt to send a request; undefined if there is to be none. Ask the upstreams' retry budget only after
 * this function has agreed: asking spends from it.
 *
 * "A client SHOULD NOT automatically retry a failed automatic retry" (RFC 9110 §9.2.2): `left` counts over all upstreams.
 * A request that was not sent or processed does not use it up: it goes to each other upstream at most once.
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
  // With `retry: false`, not even a refused connection leads to another upstream.
  if (rule === undefined || attempts === 0) return undefined;
  const isFree = rule === "free";
  if (!isFree && left === 0) return undefined;
  if (rule === "listed" && !methods.includes(request.method)) return undefined;
  // It is set once the request was repeated on a new connection. From then on, the request goes over new connections only, and
  // no upstream gets it a second time.
  if (place === "same" && request.newConnection === true) return undefined;
  const body = bodyToSend(request);
  if (body === undefined) return undefined;
  // The upstream may have closed the other idle connections as well.
  const needsNew = place !== "another" && outcome !== "status";
  const newConnection = needsNew || (request.newConnection ?? false);
  return { request: { ...request, body, newConnection }, left: isFree ? left : left - 1 };
}

/** Returns the body for another attempt: one of which nothing was sent, or the bytes that were kept; undefined if it is gone. */
function bodyToSend(request: UpstreamRequest): BodySource | null | undefined {
  const { body } = request;
  if (body?.isUntouched === true) return body;
  return mayGoUnread(request) ? undefined : replayOf(body);
}

/** The error of an attempt that took longer than `attemptTimeout`. */
export class AttemptTimeout extends ProxyError {
  constructor(limit: number) {
    super("http_response_timeout", { message: `an attempt took longer than ${limit} ms` });
  }
}

/** Failures before a connection was established: nothing was sent. */
const UNSENT: ReadonlySet<ProxyErrorCode> = new Set<ProxyErrorCode>([
  "connection_timeout",
  "dns_error",
  "dns_timeout",
  "connection_limit_reached",
  "destination_ip_prohibited",
  "destination_ip_unroutable",
  "tls_certificate_error",
]);

/** Failures of a connection that was established, perhaps after the upstream has got the request. */
const BROKEN: ReadonlySet<ProxyErrorCode> = new Set<ProxyErrorCode>([
  "connection_terminated",
  "tls_protocol_error",
  "tls_alert_received",
]);

/** Returns what the error of an attempt says about the request. */
export function outcomeOf(error: unknown): Outcome {
  if (error instanceof AttemptTimeout) return "slow";
  if (!(error instanceof ProxyError)) return "final";
  if (error.unprocessed) return "unprocessed";
  if (error.stale) return "stale";
  if (error.code === "connection_refused") return "refused";
  if (UNSENT.has(error.code)) return "unsent";
  return BROKEN.has(error.code) ? "broken" : "final";
}
