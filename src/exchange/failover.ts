import { replayOf } from "../body/replay.ts";
import { WatchedBody } from "../body/watched.ts";
import { clientGone, ProxyError, type ProxyErrorCode, toProxyError } from "../error.ts";
import type { RetryOptions } from "../options/repeatoptions.ts";
import type { Incoming } from "../request/incoming.ts";
import { parseTarget, type TargetAddress, type Upstream } from "../request/target.ts";
import { discardBody } from "../response/clean.ts";
import type { Transport, UpstreamRequest, UpstreamResponse } from "../transport.ts";
import { WatchedTunnel } from "../tunnel.ts";
import type { PickRequest, Upstreams } from "../upstreams/upstreams.ts";
import type { Scope } from "./scope.ts";
import { isUnanswered, isUnprocessed, type Interceptor, type Send } from "./send.ts";

/** Which of several upstreams a request is sent to. */
export interface Choice {
  readonly upstreams: Upstreams;
  /** What of the client's request the choice depends on. */
  readonly client: PickRequest;
  /** The target that was picked. */
  readonly target: TargetAddress;
  /** The targets of all attempts so far. */
  readonly tried: readonly TargetAddress[];
}

/** A choice with the upstream that it has led to. */
export interface Chosen {
  readonly upstream: Upstream;
  readonly choice: Choice;
}

/**
 * Picks the upstream of a request.
 * @throws ProxyError 503 if none can take it
 */
export async function choose(
  upstreams: Upstreams,
  { method, path, headers, address }: Incoming,
  transport: Transport,
  scope: Scope,
): Promise<Chosen> {
  upstreams.start?.(transport);
  const client: PickRequest = { method, path, headers, clientAddress: address };
  const chosen = await pick(upstreams, client, [], scope);
  if (chosen !== undefined) return chosen;
  throw new ProxyError("destination_unavailable", {
    message: "no upstream can take the request",
    retryAfter: upstreams.retryAfter?.() ?? 1,
  });
}

async function pick(
  upstreams: Upstreams,
  client: PickRequest,
  tried: readonly TargetAddress[],
  scope: Scope,
): Promise<Chosen | undefined> {
  const picking = upstreams.pick(client, tried);
  let target: TargetAddress | undefined;
  if (picking instanceof Promise) {
    // A place in a queue may come when the client has left: then give it back.
    target = await scope.orAbort(picking).catch((error: unknown) => {
      void picking.then((late) => late !== undefined && giveBack(upstreams, late));
      throw error;
    });
  } else target = picking;
  if (target === undefined) return undefined;
  const upstream = parseTarget(target);
  return { upstream, choice: { upstreams, client, target, tried: [...tried, target] } };
}

function giveBack(upstreams: Upstreams, target: TargetAddress): void {
  upstreams.report?.({ target, status: undefined, error: clientGone(), latency: 0, isOver: true });
}

/** Failures to connect: nothing of the request was sent. */
const NOT_SENT: ReadonlySet<ProxyErrorCode> = new Set<ProxyErrorCode>([
  "connection_refused",
  "connection_timeout",
  "dns_error",
  "dns_timeout",
  "destination_ip_unroutable",
  "tls_protocol_error",
  "tls_certificate_error",
]);

/**
 * Reports to several upstreams what becomes of each attempt, and sends a request that one of them has failed to another.
 *
 * A request goes to another upstream if `retry` allows a further attempt, if the upstreams' budget does, and if the first
 * cannot have carried it out, or its method may be repeated.
 */
export function failOver(options: Required<RetryOptions>): Interceptor {
  return (next) => (request, scope) => sendChosen(next, options, request, scope);
}

async function sendChosen(
  next: Send,
  options: Required<RetryOptions>,
  first: UpstreamRequest,
  firstScope: Scope,
): Promise<UpstreamResponse> {
  let request = first;
  let scope = firstScope;
  for (let left = options.attempts; ; left--) {
    const choice = request.choice as Choice;
    const start = performance.now();
    let response: UpstreamResponse | undefined;
    let error: ProxyError | undefined;
    try {
      response = await next(request, scope);
    } catch (thrown) {
      error = toProxyError(thrown);
    }
    const latency = performance.now() - start;
    const status = response?.status;
    const isOver = response === undefined;
    choice.upstreams.report?.({ target: choice.target, status, error, latency, isOver });
    if (response !== undefined) response = watch(response, choice, latency);
    const repeated = left > 0 ? repeat(request, options, status, error) : undefined;
    const another =
      repeated === undefined || scope.error !== undefined
        ? undefined
        : await pickAnother(choice, request.upstream, scope);
    if (repeated === undefined || another === undefined) {
      if (response === undefined) throw error as ProxyError;
      return request === first ? response : { ...response, upstream: request.upstream };
    }
    if (response !== undefined) discardBody(response);
    request = { ...repeated, ...another };
    scope = scope.again();
  }
}

/** Picks an upstream for a further attempt; undefined if none is left, or too many requests are repeated already. */
async function pickAnother(
  { upstreams, client, tried }: Choice,
  { basePath, query }: Upstream,
  scope: Scope,
): Promise<Chosen | undefined> {
  if (upstreams.mayRetry?.() === false) return undefined;
  const another = await pick(upstreams, client, tried, scope);
  if (another === undefined) return undefined;
  if (another.upstream.basePath !== basePath || another.upstream.query !== query) {
    throw new TypeError(
      "fetchway: all upstreams of one target need the same base path and query; " +
        "use `pathRewrite`, or a function as the target",
    );
  }
  return another;
}

/** Returns the request for a further attempt; undefined if it must not be sent again. */
function repeat(
  request: UpstreamRequest,
  { statusCodes, methods }: Required<RetryOptions>,
  status: number | undefined,
  error: ProxyError | undefined,
): UpstreamRequest | undefined {
  const isSafe = error !== undefined && (NOT_SENT.has(error.code) || isUnprocessed(error));
  const isAllowed =
    methods.includes(request.method) &&
    (error === undefined ? statusCodes.includes(status as number) : isUnanswered(error));
  if (!isSafe && !isAllowed) return undefined;
  const body = replayOf(request.body);
  return body === undefined ? undefined : { ...request, body };
}

/** Returns the response with a body or a tunnel that reports when it is over. */
function watch(response: UpstreamResponse, choice: Choice, latency: number): UpstreamResponse {
  const { status, body, tunnel } = response;
  const { upstreams, target } = choice;
  let isOver = false;
  const end = (reason?: unknown): void => {
    if (isOver) return;
    isOver = true;
    const error = reason === undefined ? undefined : toProxyError(reason);
    upstreams.report?.({ target, status, error, latency, isOver });
  };
  if (tunnel !== undefined) return { ...response, tunnel: new WatchedTunnel(tunnel, end) };
  if (body === null) {
    end();
    return response;
  }
  return { ...response, body: new WatchedBody(body, end) };
}
