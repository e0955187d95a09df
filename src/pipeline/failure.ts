import { ProxyError, toProxyError } from "../error.ts";
import { readHookResponse } from "../exchange/hooks.ts";
import { DISCARDED } from "../exchange/observation.ts";
import { toErrorResponse } from "../response/errorresponse.ts";
import { closeSwitched } from "../transport/message.ts";
import type { Exchange } from "./exchange.ts";

/**
 * Aborts the rest of an exchange, and makes the response for the client from the error. If the deadline has not started, the
 * promise rejects with the error instead, because the app has caused it.
 */
export function fail(exchange: Exchange, thrown: unknown): Promise<Response> {
  const { incoming, plan, scope, cleaned, response } = exchange;
  // An exchange that fails sends no further request. (A function for this and pipeline.ts would put this file on every way.)
  scope?.lease?.release();
  incoming.running?.end(incoming);
  if (scope === undefined) return Promise.reject(thrown);
  const abortError = scope.error;
  const error = abortError ?? toProxyError(thrown);
  // Discard the response's body before the abort, so that the body is cancelled. After the abort, it would fail instead.
  discardAnswer(exchange);
  // Abort the upstream request, which may have been sent already; this does nothing if the exchange has ended.
  scope.abort(error);
  // While only `cleaned` is set, no hook runs. So an exception at that stage comes from the upstream's response, and the
  // client gets an error response, even if the exception is not a `ProxyError`.
  const isResponses = cleaned !== undefined && response === undefined;
  // An exception of `onInformational` aborts the exchange, and is then the `cause` of the error.
  const isHooked = plan.options.onInformational !== undefined;
  const exception = isHooked && isInternal(error) ? (error.cause ?? thrown) : thrown;
  const isReason = abortError !== undefined && exception === thrown;
  const reported = isReason || isResponses ? error : exception;
  if (reported instanceof ProxyError) scope.failed(reported);
  return respondToError(exchange, error, reported);
}

/** Discards the response of the upstream, except for a body from which its replacement is made. */
export function discardAnswer({ cleaned, response }: Exchange, replacement?: Response): void {
  if (cleaned !== undefined) closeSwitched(cleaned);
  if (response === undefined) return cleaned?.body?.cancel();
  const { body } = response;
  if (body === null || body.locked || body === replacement?.body) return;
  void body.cancel(DISCARDED).catch(() => {});
}

/** Whether an error was made from an exception of the app or a bug, not from a failure of the network or the client. */
function isInternal(error: ProxyError): boolean {
  return error.code === "proxy_internal_error";
}

/**
 * Returns the response to a failed exchange: the response that `onError` returns, or a response that is made from the
 * error.
 * @param thrown the error itself, or the hook's exception if the error was made from one
 * @throws what `onError` throws, or the exception of another hook if `onError` returns no response
 */
export async function respondToError(
  { incoming, plan: { options }, respond, observation }: Exchange,
  error: ProxyError,
  thrown: unknown,
): Promise<Response> {
  observation?.failed(thrown);
  if (options.onError !== undefined) {
    const returned = await options.onError(error, incoming.request());
    const ownResponse = readHookResponse(returned, "onError");
    if (ownResponse !== undefined) return ownResponse;
  }
  // Reject with the exception, so that the framework logs it: no framework logs a 500 that a handler returns.
  if (!(thrown instanceof ProxyError) && isInternal(error)) throw thrown;
  const response = toErrorResponse(error, incoming.method, options.via || undefined);
  // Close the connection, because the body of a refused HTTP/1.0 request may end at another byte than the server assumes
  // (RFC 9112 §6.1).
  if (incoming.version() === "1.0") response.headers.push("Connection", "close");
  return respond(response, incoming);
}
