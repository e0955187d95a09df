import type { BodySource } from "./body/source.ts";
import { cutChain } from "./request/chain.ts";
import { Scope } from "./exchange/scope.ts";
import { fromDraft, toDraft } from "./request/draft.ts";
import { badRequest, ProxyError, toProxyError, toReply } from "./error.ts";
import { addForwarded } from "./request/forwarded.ts";
import { cleanRequest, isEventStream, withoutNames } from "./fields/headers.ts";
import { takeAnswer } from "./exchange/hooks.ts";
import { agreedHost } from "./request/host.ts";
import type { Context, Incoming } from "./request/incoming.ts";
import { countForwards } from "./request/maxforwards.ts";
import type { ProxyOptions } from "./options/options.ts";
import type { Plan } from "./options/plan.ts";
import { cleanReply, discard, discardBody } from "./response/reply.ts";
import {
  assertReachable,
  guardEscape,
  isAddress,
  joinTarget,
  parseTarget,
  type Target,
  type Upstream,
} from "./request/target.ts";
import type { UpstreamRequest, UpstreamResponse } from "./transport.ts";
import { refuseWebSocket } from "./request/upgrade.ts";
import { addVia } from "./request/via.ts";

/** Makes the runtime's outgoing `Response`. */
export type Respond = (reply: UpstreamResponse, incoming: Incoming) => Response | Promise<Response>;

/**
 * Forwards one request, with all steps of the proxy in order.
 *
 *     incoming → target → headers + forwarded → body → plan.send → headers back → Response
 *
 * Network failures become responses; the promise does not reject for them. It rejects for misuse, with a TypeError that
 * names the fix, and with an exception of a hook that `onError` does not answer, so that the framework reports it like
 * any other exception of the app.
 */
export async function forward(
  incoming: Incoming,
  target: Target,
  plan: Plan,
  context: Context,
  respond: Respond,
): Promise<Response> {
  const { options } = plan;
  const { fault } = incoming;
  if (fault !== undefined) return recover(fault, fault, incoming, options, respond);
  const turn = incoming.turn?.();
  let address = target;
  if (typeof address === "function" && !isAddress(address)) {
    try {
      address = await address(incoming.request());
    } catch (thrown) {
      // Some servers pass on malformed URLs, and this function may be the first to parse one: that is a bad request.
      const error = URL.canParse(incoming.request().url) ? toProxyError(thrown) : badRequest("URL");
      return recover(error, thrown, incoming, options, respond);
    }
  }
  const upstream = parseTarget(address);
  assertReachable(upstream, plan.transport, plan.hostOption);
  const scope = new Scope(incoming, plan.timeout, plan.idleTimeout, options.signal);
  let reply: UpstreamResponse | undefined;
  let response: Response | undefined;
  try {
    let { path } = incoming;
    if (plan.rewrite !== undefined) {
      path = await plan.rewrite(path, () => incoming.request());
      guardEscape(path.split("?", 1)[0] as string);
    }
    let request = toUpstreamRequest(incoming, upstream, path, plan, context);
    const { method } = incoming;
    const counts = method === "OPTIONS" || method === "TRACE";
    // The proxy itself answers after `onRequest`, which may refuse such requests.
    const last = counts ? countForwards(incoming, request.headers) : undefined;
    if (options.onRequest !== undefined) {
      const draft = toDraft(request);
      const answer = takeAnswer(await options.onRequest(draft, incoming.request()), "onRequest");
      if (answer !== undefined) {
        scope.end();
        return answer;
      }
      request = fromDraft(request, draft);
    }
    if (last !== undefined) {
      scope.end();
      return await respond(last, incoming);
    }
    const measuring = request.body?.measure?.();
    if (measuring !== undefined) request = await settleBody(request, measuring, scope);
    if (turn !== undefined) await waitFor(turn, scope);
    if (scope.error !== undefined) throw scope.error;
    const received = await plan.send(request, scope);
    reply = cleanReply(received, method, request.method);
    // A transport need not report the headers, and an interceptor may have answered without a transport.
    if (!scope.hasHeaders) scope.headersReceived(isEventStream(received.headers));
    scope.endUnused(received.body !== null);
    plan.rewriteResponse?.(reply.headers, request, received.request);
    const made = respond(reply, incoming);
    response = made instanceof Promise ? await made : made;
    if (options.onResponse === undefined) return response;
    const answer = takeAnswer(await options.onResponse(response, incoming.request()), "onResponse");
    if (answer !== undefined && answer !== response) discard(response, answer);
    return answer ?? response;
  } catch (thrown) {
    const stopped = scope.error;
    const error = stopped ?? toProxyError(thrown);
    // Discard before the abort: the body is then cancelled, and does not fail on its way to the client.
    if (response !== undefined) discard(response);
    else if (reply !== undefined) discardBody(reply);
    // Abort what may have been sent already; this does nothing if the exchange has ended.
    scope.abort(error);
    // No hook runs between `reply` and `response`: an error there comes from what the upstream has sent.
    const isUpstreams = reply !== undefined && response === undefined;
    const reported = stopped !== undefined || isUpstreams ? error : thrown;
    return recover(error, reported, incoming, options, respond);
  }
}

