import type { BodySource } from "./body/source.ts";
import { badRequest, ProxyError, toProxyError } from "./error.ts";
import { DraftedRequest, observeInterim, readHookResponse } from "./exchange/hooks.ts";
import { Observation } from "./exchange/observation.ts";
import { isEventStream } from "./fields/headers.ts";
import { isPromise } from "./misuse.ts";
import type { Context } from "./options/forwardingoptions.ts";
import type { MaybeResponse } from "./options/hookoptions.ts";
import type { RequestEnd } from "./options/observationoptions.ts";
import type { ProxyOptions } from "./options/proxyoptions.ts";
import type { Plan } from "./plan.ts";
import type { Incoming } from "./request/incoming.ts";
import { countForwards } from "./request/maxforwards.ts";
import { toUpstreamRequest } from "./request/outgoing.ts";
import { cleanResponse, discardResponse } from "./response/clean.ts";
import { toErrorResponse } from "./response/errorresponse.ts";
import { isApp } from "./target/app.ts";
import {
  badTarget,
  guardEscape,
  isAsterisk,
  parseTarget,
  type TargetAddress,
  type Upstream,
  assertReachable,
} from "./target/target.ts";
import {
  closeSwitched,
  discardBody,
  type UpstreamRequest,
  type UpstreamResponse,
} from "./transport/message.ts";
import { type Lease, Scope } from "./transport/scope.ts";
import type { AnyTarget, Target, Upstreams } from "./upstreams/upstreams.ts";

/**
 * Makes the `Response` that the runtime's server sends to the client.
 * @param request the request that the upstream has answered; undefined for a response of the proxy's own
 */
export type Respond = (
  response: UpstreamResponse,
  incoming: Incoming,
  request?: UpstreamRequest,
) => Response | Promise<Response>;

/**
 * Forwards one request, in these steps:
 *
 *     prepare    Incoming → target → path → header fields → onRequest → body
 *     exchange   plan.send: interceptors, body limit, redirects, retries → transport → onInformational
 *     finish     header fields → Response → onResponse
 *
 * A network failure becomes a response. The promise rejects only in two cases: for misuse, with a TypeError that names
 * the fix; and if a hook throws and `onError` returns no response, with the exception of the hook. The framework then
 * reports that exception like any other exception of the app.
 */
export function forward(
  incoming: Incoming,
  target: Target,
  plan: Plan,
  context: Context,
  respond: Respond,
): Promise<Response> {
  const { onRequestEnd, serverTiming } = plan.options;
  const isTraced = plan.tracing?.channel.hasSubscribers === true;
  if (onRequestEnd === undefined && !isTraced) {
    const observation = serverTiming ? new Observation(incoming) : undefined;
    return exchange(incoming, target, plan, context, respond, observation);
  }
  return observeExchange(incoming, target, plan, context, respond, isTraced);
}

/** Forwards one request whose end is reported. It is apart, because its closure would cost every request some memory. */
function observeExchange(
  incoming: Incoming,
  target: Target,
  plan: Plan,
  context: Context,
  respond: Respond,
  isTraced: boolean,
): Promise<Response> {
  const { onRequestEnd, route } = plan.options;
  const observe = (end?: (event: RequestEnd) => void): Promise<Response> => {
    const observation = new Observation(incoming, route, onRequestEnd, end);
    return observation.conclude(exchange(incoming, target, plan, context, respond, observation));
  };
  return isTraced && plan.tracing !== undefined ? plan.tracing.trace(incoming, observe) : observe();
}

/** The state of one exchange. */
interface Exchange {
  readonly incoming: Incoming;
  readonly plan: Plan;
  readonly respond: Respond;
  readonly observation: Observation | undefined;
  readonly scope: Scope;
  /** The request to the upstream, once it is prepared. */
  request: UpstreamRequest | undefined;
  /** The upstream's response without what must not be forwarded. */
  cleaned: UpstreamResponse | undefined;
  /** The response to the client. */
  response: Response | undefined;
}

