import type { BodySource } from "../body/source.ts";
import { type BodyWatcher, WatchedBody } from "../body/watched.ts";
import { placeError, ProxyError, toProxyError } from "../error.ts";
import {
  type AttemptOptions,
  attemptTooLong,
  nextAttempt,
  type Outcome,
  outcomeOf,
  type RetryPlace,
  type NextAttempt,
} from "../exchange/repeat.ts";
import { pause } from "../exchange/send.ts";
import { getHeader, type HeaderList } from "../fields/headers.ts";
import { badOption } from "../misuse.ts";
import type { Incoming } from "../request/incoming.ts";
import { parseTarget, type Reach, type TargetAddress, type Upstream } from "../target/target.ts";
import type { Claim } from "../transport/claim.ts";
import { Deadline } from "../transport/deadline.ts";
import { discardBody, type UpstreamRequest, type UpstreamResponse } from "../transport/message.ts";
import type { Transport } from "../transport/port.ts";
import type { Lease, Scope, Send } from "../transport/scope.ts";
import { type Tunnel, WatchedTunnel } from "../transport/tunnel.ts";
import { startUpstreams } from "./startupstreams.ts";
import type { Choose, PickRequest, Result, Upstreams } from "./upstreams.ts";

/** The values that all attempts of one request share. */
interface FailoverContext {
  readonly upstreams: Upstreams;
  readonly client: Incoming;
  readonly options: AttemptOptions;
  readonly reach: Reach;
  /** The lease of the attempt that was answered last. It is set only if the target has a `keeper`. */
  answeredBy?: UpstreamLease;
}

/** The empty list of tried targets, for a first attempt. */
const NO_TARGETS: readonly TargetAddress[] = Object.freeze([]);

/**
 * The query of one attempt for a place at an upstream. Each attempt has its own query, because the attempts of one request
 * may run side by side, and each leaves the queue separately.
 */
class PickQuery implements PickRequest, Claim {
  readonly method: string;
  readonly path: string;
  readonly headers: HeaderList;
  readonly clientAddress: string | undefined;
  leave: (() => void) | undefined;
  explainTimeout: (() => ProxyError | undefined) | undefined;
  refusal: ProxyError | undefined;
  /** The attempt that has the place; undefined unless the transport has reported it. */
  attempt: Claim | undefined;
  readonly #scope: Scope;

  constructor({ method, path, headers, address }: Incoming, scope: Scope) {
    this.method = method;
    this.path = path;
    this.headers = headers;
    this.clientAddress = address;
    this.leave = undefined;
    this.explainTimeout = undefined;
    this.refusal = undefined;
    this.attempt = undefined;
    this.#scope = scope;
  }

  get isAborted(): boolean {
    return this.#scope.error !== undefined;
  }

  get claim(): Claim {
    return this;
  }

  get clientKey(): string | undefined {
    return this.#scope.client.clientKey;
  }

  get clientBytes(): number | undefined {
    return this.attempt?.clientBytes;
  }

  endSlow(reason: ProxyError): void {
    this.#scope.abort(reason);
  }
}

/**
 * The place of one attempt at one of several upstreams. Each pick is followed by exactly one final report: after the
 * attempt, or by `release` if the request is not sent.
 */
class UpstreamLease implements Lease, BodyWatcher {
  readonly upstream: Upstream;
  readonly #context: FailoverContext;
  readonly #query: PickRequest;
  readonly #target: TargetAddress;
  /** The targets that earlier attempts of the same request were sent to. */
  readonly #before: readonly TargetAddress[];
  /** Whether an attempt has taken the place, the place was given back, or there is no place. */
  isUsed: boolean;
  #isOver: boolean;
  /** The status and the latency of the response, once the headers have arrived. */
  #status: Result["status"];
  #latency = 0;

  private constructor(
    context: FailoverContext,
    query: PickRequest,
    target: TargetAddress,
    before: readonly TargetAddress[],
    hasPlace = true,
  ) {
    this.isUsed = !hasPlace;
    this.#isOver = !hasPlace;
    this.#context = context;
    this.#query = query;
    this.#target = target;
    this.#before = before;
    try {
      this.upstream = context.reach(target);
    } catch (thrown) {
      this.release();
      throw thrown;
    }
  }

