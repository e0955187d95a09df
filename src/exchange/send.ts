import { ProxyError, toProxyError } from "../error.ts";
import { MisuseError } from "../misuse.ts";
import type { RetryOptions } from "../options/repeatoptions.ts";
import { Deadline } from "../transport/deadline.ts";
import { discardBody, type UpstreamRequest, type UpstreamResponse } from "../transport/message.ts";
import type { Interceptor, Transport } from "../transport/port.ts";
import type { Lease, Scope, Send } from "../transport/scope.ts";
import { AttemptTimeout, mayRepeat, outcomeOf } from "./repeat.ts";

/**
 * Returns the innermost `Send`: it calls the app if the upstream is an app in this process, and otherwise sends the request
 * over the network. It decides for each request, because a redirect may lead from an app to the network.
 */
export function sendThrough(transport: Transport, inProcess: Transport = transport): Send {
  return (request, scope) => {
    const chosen = request.upstream.app === undefined ? transport : inProcess;
    if (request.upgrade !== undefined && chosen.capabilities.upgrade !== true) {
      return Promise.reject(cannotUpgrade(chosen, request.upgrade));
    }
    const { observer } = scope;
    if (observer === undefined) return chosen.send(request, scope);
    return chosen.send(observer.beginAttempt(request, chosen.handsBodiesThrough), scope);
  };
}

/** Returns the error of an upgrade that a transport would send as an ordinary request, so that the answer might be 200. */
function cannotUpgrade({ name }: Transport, protocol: string): ProxyError {
  return new ProxyError("http_request_error", {
    status: 501,
    message:
      `the transport ${name} cannot switch a connection to ${protocol}: ` +
      "leave out `transport` and `fetch`, and use a URL as the target",
  });
}

/** Lets a lease send its request: it sends the request to another upstream if the first one fails. */
export const failOver: Interceptor = (next) => (request, scope) =>
  isLeased(request, scope)
    ? (scope.lease as Lease).send(next, request, scope)
    : next(request, scope);

/** Whether the request goes to the upstream that was picked for it from several. An interceptor may send it elsewhere. */
function isLeased({ upstream }: UpstreamRequest, { lease }: Scope): boolean {
  return lease?.upstream === upstream;
}

/**
 * Converts the errors of a transport that the app provides: such a transport may reject with any value. Each one except a
 * `MisuseError` becomes a `ProxyError`, so that the client gets an error response. The runtimes' own transports need no
 * conversion: they reject only with a `ProxyError` or a `MisuseError`.
 */
export const convertErrors: Interceptor = (next) => (request, scope) => {
  try {
    // Not an async function, which would cost each request more. `Promise.resolve` accepts what such a transport may return.
    return Promise.resolve(next(request, scope)).catch(rejectConverted);
  } catch (thrown) {
    return rejectConverted(thrown);
  }
};

function rejectConverted(thrown: unknown): Promise<never> {
  return Promise.reject(thrown instanceof MisuseError ? thrown : toProxyError(thrown));
}

/**
 * Sends a request again if the upstream cannot have begun to respond, or has responded with one of `statusCodes`. The
 * method must be one of `methods`, and the bytes of the body must have been kept.
 *
 * An attempt that another one may follow is stopped if it has no response headers after `attemptTimeout` milliseconds.
 * Where the upstream was picked from several, only a connection that was closed while idle is replaced here: `failOver`
 * does the rest.
 *
 *     request → send → response
 *        ↑ again, on a new connection ↓
 */
export function retry(options: Required<RetryOptions>, attemptTimeout: number = 0): Interceptor {
  const { attempts, statusCodes } = options;
  return (next) => {
    const sends: Sends = {
      last: next,
      limited: attemptTimeout > 0 ? limitAttempt(attemptTimeout, options)(next) : next,
    };
    return (request, scope) => {
      const sent = sends.limited(request, scope);
      const settle = (): Promise<UpstreamResponse> =>
        awaitAttempt(sends, options, request, scope, sent, attempts);
      // Without `statusCodes`, only a failed attempt is repeated: pass a response on without a further promise.
      return statusCodes.length === 0 ? sent.catch(settle) : settle();
    };
  };
}

/** How attempts are sent: those that another one may follow are stopped after `attemptTimeout`. */
interface Sends {
  readonly limited: Send;
  readonly last: Send;
}

/**
 * Stops an attempt that has no response headers in time, so that `retry` can start another one. An attempt that could not
 * be repeated is not stopped.
 * @param limit milliseconds until the response headers
 */
function limitAttempt(limit: number, options: Required<RetryOptions>): Interceptor {
  return (next) => (request, scope) => {
    if (isLeased(request, scope)) return next(request, scope);
    const deadline = new Deadline(limit, () => {
      if (mayRepeat(request, "slow", "alone", options) !== undefined)
        scope.failAttempt(new AttemptTimeout(limit));
    });
    return next(request, scope).finally(() => deadline.clear());
  };
}

/** Waits for an attempt, and starts the next one where the options allow it. */
async function awaitAttempt(
  sends: Sends,
  options: Required<RetryOptions>,
  request: UpstreamRequest,
  scope: Scope,
  sent: Promise<UpstreamResponse>,
  attempts: number,
): Promise<UpstreamResponse> {
  if (attempts === 0) return sent;
  let repeated: UpstreamRequest | undefined;
  try {
    const response = await sent;
    if (!isLeased(request, scope) && options.statusCodes.includes(response.status)) {
      repeated = mayRepeat(request, "status", "alone", options);
    }
    if (repeated === undefined) return response;
    discardBody(response);
  } catch (thrown) {
    const place = isLeased(request, scope) ? "same" : "alone";
    repeated = mayRepeat(request, outcomeOf(thrown), place, options);
    if (repeated === undefined || scope.error !== undefined) throw thrown;
  }
  const following = scope.again();
  if (options.delay > 0) await pause(options.delay, following);
  if (following.error !== undefined) throw following.error;
  const send = attempts > 1 ? sends.limited : sends.last;
  const resent = send(repeated, following);
  return awaitAttempt(sends, options, repeated, following, resent, attempts - 1);
}

/** Waits, unless the exchange is aborted. */
export function pause(delay: number, scope: Scope): Promise<void> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const over = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, delay);
  });
  return scope.orAbort(over).finally(() => clearTimeout(timer));
}
