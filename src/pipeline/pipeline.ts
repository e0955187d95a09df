/**
 * The order in which a request is processed:
 *
 *     PREPARE      makes the request to the upstream
 *     plan.mirror  copies the request
 *     plan.send    interceptors, body limit, replay buffer, redirects, `wait`, attempts → transport
 *     FINISH       makes the response to the client
 *
 * The steps of both lists are below, in the order in which they run.
 */
import type { BodySource } from "../body/source.ts";
import { badRequest, bodyStopped, toProxyError } from "../error.ts";
import {
  assertUnread,
  observeInterim,
  readHookResponse,
  takeDraft,
  toDraft,
} from "../exchange/hooks.ts";
import { Observation } from "../exchange/observation.ts";
import { isEventStream } from "../fields/headers.ts";
import { isPromise } from "../misuse.ts";
import type { Context } from "../options/forwardingoptions.ts";
import type { RequestDraft } from "../options/hookoptions.ts";
import type { RequestEnd } from "../options/observationoptions.ts";
import type { Plan } from "../plan.ts";
import type { Incoming } from "../request/incoming.ts";
import { respondAsRecipient } from "../request/maxforwards.ts";
import { toUpstreamRequest, usesMaxForwards } from "../request/outgoing.ts";
import { cleanResponse } from "../response/clean.ts";
import { isApp } from "../target/app.ts";
import { badTarget, guardEscape, isAsterisk, type Upstream } from "../target/target.ts";
import type { UpstreamRequest, UpstreamResponse } from "../transport/message.ts";
import { type Lease, Scope } from "../transport/scope.ts";
import type { Tunnel } from "../transport/tunnel.ts";
import type { AnyTarget, Target, Upstreams } from "../upstreams/upstreams.ts";
import type {
  Answered,
  Exchange,
  MaybePromise,
  Respond,
  Sendable,
  Started,
  Step,
} from "./exchange.ts";
import { discardAnswer, fail, respondToError } from "./failure.ts";

/** The steps before the request is sent. */
const PREPARE: readonly Step[] = [
  refuseFault,
  resolveTarget,
  startScope,
  waitForTurn,
  pickUpstream,
  rewritePath,
  buildRequest,
  callOnRequest,
  answerMaxForwards,
  measureBody,
];

/** The steps after the response headers have arrived. The last one returns the response. */
const FINISH: readonly Step[] = [cleanReceived, makeResponse, callOnResponse, completeUpgrade];

/**
 * Forwards one request. A network failure becomes a response. The promise rejects only in two cases: for misuse, with a
 * TypeError that names the fix; and with the exception of a function of the app, if `onError` returns no response for it. The
 * framework then reports that exception like any other exception of the app.
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
    return runExchange(incoming, target, plan, context, respond, observation);
  }
  return observe(incoming, target, plan, context, respond, isTraced);
}

/**
 * Forwards one request whose end is reported. It is a separate function, like all functions here that contain a closure. V8
 * allocates the variables of a closure when the function around it begins, so a closure in `forward` would cost every
 * request some memory.
 */
function observe(
  incoming: Incoming,
  target: Target,
  plan: Plan,
  context: Context,
  respond: Respond,
  isTraced: boolean,
): Promise<Response> {
  const { onRequestEnd, route } = plan.options;
  const runObserved = (end?: (event: RequestEnd) => void): Promise<Response> => {
    const observation = new Observation(incoming, route, onRequestEnd, end);
    return observation.conclude(runExchange(incoming, target, plan, context, respond, observation));
  };
  return isTraced && plan.tracing ? plan.tracing.trace(incoming, runObserved) : runObserved();
}

function runExchange(
  incoming: Incoming,
  target: Target,
  plan: Plan,
  context: Context,
  respond: Respond,
  observation: Observation | undefined,
): Promise<Response> {
  const exchange: Exchange = {
    incoming,
    plan,
    context,
    respond,
    observation,
    target,
    turn: undefined,
    scope: undefined,
    upstream: undefined,
    path: incoming.path,
    request: undefined,
    draft: undefined,
    cleaned: undefined,
    response: undefined,
  };
  incoming.running = plan.transport.running?.begin();
  try {
    const early = runSteps(exchange, PREPARE);
    return early instanceof Promise ? sendLater(exchange, early) : sendOrEnd(exchange, early);
  } catch (thrown) {
    return fail(exchange, thrown);
  }
}