/**
 * Runs one exchange.
 *
 * An ordinary request is prepared at once, and needs no promise but those of the transport and of the response. Its state
 * is in an object, because an async function keeps all of its variables in memory while it waits.
 */
function exchange(
  incoming: Incoming,
  target: Target,
  plan: Plan,
  context: Context,
  respond: Respond,
  observation?: Observation,
): Promise<Response> {
  const { fault, method, body } = incoming;
  const { options, rewrite } = plan;
  if (fault !== undefined) {
    observation?.failed(fault);
    return respondToError(fault, fault, incoming, options, respond);
  }
  let upstream: Upstream | undefined;
  try {
    const turn = incoming.turn?.();
    const mayWait =
      turn !== undefined ||
      !isFixed(target) ||
      rewrite !== undefined ||
      body?.measure !== undefined ||
      method === "OPTIONS" ||
      method === "TRACE";
    if (mayWait) {
      return exchangeInSteps(incoming, target, plan, context, respond, observation, turn);
    }
    if (!isUpstreams(target)) upstream = reach(target, plan);
  } catch (misuse) {
    return Promise.reject(misuse);
  }
  const state = begin(incoming, plan, respond, observation);
  try {
    if (upstream === undefined) {
      const lease = pickUpstream(state, target as Upstreams);
      if (!(lease instanceof Promise)) return sendToPicked(state, lease, context);
      return lease.then(
        (picked) => sendToPicked(state, picked, context),
        (thrown: unknown) => fail(state, thrown),
      );
    }
    state.request = toUpstreamRequest(incoming, upstream, incoming.path, plan, context);
  } catch (thrown) {
    return fail(state, thrown);
  }
  return hookAndSend(state);
}

/** Picks one of several upstreams. */
function pickUpstream(
  { incoming, plan, scope }: Exchange,
  upstreams: Upstreams,
): Lease | Promise<Lease> {
  const reachOne = (each: TargetAddress): Upstream => reach(each, plan);
  return upstreams.choose(upstreams, incoming, plan.transport, scope, plan.attempts, reachOne);
}

/** Sends the request to the upstream that was picked for it. */
function sendToPicked(state: Exchange, lease: Lease, context: Context): Promise<Response> {
  const { incoming, plan } = state;
  try {
    state.scope.lease = lease;
    state.request = toUpstreamRequest(incoming, lease.upstream, incoming.path, plan, context);
    lease.cut(state.request);
  } catch (thrown) {
    lease.release();
    return fail(state, thrown);
  }
  const sending = hookAndSend(state);
  // An interceptor may send the request later, or respond without sending it.
  return lease.isUsed ? sending : sending.finally(() => lease.release());
}

/** Whether a target is one already, not a function that returns one. */
export function isFixed(target: Target): target is AnyTarget {
  return typeof target !== "function" || isApp(target);
}

/**
 * Whether a target stands for several upstreams. A stub of workerd has a method of every name: it is an app.
 * @throws TypeError for a target of the app's own that lacks `choose`
 */
export function isUpstreams(target: AnyTarget): target is Upstreams {
  const upstreams = target as Partial<Upstreams> | null;
  if (typeof upstreams?.pick !== "function" || isApp(target)) return false;
  if (typeof upstreams.choose === "function") return true;
  throw badTarget(target, "an object with `pick` needs `choose` of fetchway/upstreams as well");
}

/** Starts the deadline. */
function begin(
  incoming: Incoming,
  plan: Plan,
  respond: Respond,
  observation: Observation | undefined,
): Exchange {
  const { onInformational, signal, connectTimeout } = plan.options;
  const client =
    onInformational === undefined ? incoming : observeInterim(incoming, onInformational);
  const scope = new Scope(client, plan.timeout, plan.idleTimeout, signal, connectTimeout);
  if (observation !== undefined) scope.observer = observation;
  return {
    incoming,
    plan,
    respond,
    observation,
    scope,
    request: undefined,
    cleaned: undefined,
    response: undefined,
  };
}

