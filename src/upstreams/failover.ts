import { replayOf } from "../body/replay.ts";
import { WatchedBody } from "../body/watched.ts";
import { clientGone, ProxyError, type ProxyErrorCode, toProxyError } from "../error.ts";
import { badOption } from "../options/misuse.ts";
import type { RetryOptions } from "../options/repeatoptions.ts";
import type { Incoming } from "../request/incoming.ts";
import { parseTarget, type TargetAddress, type Upstream } from "../request/target.ts";
import { discardBody } from "../response/clean.ts";
import type { HeaderList, Transport, UpstreamRequest, UpstreamResponse } from "../transport.ts";
import { WatchedTunnel } from "../tunnel.ts";
import type { Scope } from "../exchange/scope.ts";
import {
  AttemptTimeout,
  type FailoverOptions,
  isUnanswered,
  isUnprocessed,
  pause,
  type Send,
} from "../exchange/send.ts";
import type { Choose, PickRequest, Reach, Result, Upstreams } from "./upstreams.ts";

/** What all attempts of one request have in common. */
interface Origin {
  readonly upstreams: Upstreams;
  readonly client: Incoming;
  readonly reach: Reach;
}

/**
 * One question for an upstream. Each attempt asks with an object of its own: the attempts of one request may run side by
 * side, and each leaves the queue alone.
 */
class Asked implements PickRequest {
  readonly method: string;
  readonly path: string;
  readonly headers: HeaderList;
  readonly clientAddress: string | undefined;
  leave: (() => void) | undefined;
  readonly #scope: Scope;

  constructor({ method, path, headers, address }: Incoming, scope: Scope) {
    this.method = method;
    this.path = path;
    this.headers = headers;
    this.clientAddress = address;
    this.leave = undefined;
    this.#scope = scope;
  }

  get isAborted(): boolean {
    return this.#scope.error !== undefined;
  }
}

/**
 * The place of one attempt at one of several upstreams. Each pick is followed by exactly one final report: after the
 * attempt, or by `release` if the request is not sent.
 */
export class Choice {
  readonly upstream: Upstream;
  readonly #origin: Origin;
  readonly #asked: PickRequest;
  readonly #target: TargetAddress;
  readonly #tried: readonly TargetAddress[];
  #isUsed = false;
  #isOver = false;

  private constructor(
    origin: Origin,
    asked: PickRequest,
    target: TargetAddress,
    tried: readonly TargetAddress[],
  ) {
    this.#origin = origin;
    this.#asked = asked;
    this.#target = target;
    this.#tried = [...tried, target];
    try {
      this.upstream = origin.reach(target);
    } catch (thrown) {
      this.release();
      throw thrown;
    }
  }

  /** Picks an upstream for an attempt; undefined if none can take it, a promise if the attempt has to wait. */
  static pick(
    origin: Origin,
    asked: PickRequest,
    tried: readonly TargetAddress[],
  ): Choice | undefined | Promise<Choice | undefined> {
    const take = (target: TargetAddress | undefined): Choice | undefined =>
      target === undefined ? undefined : new Choice(origin, asked, target, tried);
    const picked = origin.upstreams.pick(asked, tried);
    return picked instanceof Promise ? picked.then(take) : take(picked);
  }

  /** Takes the place for an attempt; false if another attempt has taken it, or it was given back. */
  use(): boolean {
    const isFree = !this.#isUsed;
    this.#isUsed = true;
    return isFree;
  }

  /** Gives the place back, unless an attempt has taken it. */
  release(): void {
    if (!this.use()) return;
    const error = clientGone();
    this.report({ status: undefined, error, latency: 0, isOver: true, isSent: false });
  }