function sendLater(exchange: Exchange, early: Promise<Response | undefined>): Promise<Response> {
  return early.then(
    (response) => sendOrEnd(exchange, response),
    (thrown: unknown) => fail(exchange, thrown),
  );
}

/**
 * Restarts an exchange with another proxy's options. No upstream has processed its request so far. Both runs are reported as
 * one exchange.
 */
export function forwardAgain(
  { incoming, context, respond, observation, request, plan: { mirror } }: Exchange,
  target: Target,
  plan: Plan,
): Promise<Response> {
  // A request without a body was already copied. A body is copied when it is sent, which has not happened so far.
  const isCopied = mirror !== undefined && request?.body === null;
  const next = isCopied ? { ...plan, mirror: (same: UpstreamRequest) => same } : plan;
  return runExchange(incoming, target, next, context, respond, observation);
}

/** Sends the request. If a step has returned a response, ends the exchange with it instead. */
function sendOrEnd(exchange: Exchange, response: Response | undefined): Promise<Response> {
  if (response === undefined) return sendPrepared(exchange as Sendable);
  endSending(exchange);
  exchange.scope?.end();
  return Promise.resolve(response);
}

function sendPrepared(exchange: Sendable): Promise<Response> {
  const { incoming, plan, scope } = exchange;
  let { request } = exchange;
  try {
    if (scope.error !== undefined) throw scope.error;
    if (plan.held !== undefined) {
      // Another proxy may take over only a request that no upstream has processed (one may have, if redirects are followed), and
      // whose body is still the client's.
      scope.isMovable = !plan.follows && (request.body ?? incoming.body) === incoming.body;
    }
    if (plan.mirror !== undefined) {
      request = plan.mirror(request, incoming.waitUntil ?? plan.options.waitUntil);
      exchange.request = request;
    }
    return plan.send(request, scope).then(
      (received) => conclude(exchange, received),
      (thrown: unknown) => failSent(exchange, thrown),
    );
  } catch (thrown) {
    return fail(exchange, thrown);
  }
}

/** Called when an exchange sends no further request. Gives back the place at the upstream, unless a request was sent. */
function endSending({ incoming, scope }: Exchange): void {
  scope?.lease?.release();
  incoming.running?.end(incoming);
}

/**
 * Fails an exchange whose request was passed to `plan.send`. An attempt cancels the body that it sends; this function
 * cancels a body that no attempt has begun to send.
 */
function failSent(exchange: Sendable, thrown: unknown): Promise<Response> {
  const { request, scope, plan } = exchange;
  endSending(exchange);
  const moved = plan.held?.moved;
  if (moved !== undefined && thrown === moved) return moved.sendElsewhere(exchange);
  if (scope.isEnded) request.body?.cancel();
  return fail(exchange, thrown);
}

/** Makes the response to the client from that of the upstream. */
function conclude(exchange: Sendable, received: UpstreamResponse): MaybePromise<Response> {
  endSending(exchange);
  exchange.cleaned = received;
  try {
    const outcome = runSteps(exchange, FINISH) as MaybePromise<Response>;
    return outcome instanceof Promise ? failLater(exchange, outcome) : outcome;
  } catch (thrown) {
    return fail(exchange, thrown);
  }
}

function failLater(exchange: Exchange, outcome: Promise<Response>): Promise<Response> {
  return outcome.catch((thrown: unknown) => fail(exchange, thrown));
}

/**
 * Runs steps until one returns a response. It stays synchronous as long as no step waits; after a step that waits, it
 * continues with the next one. The pipeline is a list, because an async function would keep all of its variables in memory
 * while it waits, and would cost every request three promises.
 */
