import { ProxyError } from "./error.ts";
import { keptBody } from "./replay.ts";
import type { Hop } from "./transport.ts";

/** When a request is sent once more. What is left out has its default. */
export interface RetryOptions {
  /** How often at most, after the first. */
  attempts?: number;
  /** Methods that may be repeated. */
  methods?: readonly string[];
  /** Statuses, from 400, whose responses are discarded for another attempt; the last attempt's goes to the client. */
  statusCodes?: readonly number[];
  /** Milliseconds before each. */
  delay?: number;
}

/** Whether an error says that the upstream cannot have begun to answer: a closed connection, or none at all. */
export function neverAnswered(error: unknown): boolean {
  return error instanceof ProxyError && (error.stale || error.code === "connection_refused");
}

/**
 * The hop to send once more.
 * @returns undefined where the method is not safe to repeat, or the body is gone
 * @see https://www.rfc-editor.org/rfc/rfc9110#section-9.2.2
 */
export function hopAgain(hop: Hop, methods: readonly string[]): Hop | undefined {
  if (!methods.includes(hop.method)) return undefined;
  const body = keptBody(hop.body);
  return body === undefined ? undefined : { ...hop, body };
}