/** Runs one exchange whose preparation may have to wait. */
async function exchangeInSteps(
  incoming: Incoming,
  target: Target,
  plan: Plan,
  context: Context,
  respond: Respond,
  observation: Observation | undefined,
  turn: Promise<void> | undefined,
): Promise<Response> {
  const { options } = plan;
  let address = target;
  if (!isFixed(address)) {
    try {
      address = await address(incoming.request());
    } catch (thrown) {
      // Some servers accept a malformed URL, and the app's target function may be the first code that parses it. The
      // function then throws because of a bad request, not because of a bug.
      const error = URL.canParse(incoming.request().url) ? toProxyError(thrown) : badRequest("URL");
      observation?.failed(thrown);
      return respondToError(error, thrown, incoming, options, respond);
    }
  }
  const upstreams = isUpstreams(address) ? address : undefined;
  let upstream = upstreams === undefined ? reach(address as TargetAddress, plan) : undefined;
  const state = begin(incoming, plan, respond, observation);
  const { scope } = state;
  let lease: Lease | undefined;
  try {
    if (upstreams !== undefined) {
      lease = scope.lease = await pickUpstream(state, upstreams);
      ({ upstream } = lease);
    }
    let { path } = incoming;
    if (plan.rewrite !== undefined && !isAsterisk(path, incoming.method)) {
      path = await plan.rewrite(path, () => incoming.request());
      guardEscape(path.split("?", 1)[0] as string);
    }
    let request = toUpstreamRequest(incoming, upstream as Upstream, path, plan, context);
    lease?.cut(request);
    // If `Max-Forwards` is 0, this proxy responds itself, but only after `onRequest`, which may refuse the request.
    const finalResponse = countForwards(incoming, request.headers);
    if (options.onRequest !== undefined) {
      const drafted = new DraftedRequest(request);
      const returned = await options.onRequest(drafted.draft, incoming.request());
      const ownResponse = readHookResponse(returned, "onRequest");
      if (ownResponse !== undefined) {
        scope.end();
        return ownResponse;
      }
      request = drafted.finish();
    }
    if (finalResponse !== undefined) {
      scope.end();
      return await respond(finalResponse, incoming);
    }
    const measuring = request.body?.measure?.();
    if (measuring !== undefined) request = await settleBody(request, measuring, scope);
    if (turn !== undefined) await waitForTurn(turn, scope);
    state.request = request;
    return await sendPrepared(state);
  } catch (thrown) {
    // What fails after the request was sent has called `fail` already, and is the exception of a hook.
    if (state.request !== undefined) throw thrown;
    return await fail(state, thrown);
  } finally {
    // A request that was not sent gives its place back: a hook or an interceptor has responded, or a check has failed.
    lease?.release();
  }
}

/** Calls `onRequest`, and sends the request. It waits only for a hook that returns a promise. */
function hookAndSend(state: Exchange): Promise<Response> {
  const { incoming, plan, request } = state;
  const { onRequest } = plan.options;
  if (onRequest === undefined) return sendPrepared(state);
  // The hook may refuse or change the request, so `state.request` is set again when the request is sent.
  state.request = undefined;
  const drafted = new DraftedRequest(request as UpstreamRequest);
  try {
    const returned = onRequest(drafted.draft, incoming.request());
    if (!isPromise(returned)) return sendDrafted(state, drafted, returned);
    return Promise.resolve(returned).then(
      (response) => sendDrafted(state, drafted, response),
      (thrown: unknown) => fail(state, thrown),
    );
  } catch (thrown) {
    return fail(state, thrown);
  }
}