function runSteps(
  exchange: Exchange,
  steps: readonly Step[],
  from = 0,
): MaybePromise<Response | undefined> {
  for (let at = from; at < steps.length; at++) {
    const outcome = (steps[at] as Step)(exchange);
    if (outcome === undefined) continue;
    return outcome instanceof Promise ? runLater(exchange, steps, at + 1, outcome) : outcome;
  }
  return undefined;
}

/** A separate function because of its closure; see `observe`. */
function runLater(
  exchange: Exchange,
  steps: readonly Step[],
  from: number,
  outcome: Promise<Response | undefined>,
): Promise<Response | undefined> {
  return outcome.then((response) => response ?? runSteps(exchange, steps, from));
}

/** Passes a value to `take`, which does the rest of a step: synchronously, unless the value is a promise. */
function settleStep<E extends Exchange, T>(
  exchange: E,
  value: T | PromiseLike<T>,
  take: (exchange: E, value: T) => Response | undefined,
): MaybePromise<Response | undefined> {
  return isPromise(value) ? settleStepLater(exchange, value, take) : take(exchange, value);
}

function settleStepLater<E extends Exchange, T>(
  exchange: E,
  value: PromiseLike<T>,
  take: (exchange: E, value: T) => Response | undefined,
): Promise<Response | undefined> {
  return Promise.resolve(value).then((settled) => take(exchange, settled));
}

// ── before the request is sent ──

function refuseFault(exchange: Exchange): ReturnType<Step> {
  const { fault } = exchange.incoming;
  return fault && respondToError(exchange, fault, fault);
}

/** Determines where the request goes. For a malformed target, the promise of `forward` rejects. */
function resolveTarget(exchange: Exchange): ReturnType<Step> {
  const { incoming, target } = exchange;
  // Ask for this request's turn on its connection before any step waits: afterwards, the order of arrival is lost.
  exchange.turn = incoming.turn?.();
  return isFixed(target) ? setTarget(exchange, target) : askForTarget(exchange, target);
}

function askForTarget(
  exchange: Exchange,
  target: Exclude<Target, AnyTarget>,
): MaybePromise<Response | undefined> {
  const { incoming } = exchange;
  const refuse = (thrown: unknown): Promise<Response> => {
    // Some servers accept a malformed URL, and the app's target function may be the first code that parses it. The
    // function then throws because of a bad request, not because of a bug.
    const error = URL.canParse(incoming.request().url) ? toProxyError(thrown) : badRequest("URL");
    return respondToError(exchange, error, thrown);
  };
  let given: AnyTarget | PromiseLike<AnyTarget>;
  try {
    given = target(incoming.request());
  } catch (thrown) {
    return refuse(thrown);
  }
  if (!isPromise(given)) return setTarget(exchange, given);
  return Promise.resolve(given).then((address) => setTarget(exchange, address), refuse);
}

function setTarget(exchange: Exchange, target: AnyTarget): undefined {
  exchange.target = target;
  if (!isUpstreams(target)) exchange.upstream = exchange.plan.reach(target);
}

/** Whether a target is fixed, rather than a function that chooses it for each request. */
export function isFixed(target: Target): target is AnyTarget {
  return typeof target !== "function" || isApp(target);
}

/**
 * Whether a target consists of several upstreams. An app is one upstream, although a stub of workerd has a method of
 * every name, including `pick`.
 * @throws TypeError for an object with `pick` that lacks `choose`
 */
export function isUpstreams(target: AnyTarget): target is Upstreams {
  const upstreams = target as Partial<Upstreams> | null;
  if (typeof upstreams?.pick !== "function" || isApp(target)) return false;
  if (typeof upstreams.choose === "function") return true;
  throw badTarget(target, "an object with `pick` needs `choose` of fetchway/upstreams as well");
}

