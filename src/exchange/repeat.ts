/**
 * The rule for sending a request again. Everything that repeats a request asks `mayRepeat`: the loop over one upstream, the
 * loop over several, and the timer of `attemptTimeout`.
 */
import { replayOf } from "../body/replay.ts";
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
export type Place = "alone" | "same" | "another";

/**
 * Which requests are sent again: those whose method is in the option `methods` ("listed"), or those of any method.
 *
 * "A client SHOULD NOT automatically retry a request with a non-idempotent method unless it has some means to know that the
 * request semantics are actually idempotent [the option], or some means to detect that the original request was never
 * applied [any]" (RFC 9110 §9.2.2). "Requests that have not been processed have not failed; clients MAY automatically retry
 * them, even those with non-idempotent methods" (RFC 9113 §8.7).
 */
const RULES: Readonly<Record<Outcome, Partial<Record<Place, "listed" | "any">>>> = {
  refused: { alone: "listed", another: "any" },
  unsent: { another: "any" },
  unprocessed: { alone: "any", same: "any", another: "any" },
  stale: { alone: "listed", same: "listed", another: "listed" },
  slow: { alone: "listed", another: "listed" },
  broken: { another: "listed" },
  status: { alone: "listed", another: "listed" },
  final: {},
};

/**
 * Returns the request to send again; undefined if it must not be sent again: its method does not allow it, or its body was
 * not kept. Whoever sends it to another one of several upstreams asks their retry budget after this, because the budget counts.
 */
export function mayRepeat(
  request: UpstreamRequest,
  outcome: Outcome,
  place: Place,
  { methods }: Pick<Required<RetryOptions>, "methods">,
): UpstreamRequest | undefined {
  const allowed = RULES[outcome][place];
  if (allowed === undefined) return undefined;
  if (allowed === "listed" && !methods.includes(request.method)) return undefined;
  const body = replayOf(request.body);
  if (body === undefined) return undefined;
  // The upstream may have closed the other idle connections as well.
  const needsNew = place !== "another" && outcome !== "status";
  return needsNew ? { ...request, body, newConnection: true } : { ...request, body };
}

/** The error of an attempt that took longer than `attemptTimeout`. */
export class AttemptTimeout extends ProxyError {
  constructor(limit: number) {
    super("http_response_timeout", { message: `an attempt took longer than ${limit} ms` });
  }
}

const UNSENT: ReadonlySet<ProxyErrorCode> = new Set<ProxyErrorCode>([
  "connection_timeout",
  "dns_error",
  "dns_timeout",
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