  /** Reports what became of the attempt. Nothing follows the final report. */
  report(result: Omit<Result, "target" | "request">): void {
    if (this.#isOver) return;
    this.#isOver = result.isOver;
    this.#origin.upstreams.report?.({ target: this.#target, request: this.#asked, ...result });
  }

  /** Whether the upstreams' budget allows a further attempt, for which it then counts. */
  mayRetry(): boolean {
    return this.#origin.upstreams.mayRetry?.() !== false;
  }

  /** Sends the request to the chosen upstream, and to others if it fails. */
  send(
    next: Send,
    options: FailoverOptions,
    request: UpstreamRequest,
    scope: Scope,
  ): Promise<UpstreamResponse> {
    return sendChosen(next, options, request, scope);
  }

  /** Returns what to ask with for a further attempt of the same request. */
  ask(scope: Scope): PickRequest {
    return new Asked(this.#origin.client, scope);
  }

  /** Picks an upstream that the request has not been sent to. */
  pickAnother(asked: PickRequest): Choice | undefined | Promise<Choice | undefined> {
    const picked = Choice.pick(this.#origin, asked, this.#tried);
    return picked instanceof Promise ? picked.then((other) => this.#fit(other)) : this.#fit(picked);
  }

  /** Picks an upstream for another request of the same client, such as one that an interceptor makes. */
  async pickAgain(scope: Scope): Promise<Choice> {
    return pickFirst(this.#origin, scope);
  }

  /** The error for the client if no upstream can take the request. */
  unavailable(): ProxyError {
    return unavailable(this.#origin.upstreams);
  }

  #fit(other: Choice | undefined): Choice | undefined {
    if (other === undefined) return undefined;
    const { basePath, query } = this.upstream;
    if (other.upstream.basePath === basePath && other.upstream.query === query) return other;
    other.release();
    const fix = "all upstreams of one target need the same base path and query";
    throw badOption("target", `${fix}; use \`pathRewrite\`, or a function as the target`);
  }
}

/**
 * Sends requests to several upstreams, and to another one if the first fails: the member `choose` of every target that
 * stands for several upstreams. A target brings it, so that a bundle without such a target has no failover.
 */
export const choose: Choose = chooseUpstream;

async function chooseUpstream(
  upstreams: Upstreams,
  client: Incoming,
  transport: Transport,
  scope: Scope,
  reach: Reach = parseTarget,
): Promise<Choice> {
  upstreams.start?.(transport);
  return pickFirst({ upstreams, client, reach }, scope);
}

async function pickFirst(origin: Origin, scope: Scope): Promise<Choice> {
  const asked = new Asked(origin.client, scope);
  const picking = Choice.pick(origin, asked, []);
  const choice = picking instanceof Promise ? await orRelease(picking, scope, asked) : picking;
  if (choice === undefined) throw unavailable(origin.upstreams);
  return choice;
}

/** Waits for a place. A client that leaves meanwhile leaves the queue; a place that comes nevertheless is given back. */
function orRelease(
  picking: Promise<Choice | undefined>,
  scope: Scope,
  asked: PickRequest | undefined,
): Promise<Choice | undefined> {
  return scope.orAbort(picking).catch((error: unknown) => {
    asked?.leave?.();
    void picking.then((late) => late?.release()).catch(() => {});
    throw error;
  });
}

function unavailable(upstreams: Upstreams): ProxyError {
  return new ProxyError("destination_unavailable", {
    message: "no upstream can take the request",
    retryAfter: upstreams.retryAfter?.() ?? 1,
  });
}

/** Failures to connect: nothing of the request was sent. */
const NOT_SENT: ReadonlySet<ProxyErrorCode> = new Set<ProxyErrorCode>([
  "connection_refused",
  "connection_timeout",
  "dns_error",
  "dns_timeout",
  "destination_ip_unroutable",
  "tls_certificate_error",
]);

/** Failures of a connection that was established, perhaps after the upstream has got the request. */
const BROKEN: ReadonlySet<ProxyErrorCode> = new Set<ProxyErrorCode>([
  "connection_terminated",
  "tls_protocol_error",
  "tls_alert_received",
]);

/**
 * Reports to several upstreams what becomes of each attempt, and sends a request that one of them has failed to another.
 *
 * A request goes to another upstream if `retry` allows a further attempt, if the upstreams' budget does, and if the first
 * cannot have carried it out, or its method may be repeated.
 */
async function sendChosen(
  next: Send,
  options: FailoverOptions,
  first: UpstreamRequest,
  firstScope: Scope,
): Promise<UpstreamResponse> {
  let request = first;
  let scope = firstScope;
  let choice = first.choice as Choice;
  // An interceptor may send a request twice: the second one needs a place of its own.
  if (!choice.use()) {
    choice = await choice.pickAgain(scope);
    choice.use();
    request = { ...first, choice, upstream: choice.upstream };
  }
  for (let left = options.retry.attempts; ; left--) {
    const attempt = new ChosenAttempt(request, choice, options);
    await attempt.run(next, scope, left > 0);
    const { response, thrown, another } = attempt;
    const mayRepeat = left > 0 && scope.error === undefined;
    const repeated = mayRepeat ? repeat(request, options.retry, attempt) : undefined;
    let asked: PickRequest | undefined;
    let picked: ReturnType<Choice["pickAnother"]> = repeated && another;
    if (repeated !== undefined && picked === undefined && (attempt.isPaid || choice.mayRetry())) {
      asked = choice.ask(scope);
      picked = choice.pickAnother(asked);
    }
    if (repeated === undefined || picked === undefined) {
      another?.release();
      if (response === undefined) throw thrown;
      return request === first ? response : { ...response, upstream: request.upstream };
    }
    // Discard the response before the wait: two requests could otherwise wait for each other's upstream.
    if (response !== undefined) discardBody(response);
    scope = scope.again();
    const following = await settle(picked, options.retry.delay, scope, asked);
    if (following === undefined) throw response === undefined ? thrown : choice.unavailable();
    following.use();
    choice = following;
    request = { ...repeated, choice, upstream: choice.upstream };
  }
}

/** Waits for the place of a further attempt, and for the delay before it. */
async function settle(
  picked: Choice | Promise<Choice | undefined>,
  delay: number,
  scope: Scope,
  asked: PickRequest | undefined,
): Promise<Choice | undefined> {
  const choice = picked instanceof Promise ? await orRelease(picked, scope, asked) : picked;
  if (choice === undefined || delay === 0) return choice;
  try {
    await pause(delay, scope);
    return choice;
  } catch (thrown) {
    choice.release();
    throw thrown;
  }
}

/** An attempt that is reported to the upstreams, and may be left for another one. */
class ChosenAttempt {
  response: UpstreamResponse | undefined;
  thrown: unknown;
  error: ProxyError | undefined;
  /** The place of the next attempt, for which this one was left. */
  another: Choice | undefined;
  /** Whether the upstreams' budget has allowed the next attempt, which waits or has got no place. */
  isPaid = false;
  readonly #request: UpstreamRequest;
  readonly #choice: Choice;
  readonly #options: FailoverOptions;
  /** The question for the upstream of the next attempt. */
  #asked: PickRequest | undefined;
  #isSettled = false;
  #isUploaded = true;

  constructor(request: UpstreamRequest, choice: Choice, options: FailoverOptions) {
    this.#request = request;
    this.#choice = choice;
    this.#options = options;
  }

  /** @param isLeavable whether another attempt may follow */
  async run(next: Send, scope: Scope, isLeavable: boolean): Promise<void> {
    const { attemptTimeout, handsBodiesThrough } = this.#options;
    const start = performance.now();
    let timer: ReturnType<typeof setTimeout> | undefined;
    if (isLeavable && attemptTimeout > 0) {
      timer = setTimeout(() => {
        // A policy of the app that throws leaves the attempt as it is.
        this.#leave(scope, attemptTimeout).catch(() => {});
      }, attemptTimeout);
    }
    try {
      this.response = await next(this.#watchUpload(handsBodiesThrough), scope);
    } catch (thrown) {
      this.thrown = thrown;
      this.error = toProxyError(thrown);
    }
    clearTimeout(timer);
    this.#isSettled = true;
    // The attempt may still wait for another upstream, which it no longer needs.
    if (this.another === undefined) this.#asked?.leave?.();
    const latency = performance.now() - start;
    const { response } = this;
    const isOver = response === undefined;
    this.#choice.report({ status: response?.status, error: this.#blame(), latency, isOver });
    if (response !== undefined) {
      this.response = watch(response, this.#choice, latency, handsBodiesThrough);
    }
  }

  /** Stops the attempt if another upstream can take the request at once or later. */
  async #leave(scope: Scope, limit: number): Promise<void> {
    const error = new AttemptTimeout(limit);
    if (repeat(this.#request, this.#options.retry, { error }) === undefined) return;
    if (!this.#choice.mayRetry()) return;
    this.isPaid = true;
    this.#asked = this.#choice.ask(scope);
    const another = await this.#choice.pickAnother(this.#asked);
    if (this.#isSettled || another === undefined) return another?.release();
    this.another = another;
    scope.failAttempt(error);
  }

  /** Returns the request with a body that tells whether all of it was sent. */
  #watchUpload(handsBodiesThrough: boolean): UpstreamRequest {
    const request = this.#request;
    if (request.body === null || request.body.replay !== undefined) return request;
    this.#isUploaded = false;
    if (handsBodiesThrough) return request;
    const onEnd = (reason?: unknown): void => void (this.#isUploaded = reason === undefined);
    return { ...request, body: new WatchedBody(request.body, onEnd) };
  }

  /** Returns the error to report: the upstream cannot respond to a client that does not send all of its body. */
  #blame(): ProxyError | undefined {
    const { error } = this;
    if (error?.code !== "http_response_timeout" || this.#isUploaded) return error;
    const message = "the client did not send all of its body";
    return new ProxyError("http_request_error", { status: 408, message, cause: error });
  }
}

/** Returns the request for a further attempt; undefined if it must not be sent again. */
function repeat(
  request: UpstreamRequest,
  { statusCodes, methods }: Required<RetryOptions>,
  { response, error }: { response?: UpstreamResponse | undefined; error: ProxyError | undefined },
): UpstreamRequest | undefined {
  const isSafe = error !== undefined && (NOT_SENT.has(error.code) || isUnprocessed(error));
  const isAllowed =
    methods.includes(request.method) &&
    (error === undefined
      ? statusCodes.includes((response as UpstreamResponse).status)
      : isUnanswered(error) || BROKEN.has(error.code));
  if (!isSafe && !isAllowed) return undefined;
  const body = replayOf(request.body);
  return body === undefined ? undefined : { ...request, body };
}

/** Returns the response with a body or a tunnel that reports when it is over. */
function watch(
  response: UpstreamResponse,
  choice: Choice,
  latency: number,
  handsBodiesThrough: boolean,
): UpstreamResponse {
  const { status, body, tunnel } = response;
  const end = (reason?: unknown): void => {
    const error = reason === undefined ? undefined : toProxyError(reason);
    choice.report({ status, error, latency, isOver: true });
  };
  if (tunnel !== undefined) return { ...response, tunnel: new WatchedTunnel(tunnel, end) };
  if (body !== null && !handsBodiesThrough) {
    return { ...response, body: new WatchedBody(body, end) };
  }
  end();
  return response;
}