/** Starts the deadline, and listens for the client's disconnect: immediately, or after `Client.listenAfter`. */
function startScope(exchange: Exchange): undefined {
  const { incoming, plan, observation } = exchange;
  const { onInformational, signal, connectTimeout } = plan.options;
  const scope = new Scope(incoming, plan.timeout, plan.idleTimeout, signal, connectTimeout);
  if (onInformational !== undefined) scope.informed = observeInterim(incoming, onInformational);
  if (observation !== undefined) scope.observer = observation;
  scope.log = plan.log;
  exchange.scope = scope;
}

/**
 * Waits until the earlier requests on the client's connection are finished. Only then does the request take a place at one of
 * several upstreams, because the earlier requests may need that place.
 */
function waitForTurn({ turn, scope }: Exchange): ReturnType<Step> {
  return turn && pauseUntil(turn, scope as Scope);
}

/** Waits for `turn`. The time limit is paused meanwhile, because the earlier requests have their own time limits. */
async function pauseUntil(turn: Promise<void>, scope: Scope): Promise<undefined> {
  scope.pauseIdle(true);
  await scope.orAbort(turn);
  scope.pauseIdle(false);
}

function pickUpstream(exchange: Exchange): ReturnType<Step> {
  return exchange.upstream === undefined ? pickOne(exchange as Started) : undefined;
}

/** Picks one of several upstreams. Waits if all are busy. */
function pickOne(exchange: Started): ReturnType<Step> {
  const { incoming, plan, scope, target } = exchange;
  if (!isFixed(target) || !isUpstreams(target)) return undefined;
  const { transport, attempts, reach } = plan;
  const picked = target.choose(target, incoming, transport, scope, attempts, reach);
  return settleStep(exchange, picked, setLease);
}

function setLease(exchange: Started, lease: Lease): undefined {
  exchange.scope.lease = lease;
  exchange.upstream = lease.upstream;
}

function rewritePath(exchange: Exchange): ReturnType<Step> {
  const { incoming, plan } = exchange;
  if (plan.rewrite === undefined || isAsterisk(incoming.path, incoming.method)) return undefined;
  return rewriteOne(exchange, plan.rewrite);
}

function rewriteOne(exchange: Exchange, rewrite: NonNullable<Plan["rewrite"]>): ReturnType<Step> {
  const { incoming } = exchange;
  const path = rewrite(incoming.path, () => incoming.request());
  return settleStep(exchange, path, setPath);
}

function setPath(exchange: Exchange, path: string): undefined {
  guardEscape(path.split("?", 1)[0] as string);
  exchange.path = path;
}

function buildRequest(exchange: Exchange): undefined {
  const { incoming, plan, context, path, scope } = exchange as Started;
  const upstream = exchange.upstream as Upstream;
  const request = toUpstreamRequest(incoming, upstream, path, plan, context);
  scope.lease?.cut(request);
  exchange.request = request;
}

function callOnRequest(exchange: Exchange): ReturnType<Step> {
  const { onRequest } = exchange.plan.options;
  if (onRequest === undefined) return undefined;
  const { request, incoming } = exchange as Sendable;
  const draft = (exchange.draft = toDraft(request));
  return settleStep(exchange, onRequest(draft, incoming.request()), takeDrafted);
}

/** Takes the changes of `onRequest`, unless it has returned a response. */
function takeDrafted(exchange: Exchange, returned: unknown): Response | undefined {
  const { request, draft } = exchange as Sendable;
  const ownResponse = readHookResponse(returned, "onRequest");
  if (ownResponse === undefined) exchange.request = takeDraft(request, draft as RequestDraft);
  return ownResponse;
}

/**
 * Answers a request that `Max-Forwards` does not allow to go further. `onRequest` comes first, because it may refuse the
 * request.
 */
function answerMaxForwards({ incoming, respond }: Exchange): ReturnType<Step> {
  const answer = usesMaxForwards(incoming.method) ? respondAsRecipient(incoming) : undefined;
  return answer && respond(answer, incoming);
}

/**
 * Waits for the first chunk of a body of unknown length, and then a moment for its end, because the body may be empty, or
 * short enough to be sent with its length.
 */
function measureBody(exchange: Exchange): ReturnType<Step> {
  const measuring = exchange.request?.body?.measure?.();
  return measuring && setMeasured(exchange as Sendable, measuring);
}

