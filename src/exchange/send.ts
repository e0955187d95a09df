import { replayOf } from "../body/replay.ts";
import { ProxyError, toProxyError } from "../error.ts";
import { MisuseError } from "../options/misuse.ts";
import type { RetryOptions } from "../options/repeatoptions.ts";
import { discardBody } from "../response/clean.ts";
import type { Scope } from "./scope.ts";
import type { Transport, UpstreamRequest, UpstreamResponse } from "../transport.ts";

/**
 * Sends a request to an upstream. Resolves to the response when its headers have arrived.
 *
 * A scope serves one attempt: each further attempt takes a new scope from `scope.again()`.
 */
export type Send = (request: UpstreamRequest, scope: Scope) => Promise<UpstreamResponse>;

/**
 * A step around sending: it may change the request and the response, send another request, or send none and return its own
 * response.
 * @example
 * ```ts
 * const log: Interceptor = (next) => async (request, scope) => {
 *   const response = await next(request, scope);
 *   console.log(request.method, request.path, response.status);
 *   return response;
 * };
 * ```
 */
export type Interceptor = (next: Send) => Send;

/**
 * Returns the innermost `Send`: it calls the app if the upstream is an app in this process, and otherwise sends the request
 * over the network. It decides for each request, because a redirect may lead from an app to the network.
 */
export function sendThrough(transport: Transport, inProcess: Transport): Send {
  return (request, scope) => {
    const chosen = request.upstream.app === undefined ? transport : inProcess;
    if (request.upgrade !== undefined && chosen.capabilities.upgrade !== true) {
      return Promise.reject(cannotUpgrade(chosen, request.upgrade));
    }
    const { observation } = scope;
    if (observation === undefined) return chosen.send(request, scope);
    return chosen.send(observation.beginAttempt(request, chosen.handsBodiesThrough), scope);
  };
}

/** Returns the error of an upgrade that a transport would send as an ordinary request, so that the answer might be 200. */
function cannotUpgrade({ name }: Transport, protocol: string): ProxyError {
  return new ProxyError("http_request_error", {
    status: 501,
    message:
      `the transport ${name} cannot switch a connection to ${protocol}: ` +
      "use the proxy's own client (leave out `transport` and `fetch`) and a URL as the target",
  });
}

/**
 * Converts the errors of a transport that the app provides: such a transport may reject with any value. Each one except a
 * `MisuseError` becomes a `ProxyError`, so that the client gets an error response. The runtimes' own transports need no
 * conversion: they reject only with a `ProxyError` or a `MisuseError`.
 */
export const convertErrors: Interceptor = (next) => async (request, scope) => {
  try {
    return await next(request, scope);
  } catch (thrown) {
    throw thrown instanceof MisuseError ? thrown : toProxyError(thrown);
  }
};

/**
 * Sends a request again if the upstream cannot have begun to respond, or has responded with one of `statusCodes`. The
 * method must be one of `methods`, and the bytes of the body must have been kept.
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
    // Without `statusCodes`, only a failed attempt is repeated: pass a response on without a further promise.
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
  let repeated: UpstreamRequest | undefined;
  try {
    const response = await sent;
    if (attempts > 0 && options.statusCodes.includes(response.status)) {
      repeated = repeatRequest(request, options.methods);
    }
    if (repeated === undefined) return response;
    discardBody(response);
  } catch (thrown) {
    if (attempts > 0 && isUnprocessed(thrown)) repeated = repeatRequest(request);
    else if (attempts > 0 && isUnanswered(thrown)) {
      repeated = repeatRequest(request, options.methods);
    }
    if (repeated === undefined || scope.error !== undefined) throw thrown;
    // Require a new connection: the upstream may have closed the other idle connections as well.
    repeated = { ...repeated, newConnection: true };
  }
  const following = scope.again();
  if (options.delay > 0) await pause(options.delay, following);
  if (following.error !== undefined) throw following.error;
  const resent = next(repeated, following);
  return awaitAttempt(next, options, repeated, following, resent, attempts - 1);
}

/** Whether the upstream cannot have begun to respond: it has closed an idle connection, or refused a new one. */
function isUnanswered(error: unknown): boolean {
  return error instanceof ProxyError && (error.stale || error.code === "connection_refused");
}

/**
 * Whether the upstream has said that it did not process the request: a refused HTTP/2 stream, or one above the last that a
 * GOAWAY names. Such a request has not failed, so that a method which is not idempotent may be repeated as well.
 * @see https://www.rfc-editor.org/rfc/rfc9113#section-8.7
 */
function isUnprocessed(error: unknown): boolean {
  return error instanceof ProxyError && error.unprocessed;
}

/**
 * Returns the request to send again.
 * @param methods the methods that may be repeated; undefined for all
 * @returns undefined where `methods` does not allow the method, or the body was not kept
 * @see https://www.rfc-editor.org/rfc/rfc9110#section-9.2.2
 */
function repeatRequest(
  request: UpstreamRequest,
  methods?: readonly string[],
): UpstreamRequest | undefined {
  if (methods?.includes(request.method) === false) return undefined;
  const body = replayOf(request.body);
  return body === undefined ? undefined : { ...request, body };
}

function pause(delay: number, scope: Scope): Promise<void> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const over = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, delay);
  });
  return scope.orAbort(over).finally(() => clearTimeout(timer));
}