/**
 * Waits until the requests in front of this one on the same connection are finished.
 *
 * The deadline starts then: each of those requests has its own deadline, and the time that it takes does not count for
 * the requests behind it. The client's disconnection and the caller's signal end the waiting.
 */
async function waitFor(turn: Promise<void>, scope: Scope): Promise<void> {
  scope.pauseIdle(true);
  await scope.orAbort(turn);
  scope.pauseIdle(false);
}

/** Returns the request with its measured body: none, bytes, or a stream. */
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

/** Makes the request to the upstream: fields are dropped first, then added, so that no client can change the latter. */
function toUpstreamRequest(
  incoming: Incoming,
  upstream: Upstream,
  path: string,
  plan: Plan,
  context: Context,
): UpstreamRequest {
  const { options } = plan;
  const address = plan.clientAddress
    ? plan.clientAddress(incoming.request(), context)
    : incoming.address;
  const trusts = plan.trusts?.(incoming.address ?? address) ? plan.trusts : undefined;
  const head = cleanRequest(
    incoming.headers,
    trusts ? plan.droppedIfTrusted : plan.dropped,
    plan.kept,
  );
  // HTTP/1.0 has no upgrades: the field is ignored there (RFC 9110 §7.8).
  if (head.upgrade !== undefined && incoming.version() !== "1.0") refuseWebSocket(head.upgrade);
  const host =
    incoming.named === undefined
      ? (head.host ?? incoming.authority)
      : agreedHost(incoming.named, head.host, incoming.secure);

  let headers = trusts ? cutChain(head.headers, trusts) : head.headers;
  addForwarded(headers, plan.forwarded, trusts !== undefined || plan.kept !== undefined, {
    address,
    host,
    secure: incoming.secure,
    by: plan.by,
  });
  if (options.via) addVia(headers, options.via, incoming.version());
  if (plan.overridden !== undefined) headers = withoutNames(headers, plan.overridden);
  for (let i = 0; i < plan.added.length; i++) headers.push(plan.added[i] as string);

  // The message framing follows the actual body, not the client's fields (RFC 9112 §6.3).
  const body = head.contentLength === 0 ? null : incoming.body;
  return {
    upstream,
    method: incoming.method,
    path: joinTarget(upstream, path),
    headers,
    original: incoming.original,
    host: options.host ?? (plan.keepHost ? host : undefined),
    body,
    contentLength: body === null ? undefined : head.contentLength,
    given: plan.follows ? [...headers] : undefined,
  };
}

/**
 * Returns the response to a failed exchange: that of `onError`, or else the proxy's own.
 * @param thrown the error itself, or the exception of a hook from which the error was made
 * @throws what `onError` throws, or an exception of another hook that `onError` does not answer
 */
async function recover(
  error: ProxyError,
  thrown: unknown,
  incoming: Incoming,
  options: ProxyOptions,
  respond: Respond,
): Promise<Response> {
  if (options.onError !== undefined) {
    const answer = takeAnswer(await options.onError(error, incoming.request()), "onError");
    if (answer !== undefined) return answer;
  }
  // Reject with the exception: no framework logs a 500 that a handler returns as a response.
  if (!(thrown instanceof ProxyError) && error.code === "proxy_internal_error") throw thrown;
  return respond(toReply(error, incoming.method), incoming);
}