/** Sends the request with the changes of `onRequest`, unless the hook has returned a response. */
function sendDrafted(
  state: Exchange,
  drafted: DraftedRequest,
  returned: Awaited<MaybeResponse>,
): Promise<Response> {
  const { scope } = state;
  const send = (request: UpstreamRequest): Promise<Response> => {
    state.request = request;
    return sendPrepared(state);
  };
  try {
    const ownResponse = readHookResponse(returned, "onRequest");
    if (ownResponse !== undefined) {
      scope.end();
      return Promise.resolve(ownResponse);
    }
    const request = drafted.finish();
    // The hook may have set a stream as the body. Its length is not known before the stream is read.
    const measuring = request.body?.measure?.();
    if (measuring === undefined) return send(request);
    return settleBody(request, measuring, scope).then(send, (thrown: unknown) =>
      fail(state, thrown),
    );
  } catch (thrown) {
    return fail(state, thrown);
  }
}

function sendPrepared(state: Exchange): Promise<Response> {
  const { incoming, plan, scope } = state;
  let request = state.request as UpstreamRequest;
  try {
    if (scope.error !== undefined) throw scope.error;
    if (plan.mirror !== undefined) {
      request = plan.mirror.copy(request, incoming.waitUntil ?? plan.options.waitUntil);
      state.request = request;
    }
    return plan.send(request, scope).then(
      (received) => finish(state, received),
      (thrown: unknown) => fail(state, thrown),
    );
  } catch (thrown) {
    return fail(state, thrown);
  }
}

/** Makes the response to the client from that of the upstream. */
function finish(state: Exchange, answer: UpstreamResponse): Response | Promise<Response> {
  const { incoming, plan, scope, observation, respond } = state;
  const { options, transport } = plan;
  let received = answer;
  let request = state.request as UpstreamRequest;
  try {
    if (observation !== undefined) {
      received = observation.watch(received, transport.handsBodiesThrough);
    }
    if (received.upstream !== undefined) request = { ...request, upstream: received.upstream };
    const { method } = incoming;
    const cleaned = cleanResponse(received, method, request, plan.rewriteResponse, incoming);
    state.cleaned = cleaned;
    scope.lease?.keepClient(cleaned, request);
    // Report the headers to the scope, unless the transport has done so. A transport need not, and an interceptor may
    // have responded without a transport.
    if (!scope.hasHeaders) scope.headersReceived(isEventStream(received.headers));
    if (options.serverTiming) {
      cleaned.headers.push("Server-Timing", observation?.serverTiming as string);
    }
    scope.endUnused(received.body !== null);
    const responding = respond(cleaned, incoming, request);
    if (responding instanceof Promise || cleaned.tunnel !== undefined) {
      return finishInSteps(state, responding, cleaned);
    }
    if (options.onResponse === undefined) return responding;
    state.response = responding;
    const returned = options.onResponse(responding, incoming.request());
    return isPromise(returned)
      ? finishInSteps(state, responding, cleaned, returned)
      : takeHooked(returned, responding, cleaned);
  } catch (thrown) {
    return fail(state, thrown);
  }
}

/** Returns the response to send: the one that `onResponse` has returned, or else the present one. */
function takeHooked(
  returned: Awaited<MaybeResponse>,
  response: Response,
  cleaned: UpstreamResponse,
): Response {
  const ownResponse = readHookResponse(returned, "onResponse");
  if (ownResponse === undefined || ownResponse === response) return response;
  closeSwitched(cleaned);
  discardResponse(response, ownResponse);
  return ownResponse;
}

/**
 * Finishes an exchange whose response may have to wait, or that opens a tunnel.
 * @param hooked what `onResponse` has returned, if it was called already
 */
async function finishInSteps(
  state: Exchange,
  responding: Response | Promise<Response>,
  cleaned: UpstreamResponse,
  hooked?: PromiseLike<Awaited<MaybeResponse>>,
): Promise<Response> {
  const { incoming, plan } = state;
  const { onResponse } = plan.options;
  try {
    const response = (state.response = await responding);
    const returned = hooked ?? onResponse?.(response, incoming.request());
    if (returned !== undefined) {
      const chosen = takeHooked(await returned, response, cleaned);
      if (chosen !== response) return chosen;
    }
    const { tunnel } = cleaned;
    if (tunnel === undefined || incoming.completeUpgrade === undefined) return response;
    return incoming.completeUpgrade(response, tunnel, plan.tunnelTimeout);
  } catch (thrown) {
    return fail(state, thrown);
  }
}