async function setMeasured(
  exchange: Sendable,
  measuring: Promise<BodySource | null>,
): Promise<undefined> {
  const { incoming, scope, request } = exchange;
  try {
    const body = await scope.orAbort(measuring, () => bodyStopped(0));
    if (request.body === incoming.body) incoming.body = body;
    exchange.request = { ...request, body };
  } catch (thrown) {
    request.body?.cancel();
    throw thrown;
  }
}

// ── after the response headers have arrived ──

function cleanReceived(exchange: Exchange): undefined {
  const { incoming, plan, observation } = exchange;
  const { cleaned: received, scope } = exchange as Answered;
  let { request } = exchange as Answered;
  // If `cleanResponse` throws, the response is discarded or invalid, so `fail` must not discard it.
  exchange.cleaned = undefined;
  if (received?.upstream !== undefined) {
    exchange.request = request = { ...request, upstream: received.upstream };
  }
  let cleaned = cleanResponse(received, incoming.method, request, plan.rewriteResponse, incoming);
  // Observe only what the client gets: the body of a response to HEAD, which `cleanResponse` discards, is no failure.
  if (observation !== undefined) {
    cleaned = observation.watch(cleaned, plan.transport.handsBodiesThrough);
  }
  const { signal, serverTiming } = plan.options;
  if (signal !== undefined && cleaned.tunnel !== undefined) {
    cleaned = { ...cleaned, tunnel: endWithSignal(cleaned.tunnel, signal, incoming) };
  }
  exchange.cleaned = cleaned;
  scope.lease?.keepClient(cleaned, request);
  // Report the headers to the scope, unless the transport has done so. Not every transport does, and an interceptor may
  // have responded without a transport.
  if (!scope.hasHeaders) scope.headersReceived(isEventStream(received.headers));
  if (serverTiming) {
    cleaned.headers.push("Server-Timing", observation?.serverTiming as string);
  }
  scope.endUnused(received.body !== null);
}

/** Closes a tunnel when the option `signal` fires, as if the client had disconnected. */
function endWithSignal(tunnel: Tunnel, signal: AbortSignal, incoming: Incoming): Tunnel {
  const end = (): void => tunnel.destroy();
  if (signal.aborted) end();
  else signal.addEventListener("abort", end);
  const forget = (): void => signal.removeEventListener("abort", end);
  return incoming.watchTunnel?.(tunnel, forget) ?? tunnel;
}

function makeResponse(exchange: Exchange): ReturnType<Step> {
  const { cleaned, incoming, request, respond } = exchange as Answered;
  const responding = respond(cleaned, incoming, request);
  return responding instanceof Promise
    ? settleStepLater(exchange, responding, setResponse)
    : setResponse(exchange, responding);
}

function setResponse(exchange: Exchange, response: Response): undefined {
  exchange.response = response;
}

function callOnResponse(exchange: Exchange): ReturnType<Step> {
  const { incoming, plan, response } = exchange as Answered;
  const { onResponse } = plan.options;
  if (onResponse === undefined) return undefined;
  return settleStep(exchange, onResponse(response, incoming.request()), takeHooked);
}

/**
 * Ends the exchange with the response that `onResponse` has returned, unless it is the response that the hook was given.
 */
function takeHooked(exchange: Exchange, returned: unknown): Response | undefined {
  const { response, plan } = exchange as Answered;
  const ownResponse = readHookResponse(returned, "onResponse");
  if ((ownResponse ?? response) === response) {
    return assertUnread(plan.isBodyUsed?.(response) ?? response.bodyUsed);
  }
  discardAnswer(exchange, ownResponse);
  return ownResponse;
}

function completeUpgrade(exchange: Exchange): ReturnType<Step> {
  const { incoming, plan, cleaned, response } = exchange as Answered;
  const { tunnel } = cleaned;
  if (tunnel === undefined || incoming.completeUpgrade === undefined) return response;
  return incoming.completeUpgrade(response, tunnel, plan.options);
}
