import { replayOf } from "../body/replay.ts";
import { BytesBody } from "../body/bytes.ts";
import type { Scope } from "./scope.ts";
import { ProxyError } from "../error.ts";
import type { RetryOptions } from "../options/repeatoptions.ts";
import { discardBody } from "../response/reply.ts";
import type { Interceptor, Send } from "./send.ts";
import type { UpstreamRequest, UpstreamResponse } from "../transport.ts";

/**
 * Sends a request again if the upstream cannot have begun to answer, or has answered with one of the statuses.
 *
 *     request → send → response
 *        ↑ again, on a new connection ↓
 */
export function retry(options: Required<RetryOptions>): Interceptor {
  return (next) => (request, scope) => {
    const sent = next(request, scope);
    const { attempts, statusCodes } = options;
    const settle = (): Promise<UpstreamResponse> =>
      awaitAttempt(next, options, request, scope, sent, attempts);
    // Without `statusCodes`, only a failed attempt can be repeated: a response needs no further promise.
    return statusCodes.length === 0 ? sent.catch(settle) : settle();
  };
}

/** Waits for an attempt, and starts the next one where the options allow it. */
async function awaitAttempt(
  next: Send,
  options: Required<RetryOptions>,
  request: UpstreamRequest,
  scope: Scope,
  sent: Promise<UpstreamResponse>,
  attempts: number,
): Promise<UpstreamResponse> {
  let again: UpstreamRequest | undefined;
  try {
    const response = await sent;
    if (attempts > 0 && options.statusCodes.includes(response.status)) {
      again = repeat(request, options.methods);
    }
    if (again === undefined) return response;
    discardBody(response);
  } catch (thrown) {
    if (attempts > 0 && isUnanswered(thrown)) again = repeat(request, options.methods);
    if (again === undefined || scope.error !== undefined) throw thrown;
    // Require a new connection: the upstream may have closed the other idle ones as well.
    again = { ...again, fresh: true };
  }
  const following = scope.again();
  if (options.delay > 0) await pause(options.delay, following);
  if (following.error !== undefined) throw following.error;
  const resent = next(again, following);
  return awaitAttempt(next, options, again, following, resent, attempts - 1);
}

/** Whether the upstream cannot have begun to answer: it has closed an idle connection, or refused a new one. */
function isUnanswered(error: unknown): boolean {
  return error instanceof ProxyError && (error.stale || error.code === "connection_refused");
}

/**
 * Returns the request to send again.
 * @returns undefined where `methods` does not allow the method, or the body was not kept
 * @see https://www.rfc-editor.org/rfc/rfc9110#section-9.2.2
 */
function repeat(request: UpstreamRequest, methods: readonly string[]): UpstreamRequest | undefined {
  if (!methods.includes(request.method)) return undefined;
  const bytes = replayOf(request.body);
  if (bytes === undefined) return undefined;
  return { ...request, body: bytes && new BytesBody(bytes) };
}

function pause(delay: number, scope: Scope): Promise<void> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const over = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, delay);
  });
  return scope.orAbort(over).finally(() => clearTimeout(timer));
}