/** Aborts what is left of an exchange, and makes the response for the client from the error. */
function fail(state: Exchange, thrown: unknown): Promise<Response> {
  const { incoming, plan, respond, observation, scope, cleaned, response } = state;
  const { options } = plan;
  const abortError = scope.error;
  const error = abortError ?? toProxyError(thrown);
  // Discard the response's body before the abort, so that the body is cancelled; the abort would make it fail.
  if (cleaned !== undefined) closeSwitched(cleaned);
  if (response !== undefined) discardResponse(response);
  else if (cleaned !== undefined) discardBody(cleaned);
  // An attempt has cancelled what it has begun to send, and has left the rest to another one.
  state.request?.body?.cancel();
  // Abort the upstream request, which may have been sent already; this does nothing if the exchange has ended.
  scope.abort(error);
  // No hook runs after `cleaned` is set and before `response` is. So an error in that time comes from the upstream's
  // response, and becomes an error response, although it may not be a `ProxyError`.
  const isResponses = cleaned !== undefined && response === undefined;
  // An exception of `onInformational` aborts the exchange: it is the cause of the error.
  const isHooked = options.onInformational !== undefined;
  const exception = isHooked && isInternal(error) ? (error.cause ?? thrown) : thrown;
  const isReason = abortError !== undefined && exception === thrown;
  const reported = isReason || isResponses ? error : exception;
  observation?.failed(reported);
  return respondToError(error, reported, incoming, options, respond);
}

/**
 * Parses a target.
 * @throws TypeError for a target that the transport cannot reach
 */
function reach(address: TargetAddress, { transport, hostOption }: Plan): Upstream {
  const upstream = parseTarget(address);
  assertReachable(upstream, transport, hostOption);
  return upstream;
}

/** Whether an error was made of an exception that is neither the network's nor the client's fault. */
function isInternal(error: ProxyError): boolean {
  return error.code === "proxy_internal_error";
}

/** Returns the request with the body that the measuring results in: none, bytes, or a stream. */
async function settleBody(
  request: UpstreamRequest,
  measuring: Promise<BodySource | null>,
  scope: Scope,
): Promise<UpstreamRequest> {
  try {
    return { ...request, body: await scope.orAbort(measuring) };
  } catch (thrown) {
    request.body?.cancel();
    throw thrown;
  }
}

/**
 * Waits until the earlier requests on the same connection are finished.
 *
 * The deadline of this request starts after the wait, because the earlier requests have deadlines of their own. If the
 * client disconnects, or the caller's signal is aborted, the wait ends with an error.
 */
async function waitForTurn(turn: Promise<void>, scope: Scope): Promise<void> {
  scope.pauseIdle(true);
  await scope.orAbort(turn);
  scope.pauseIdle(false);
}

/**
 * Returns the response to a failed exchange: the response that `onError` returns, or else one that is made from the
 * error.
 * @param thrown the error itself, or the exception of a hook from which the error was made
 * @throws what `onError` throws, or the exception of another hook if `onError` returns no response
 */
async function respondToError(
  error: ProxyError,
  thrown: unknown,
  incoming: Incoming,
  options: ProxyOptions,
  respond: Respond,
): Promise<Response> {
  if (options.onError !== undefined) {
    const returned = await options.onError(error, incoming.request());
    const ownResponse = readHookResponse(returned, "onError");
    if (ownResponse !== undefined) return ownResponse;
  }
  // Reject with the exception, so that the framework logs it: no framework logs a 500 that a handler returns.
  if (!(thrown instanceof ProxyError) && isInternal(error)) throw thrown;
  const response = toErrorResponse(error, incoming.method, options.via || undefined);
  // The body of a refused request of HTTP/1.0 may end elsewhere than the server has seen (RFC 9112 §6.1).
  if (incoming.version() === "1.0") response.headers.push("Connection", "close");
  return respond(response, incoming);
}