  /** Picks an upstream for an attempt; undefined if none can take it, a promise if the attempt has to wait. */
  static pick(
    context: FailoverContext,
    query: PickRequest,
    tried: readonly TargetAddress[],
  ): UpstreamLease | undefined | Promise<UpstreamLease | undefined> {
    const picked = context.upstreams.pick(query, tried);
    return picked instanceof Promise
      ? picked.then((target) => UpstreamLease.#take(context, query, target, tried))
      : UpstreamLease.#take(context, query, picked, tried);
  }

  static #take(
    context: FailoverContext,
    query: PickRequest,
    target: TargetAddress | undefined,
    tried: readonly TargetAddress[],
  ): UpstreamLease | undefined {
    return target === undefined ? undefined : new UpstreamLease(context, query, target, tried);
  }

  /** Makes a lease without a place, for a request that waits until an upstream can take it. */
  static withoutPlace(
    context: FailoverContext,
    query: PickRequest,
    target: TargetAddress,
  ): UpstreamLease {
    return new UpstreamLease(context, query, target, NO_TARGETS, false);
  }

  get group(): Upstreams {
    return this.#context.upstreams;
  }

  set attempt(attempt: Claim | undefined) {
    (this.#query as PickQuery).attempt = attempt;
  }

  /** Takes the place for an attempt. Returns false if another attempt has taken the place, or the place was given back. */
  use(): boolean {
    const isFree = !this.isUsed;
    this.isUsed = true;
    return isFree;
  }

  /** Gives the place back, unless an attempt has taken it. */
  release(): void {
    if (this.use()) this.reportUnsent();
  }

  /** Reports that nothing was sent, which is no failure of the upstream; after the final report, it does nothing. */
  reportUnsent(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#context.upstreams.report?.({
      target: this.#target,
      request: this.#query,
      status: undefined,
      error: new ProxyError("http_request_error", { message: "the request was not sent" }),
      latency: 0,
      isOver: true,
      isSent: false,
    });
  }

  cut({ headers }: UpstreamRequest): void {
    this.#context.upstreams.keeper?.cut(headers);
  }

  /** Records that the upstream has answered. */
  noteResponse(): void {
    if (this.#context.upstreams.keeper !== undefined) this.#context.answeredBy = this;
  }

  keepClient(response: UpstreamResponse, request: UpstreamRequest): void {
    const { answeredBy, client, upstreams } = this.#context;
    if (answeredBy === undefined) return;
    const secure = isSecure(request, client);
    const fields = upstreams.keeper?.fieldsFor(
      answeredBy.#target,
      answeredBy.#query,
      response,
      secure,
    );
    if (fields !== undefined) response.headers.push(...fields);
  }

  /** Reports the outcome of the attempt; after the final report, it does nothing. The parameters are those of `Result`. */
  report(
    status: Result["status"],
    error: Result["error"],
    latency: Result["latency"],
    isOver: Result["isOver"],
    isUploaded?: Result["isUploaded"],
  ): void {
    if (this.#isOver) return;
    this.#isOver = isOver;
    this.#status = status;
    this.#latency = latency;
    const request = this.#query;
    const target = this.#target;
    const { upstreams } = this.#context;
    upstreams.report?.({ target, request, status, error, latency, isOver, isUploaded });
  }

  /** Called when the body or the tunnel of the response is over. */
  bodyOver(reason?: unknown): void {
    const error = reason === undefined ? undefined : toProxyError(reason);
    this.report(this.#status, error, this.#latency, true);
  }

  /** Takes one retry from the upstreams' budget; returns false if the budget allows none. */
  spendRetry(): boolean {
    return this.#context.upstreams.mayRetry?.() !== false;
  }

  get options(): AttemptOptions {
    return this.#context.options;
  }

  send(next: Send, request: UpstreamRequest, scope: Scope): Promise<UpstreamResponse> {
    return sendLeased(next, request, scope, this);
  }

  /** Returns the query for a further attempt of the same request. */
  newQuery(scope: Scope): PickRequest {
    return new PickQuery(this.#context.client, scope);
  }

  /** Picks an upstream to which the request has not been sent. */
  pickAnother(query: PickRequest): UpstreamLease | undefined | Promise<UpstreamLease | undefined> {
    const picked = UpstreamLease.pick(this.#context, query, [...this.#before, this.#target]);
    return picked instanceof Promise
      ? picked.then((other) => this.#requireSameBase(other))
      : this.#requireSameBase(picked);
  }

  /** Whether the request was already sent to the upstream of the lease `other`. */
  hasTried(other: UpstreamLease): boolean {
    return other.#target === this.#target || this.#before.includes(other.#target);
  }

  /** Picks an upstream again, for a request that has waited (`wait`), or that an interceptor sends a second time. */
  async pickAgain(scope: Scope): Promise<UpstreamLease> {
    return pickFirst(this.#context, scope);
  }

  /** The error for the client if no upstream can take a request whose last response was discarded. */
  unavailable(): ProxyError {
    return unavailable(this.#context.upstreams, false);
  }

  #requireSameBase(other: UpstreamLease | undefined): UpstreamLease | undefined {
    if (other === undefined) return undefined;
    const { basePath, query } = this.upstream;
    if (other.upstream.basePath === basePath && other.upstream.query === query) return other;
    other.release();
    const fix = "all upstreams of one target need the same base path and query";
    throw badOption("target", `${fix}; use \`pathRewrite\`, or a function as the target`);
  }
}

/**
 * Picks one of several upstreams, and returns a lease, which sends the request, and sends it to another upstream if the
 * first one fails. Every target with several upstreams has this function as its member `choose`, so that a bundle without
 * such targets contains no failover.
 */
export const choose: Choose = chooseUpstream;

function chooseUpstream(
  upstreams: Upstreams,
  client: Incoming,
  transport: Transport,
  scope: Scope,
  options: AttemptOptions,
  reach: Reach = parseTarget,
): UpstreamLease | Promise<UpstreamLease> {
  startUpstreams(upstreams, transport);
  return pickFirst({ upstreams, client, options, reach }, scope, options.waits);
}

/** @param waits whether the request gets a lease without a place if no upstream can take it */
function pickFirst(
  context: FailoverContext,
  scope: Scope,
  waits = false,
): UpstreamLease | Promise<UpstreamLease> {
  const query = new PickQuery(context.client, scope);
  const picking = UpstreamLease.pick(context, query, NO_TARGETS);
  return picking instanceof Promise
    ? orRelease(picking, scope, query).then((lease) => orFail(context, lease, query, waits))
    : orFail(context, picking, query, waits);
}

function orFail(
  context: FailoverContext,
  lease: UpstreamLease | undefined,
  query: PickQuery,
  waits: boolean,
): UpstreamLease {
  if (lease !== undefined) return lease;
  if (query.refusal !== undefined) throw query.refusal;
  const { anyTarget } = context.upstreams;
  if (waits && anyTarget !== undefined) {
    return UpstreamLease.withoutPlace(context, query, anyTarget);
  }
  throw unavailable(context.upstreams, true);
}

/**
 * Waits for a place. If the exchange is aborted meanwhile, its query leaves the queue. If the query gets a place
 * nevertheless, the place is given back.
 */
function orRelease(
  picking: Promise<UpstreamLease | undefined>,
  scope: Scope,
  query: PickRequest | undefined,
): Promise<UpstreamLease | undefined> {
  const since = performance.now();
  const waiting = scope.orAbort(picking, () => query?.explainTimeout?.());
  return waiting
    .catch((error: unknown) => {
      query?.leave?.();
      void picking.then((late) => late?.release()).catch(() => {});
      throw error;
    })
    .finally(() => {
      if (scope.observer !== undefined) scope.observer.queued += performance.now() - since;
    });
}

function unavailable(upstreams: Upstreams, unprocessed: boolean): ProxyError {
  const error = new ProxyError("destination_unavailable", {
    message: "no upstream can take the request",
    unprocessed,
    retryAfter: upstreams.retryAfter?.() ?? 1,
  });
  placeError(error, upstreams);
  return error;
}

/**
 * Whether the client's connection has TLS, according to the forwarding fields of the upstream request. They contain what a
 * trusted proxy has reported about the connection.
 */
function isSecure({ headers }: UpstreamRequest, client: Incoming): boolean {
  const scheme =
    getHeader(headers, "x-forwarded-proto") ??
    /^(?:"(?:[^"\\]|\\.)*"|[^",])*?\bproto="?(\w+)/i.exec(
      getHeader(headers, "forwarded") ?? "",
    )?.[1];
  return scheme === undefined ? client.secure : /^[\t ]*(?:https|wss)\b/i.test(scheme);
}

/** Sends a request to the upstream that was picked for it. */
function sendLeased(
  next: Send,
  request: UpstreamRequest,
  scope: Scope,
  lease: UpstreamLease,
): Promise<UpstreamResponse> {
  const left = lease.options.retry.attempts;
  if (lease.use()) return new LeasedAttempt(next, request, lease, left).send(scope);
  // The lease has no place left: an interceptor has sent the request a second time, or the request has waited (`wait`). So pick
  // an upstream again.
  return lease.pickAgain(scope).then((own) => {
    own.use();
    const again = { ...request, upstream: own.upstream };
    return new LeasedAttempt(next, again, own, left, true).send(scope);
  });
}

/**
 * Waits for the place of a further attempt, and for the delay before it.
 * @param query the query that waits for the place; undefined if the place was picked earlier
 */
async function awaitPlace(
  picked: UpstreamLease | Promise<UpstreamLease | undefined>,
  delay: number,
  scope: Scope,
  query: PickRequest | undefined,
): Promise<UpstreamLease | undefined> {
  const lease = picked instanceof Promise ? await orRelease(picked, scope, query) : picked;
  if (lease === undefined || delay === 0) return lease;
  try {
    await pause(delay, scope);
    return lease;
  } catch (thrown) {
    lease.release();
    throw thrown;
  }
}

/**
 * One attempt at an upstream. It reports its outcome to the upstreams, and sends the request again where the rule in
 * repeat.ts allows it: to the same upstream on a new connection, or else to another one, if the upstreams' budget allows
 * that as well.
 *
 * An async function keeps all of its variables in memory while it waits, so only the methods for failures are async.
 */
class LeasedAttempt {
  readonly #next: Send;
  readonly #request: UpstreamRequest;
  readonly #lease: UpstreamLease;
  /** How often the request may be sent again. */
  readonly #left: number;
  /** Whether the upstream of this attempt may differ from the one that was picked first. */
  readonly #isElsewhere: boolean;
  readonly #startedAt = performance.now();
  /** The query for another upstream, after `attemptTimeout`. It is made once a retry was taken from the budget. */
  #nextQuery: PickRequest | undefined;
  /** The lease of the next attempt, which replaces this attempt after `attemptTimeout`. */
  #nextLease: UpstreamLease | undefined;
  #deadline: Deadline | undefined;
  #isOver = false;
  #isUploaded = true;

  constructor(
    next: Send,
    request: UpstreamRequest,
    lease: UpstreamLease,
    left: number,
    isElsewhere = false,
  ) {
    this.#next = next;
    this.#request = request;
    this.#lease = lease;
    this.#left = left;
    this.#isElsewhere = isElsewhere;
  }

  /** Sends the request; if the attempt fails, sends the request again, to the same upstream or to another one. */
  send(scope: Scope): Promise<UpstreamResponse> {
    scope.lease = this.#lease;
    const { attemptTimeout, handsBodiesThrough } = this.#lease.options;
    if (this.#left > 0 && attemptTimeout > 0) {
      this.#deadline = new Deadline(attemptTimeout, () => {
        // If a policy of the app throws, this attempt continues.
        this.#tryAnother(scope, attemptTimeout).catch(() => {});
      });
    }
    try {
      return this.#next(this.#watchUpload(handsBodiesThrough), scope).then(
        (response) => this.#takeResponse(response, scope),
        (thrown: unknown) => this.#takeError(thrown, scope),
      );
    } catch (thrown) {
      return this.#takeError(thrown, scope);
    }
  }

  #takeResponse(
    received: UpstreamResponse,
    scope: Scope,
  ): UpstreamResponse | Promise<UpstreamResponse> {
    const { handsBodiesThrough } = this.#lease.options;
    this.#lease.noteResponse();
    this.#report(received.status, undefined, false);
    const upstream = this.#isElsewhere ? this.#lease.upstream : received.upstream;
    const response = reportWhenOver(received, this.#lease, handsBodiesThrough, upstream);
    if (this.#lease.options.retry.statusCodes.includes(received.status)) {
      const again = this.#nextAttempt(scope, "status", "another");
      if (again !== undefined) return this.#sendElsewhere(again, scope, response, undefined);
    }
    this.#nextLease?.release();
    return response;
  }

  async #takeError(thrown: unknown, scope: Scope): Promise<UpstreamResponse> {
    const error = toProxyError(thrown);
    const outcome = outcomeOf(error);
    // If the same upstream gets the request again, the new attempt takes over this lease, so that the two count as one.
    const same = this.#nextAttempt(scope, outcome, "same");
    if (same !== undefined) return this.#sendAgain(same, scope);
    if (this.#isRefusedLook(scope, outcome)) {
      this.#stop();
      this.#lease.reportUnsent();
    } else {
      this.#report(undefined, error, true);
    }
    const again = this.#nextAttempt(scope, outcome, "another");
    if (again !== undefined) return this.#sendElsewhere(again, scope, undefined, thrown);
    this.#nextLease?.release();
    throw thrown;
  }

  /**
   * Whether the attempt was a look (`Scope.isLook`) at an upstream that is not back yet, and does not count as a failure: looks
   * alone would eject the upstream, and its return would not be noticed. With `retry: false`, the look counts: it asks only
   * one upstream, and only the ejection of that upstream makes the next look ask another.
   */
  #isRefusedLook({ isLook }: Scope, outcome: Outcome): boolean {
    const isRefused = outcome === "refused" || outcome === "unresolved";
    return isLook && isRefused && this.#lease.options.retry.attempts > 0;
  }

  /** Reports the response, or the error. */
  #report(status: number | undefined, error: ProxyError | undefined, isOver: boolean): void {
    this.#stop();
    const latency = performance.now() - this.#startedAt;
    this.#lease.report(status, error, latency, isOver, this.#isUploaded);
  }

  /** Ends the time limit of the attempt, and removes the query for the next attempt from the queue if it waits there. */
  #stop(): void {
    this.#deadline?.clear();
    this.#isOver = true;
    if (this.#nextLease === undefined) this.#nextQuery?.leave?.();
  }

  #nextAttempt(scope: Scope, outcome: Outcome, place: RetryPlace): NextAttempt | undefined {
    if (scope.error !== undefined) return undefined;
    return nextAttempt(this.#request, outcome, place, this.#lease.options.retry, this.#left);
  }

  /** Sends the request to the same upstream. The new attempt keeps the place of this one. */
  async #sendAgain({ request, left }: NextAttempt, scope: Scope): Promise<UpstreamResponse> {
    this.#stop();
    this.#nextLease?.release();
    const { delay } = this.#lease.options.retry;
    const again = scope.again();
    try {
      if (delay > 0) await pause(delay, again);
      if (again.error !== undefined) throw again.error;
    } catch (thrown) {
      this.#report(undefined, toProxyError(thrown), true);
      throw thrown;
    }
    const lease = this.#lease;
    return new LeasedAttempt(this.#next, request, lease, left, this.#isElsewhere).send(again);
  }

  /** Sends the request to another upstream, if one can take it. */
  async #sendElsewhere(
    next: NextAttempt,
    scope: Scope,
    response: UpstreamResponse | undefined,
    thrown: unknown,
  ): Promise<UpstreamResponse> {
    const lease = this.#lease;
    let query: PickRequest | undefined;
    let picked: ReturnType<UpstreamLease["pickAnother"]> = this.#nextLease;
    // With `wait`, a request that no upstream has processed spends no retry budget. Otherwise, without budget left, the request
    // would wait although another upstream may take it.
    const isFree = this.#lease.options.waits && next.left === this.#left;
    if (picked === undefined && (isFree || this.#nextQuery !== undefined || lease.spendRetry())) {
      query = lease.newQuery(scope);
      try {
        picked = lease.pickAnother(query);
      } catch (exception) {
        // Otherwise, the response would keep its place and its connection.
        if (response !== undefined) discardBody(response);
        throw exception;
      }
    }
    if (picked === undefined) {
      if (response === undefined) throw thrown;
      return response;
    }
    // Discard the response before the wait, because this attempt keeps its place until the response is over. Otherwise, two
    // requests could each wait for the place that the other has.
    if (response !== undefined) discardBody(response);
    const again = scope.again();
    const following = await awaitPlace(picked, this.#lease.options.retry.delay, again, query);
    if (following === undefined) throw response === undefined ? thrown : lease.unavailable();
    // A target that the app implements may pick the same upstream again. That counts as a retry; otherwise, the request
    // could be sent without end.
    const isCounted = next.left < this.#left || lease.hasTried(following);
    if (isCounted && this.#left === 0) {
      following.release();
      throw thrown;
    }
    following.use();
    const left = isCounted ? this.#left - 1 : this.#left;
    const request = { ...next.request, upstream: following.upstream };
    return new LeasedAttempt(this.#next, request, following, left, true).send(again);
  }

  /**
   * Called after `attemptTimeout`. Picks another upstream, and stops this attempt once there is a place at that upstream.
   */
  async #tryAnother(scope: Scope, limit: number): Promise<void> {
    if (this.#nextAttempt(scope, "abandoned", "another") === undefined) return;
    if (!this.#lease.spendRetry()) return;
    this.#nextQuery = this.#lease.newQuery(scope);
    const another = await this.#lease.pickAnother(this.#nextQuery);
    // During the wait for a place, more of the body may have been sent than is kept for another attempt.
    const isLast = this.#nextAttempt(scope, "abandoned", "another") === undefined;
    if (this.#isOver || isLast || another === undefined) return another?.release();
    this.#nextLease = another;
    scope.failAttempt(attemptTooLong(limit));
  }

  /**
   * Returns the request with a body that records whether all of it was sent. A body in memory counts as sent; a stream that the
   * transport passes on unread counts as unsent.
   */
  #watchUpload(handsBodiesThrough: boolean): UpstreamRequest {
    const request = this.#request;
    if (request.body === null || request.body.replay !== undefined) return request;
    this.#isUploaded = false;
    return handsBodiesThrough ? request : { ...request, body: this.#watch(request.body) };
  }

  /** A separate method because of its closure; see `observe` in pipeline.ts. */
  #watch(body: BodySource): BodySource {
    const bodyOver = (reason?: unknown): void => void (this.#isUploaded = reason === undefined);
    return new WatchedBody(body, { bodyOver });
  }
}

/**
 * Returns the response with a body or a tunnel whose end is reported to the upstreams. A response without either is reported
 * as over immediately, as is one whose body has arrived, or whose body the transport passes on unread.
 * @param upstream the upstream that has responded, if it is not the one that was picked first
 */
function reportWhenOver(
  response: UpstreamResponse,
  lease: UpstreamLease,
  handsBodiesThrough: boolean,
  upstream: Upstream | undefined,
): UpstreamResponse {
  const { body, tunnel } = response;
  if (tunnel !== undefined) return { ...response, tunnel: watchTunnel(tunnel, lease), upstream };
  if (body !== null && !handsBodiesThrough && !hasArrived(body)) {
    return { ...response, body: new WatchedBody(body, lease), upstream };
  }
  lease.bodyOver();
  return upstream === undefined ? response : { ...response, upstream };
}

/** Whether all bytes of a body are here, as those of most small bodies are: the upstream has then nothing more to do. */
function hasArrived({ length, buffered, error }: BodySource): boolean {
  return length !== undefined && length === buffered && error === undefined;
}

function watchTunnel(tunnel: Tunnel, lease: UpstreamLease): Tunnel {
  return new WatchedTunnel(tunnel, (reason) => lease.bodyOver(reason));
}
