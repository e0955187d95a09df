import { ProxyError, toProxyError } from "../error.ts";
import { MisuseError } from "../misuse.ts";
import { Deadline } from "../transport/deadline.ts";
import { discardBody, type UpstreamRequest, type UpstreamResponse } from "../transport/message.ts";
import type { Interceptor, Transport } from "../transport/port.ts";
import type { Scope, Send } from "../transport/scope.ts";
import {
  type AttemptOptions,
  attemptTooLong,
  nextAttempt,
  outcomeOf,
  type NextAttempt,
} from "./repeat.ts";

/**
 * Returns the innermost `Send`: it calls the app if the upstream is an app in this process, and otherwise sends the request
 * over the network. The choice is made for each request, because a redirect may lead from an app to the network.
 */
export function sendThrough(transport: Transport, inProcess: Transport = transport): Send {
  return (request, scope) => {
    const chosen = request.upstream.app === undefined ? transport : inProcess;
    if (request.upgrade !== undefined && chosen.capabilities.upgrade !== true) {
      return Promise.reject(cannotUpgrade(chosen, request.upgrade));
    }
    const { observer } = scope;
    scope.upstream = request.upstream;
    if (observer === undefined) return chosen.send(request, scope);
    return chosen.send(observer.beginAttempt(request, chosen.handsBodiesThrough), scope);
  };
}

/**
 * Returns the error for an upgrade that the transport cannot make. Without this error, the transport would send an ordinary
 * request, which might get 200.
 */
function cannotUpgrade({ name }: Transport, protocol: string): ProxyError {
  return new ProxyError("http_request_error", {
    status: 501,
    message:
      `the transport ${name} cannot switch a connection to ${protocol}: ` +
      "leave out `transport` and `fetch`, and use a URL as the target",
  });
}

/**
 * Converts the errors of a transport that the app provides, which may reject with any value. Each value except a `MisuseError`
 * becomes a `ProxyError`, so that the client gets an error response. The runtimes' own transports need no
 * conversion: they reject only with a `ProxyError` or a `MisuseError`.
 */
export const convertErrors: Interceptor = (next) => (request, scope) => {
  try {
    // This is not an async function, because that would cost more for each request. `Promise.resolve` accepts any value
    // that the transport may return.
    return Promise.resolve(next(request, scope)).catch(rejectConverted);
  } catch (thrown) {
    return rejectConverted(thrown);
  }
};

function rejectConverted(thrown: unknown): Promise<never> {
  return Promise.reject(thrown instanceof MisuseError ? thrown : toProxyError(thrown));
}

/**
 * Sends each request, and sends it again where the rule in repeat.ts allows it:
 *
 *     request → send → response or error
 *        ↑ nextAttempt(request, outcome) ↓
 *
 * For a target with several upstreams, the scope's `lease` does the same, at the picked upstream and at the others.
 */
export function sendAttempts(options: AttemptOptions): Interceptor {
  const { attempts } = options.retry;
  return (next) => (request, scope) => {
    const { lease } = scope;
    // The lease applies only to the upstream that was picked, but an interceptor may send the request to another upstream.
    if (lease?.upstream === request.upstream) return lease.send(next, request, scope);
    return attempts === 0
      ? next(request, scope)
      : sendAlone(next, options, scope, request, attempts);
  };
}

/** Sends a request to the only upstream. */
function sendAlone(
  next: Send,
  options: AttemptOptions,
  scope: Scope,
  request: UpstreamRequest,
  left: number,
): Promise<UpstreamResponse> {
  const isLimited = left > 0 && options.attemptTimeout > 0;
  const sent = isLimited ? sendLimited(next, options, scope, request, left) : next(request, scope);
  if (left === 0) return sent;
  const settle = (): Promise<UpstreamResponse> =>
    awaitAttempt(next, options, scope, request, left, sent);
  // Without `statusCodes`, only a failed attempt is repeated, so a response need not pass through `awaitAttempt`.
  return options.retry.statusCodes.length === 0 ? sent.catch(settle) : settle();
}

/**
 * Sends an attempt, and stops it if it has no response headers after `attemptTimeout` and the request may be sent again.
 */
function sendLimited(
  next: Send,
  { retry, attemptTimeout }: AttemptOptions,
  scope: Scope,
  request: UpstreamRequest,
  left: number,
): Promise<UpstreamResponse> {
  const deadline = new Deadline(attemptTimeout, () => {
    if (nextAttempt(request, "abandoned", "alone", retry, left) === undefined) return;
    scope.failAttempt(attemptTooLong(attemptTimeout));
  });
  return next(request, scope).finally(() => deadline.clear());
}

/** Waits for an attempt, and makes the next attempt if the rule in repeat.ts allows one. */
async function awaitAttempt(
  next: Send,
  options: AttemptOptions,
  scope: Scope,
  request: UpstreamRequest,
  left: number,
  sent: Promise<UpstreamResponse>,
): Promise<UpstreamResponse> {
  const { retry } = options;
  let again: NextAttempt | undefined;
  try {
    const response = await sent;
    // After the client has disconnected, or a deadline has passed, the request is not sent again.
    if (retry.statusCodes.includes(response.status) && scope.error === undefined) {
      again = nextAttempt(request, "status", "alone", retry, left);
    }
    if (again === undefined) return response;
    discardBody(response);
  } catch (thrown) {
    again = nextAttempt(request, outcomeOf(thrown), "alone", retry, left);
    if (again === undefined || scope.error !== undefined) throw thrown;
  }
  const following = scope.again();
  if (retry.delay > 0) await pause(retry.delay, following);
  if (following.error !== undefined) throw following.error;
  return sendAlone(next, options, following, again.request, again.left);
}

/** Waits for the delay. Rejects immediately if the exchange is aborted. */
export function pause(delay: number, scope: Scope): Promise<void> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const over = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, delay);
  });
  return scope.orAbort(over).finally(() => clearTimeout(timer));
}
