/**
 * The option `wait`: requests wait for an upstream that refuses connections, usually because it restarts.
 *
 *     the upstream refuses → its gate closes → after a pause, one waiting request is sent, as a look at the upstream
 *        ↑ longer pause ← refused again ←——————————┤
 *     the gate is removed once no request waits ← each answer lets two further requests go
 */
import { BytesBody } from "../body/bytes.ts";
import { ResumableBody } from "../body/resumable.ts";
import { type BodySource, mayGoUnread } from "../body/source.ts";
import { type ErrorPlace, placeError, placeOf, ProxyError } from "../error.ts";
import type { WaitChange } from "../options/observationoptions.ts";
import type { RetryOptions } from "../options/repeatoptions.ts";
import { RecentMap } from "../recentmap.ts";
import type { Upstream } from "../target/target.ts";
import { AddressQueue } from "../transport/addressqueue.ts";
import type { Place, Waiting } from "../transport/claim.ts";
import { poolClosed } from "../transport/closing.ts";
import type { UpstreamRequest, UpstreamResponse } from "../transport/message.ts";
import type { Interceptor } from "../transport/port.ts";
import type { Scope, Send } from "../transport/scope.ts";
import { codeOf } from "../transport/socketerror.ts";
import { callListener } from "./observation.ts";
import { nextAttempt, type NextAttempt, type Outcome, outcomeOf } from "./repeat.ts";
import { pause } from "./send.ts";

/**
 * The pause before the first look at an upstream, in milliseconds. Each refused look doubles the pause, up to `MAX_PAUSE`, so
 * the proxy notices at most `MAX_PAUSE` later that the upstream is back. However many requests wait, a look takes one
 * connection.
 */
const FIRST_PAUSE = 50;
const MAX_PAUSE = 250;
/** The maximum number of requests that wait for one upstream. */
const MAX_WAITING = 1_024;
/** The maximum number of upstreams of one target that a message names. */
const MAX_NAMED = 3;
/**
 * How many bytes of a body are kept, to send it again if the upstream reports over HTTP/2 that it has not processed the
 * request. By then, the proxy may have read the initial window of a stream (65,535 bytes, RFC 9113 §6.9.2) and one more chunk.
 */
const KEPT = 131_072;
/** The outcomes after which the upstream has processed nothing of the request. */
const UNPROCESSED: ReadonlySet<Outcome> = new Set<Outcome>([
  "refused",
  "unresolved",
  "unprocessed",
]);

/** The outcomes of requests that failed before they had a connection. */
const UNCONNECTED: ReadonlySet<Outcome> = new Set<Outcome>(["refused", "unresolved", "unsent"]);
/** At least this number of upstreams that have answered are remembered; a `RecentMap` keeps up to twice as many. */
const MAX_ANSWERED = 1_000;

/** A request that waits. */
class HeldRequest implements Waiting {
  place: Place | undefined;
  readonly clientKey: string | undefined;
  /** Whether another proxy may send the request instead (`HeldRequests.move`). */
  readonly isMovable: boolean;
  /** Ends the wait: without a reason, the request is sent. */
  readonly settle: (reason?: ProxyError) => void;

  constructor(clientKey: string | undefined, isMovable: boolean, settle: HeldRequest["settle"]) {
    this.place = undefined;
    this.clientKey = clientKey;
    this.isMovable = isMovable;
    this.settle = settle;
  }
}

/**
 * The requests that wait for one upstream, or for one target with several upstreams. Each request that has left the queue
 * reports its result once: with `answered`, `refused` or `left`.
 */
class Gate {
  /** This queue only decides the order. `#allowed` limits how many requests run, so the queue has no places to share. */
  readonly #queue: AddressQueue<HeldRequest> = new AddressQueue(
    { taken: 0, holders: () => [] },
    { minRate: 0, minRateGrace: 5_000 },
  );
  /** The number of requests that have left the queue, and have no result yet. */
  #running = 0;
  /** The maximum of `#running`; 0 from a refusal until the pause is over. */
  #allowed = 0;
  #isAnswering = false;
  #isOver = false;
  #pause = FIRST_PAUSE;
  #timer: ReturnType<typeof setTimeout> | undefined;
  readonly #onOver: (isAnswering: boolean) => void;
  /** The number of requests that have begun to wait, including those that still wait. */
  count = 0;
  /** The error of the last request that was refused. */
  reason: ProxyError | undefined;

  /** @param onOver called when no request waits any longer; `isAnswering` says whether the upstream is back */
  constructor(onOver: (isAnswering: boolean) => void) {
    this.#onOver = onOver;
    this.#startPause();
  }

  get waiting(): number {
    return this.#queue.length;
  }

  /**
   * Waits until a request may be sent.
   * @param isMovable whether another proxy may send the request instead
   * @param refusal makes the error of a request that must not wait any longer
   * @throws ProxyError 503 when the time is over, or if too many requests wait; also the reason of an abort, `close` or `move`
   */
  async enter(
    scope: Scope,
    timeout: number,
    isMovable: boolean,
    refusal: (what: string) => ProxyError,
  ): Promise<void> {
    const { clientKey } = scope.client;
    if (this.#queue.length >= MAX_WAITING) {
      const full = refusal(`${MAX_WAITING} other requests wait for the upstream`);
      const surplus = this.#queue.findSurplus({ clientKey });
      if (surplus === undefined) throw full;
      this.#queue.remove(surplus);
      surplus.settle(full);
    }
    let mayGo = false;
    let held: HeldRequest | undefined;
    let timer: ReturnType<typeof setTimeout> | undefined;
    try {
      await scope.orAbort(
        new Promise<void>((resolve, reject) => {
          held = new HeldRequest(clientKey, isMovable, (reason) => {
            if (reason !== undefined) return reject(reason);
            mayGo = true;
            resolve();
          });
          timer = setTimeout(() => reject(refusal("the upstream has not come back")), timeout);
          this.#queue.add(held);
          this.#release();
        }),
      );
    } catch (thrown) {
      // The request was aborted in the same turn in which it left the queue, so it is not sent.
      if (mayGo) this.#running--;
      throw thrown;
    } finally {
      clearTimeout(timer);
      if (held !== undefined) this.#queue.remove(held);
      this.#release();
    }
  }

  /**
   * Called when a request has got a response, or has finally failed on a connection that did not break: the upstream is back.
   */
  answered(): void {
    this.#running--;
    this.#isAnswering = true;
    this.#allowed++;
    this.#pause = FIRST_PAUSE;
    this.#release();
  }

  /** Called when the upstream has refused a request, or a connection to it has broken: it is not back yet. */
  refused(): void {
    this.#running--;
    // Requests that were sent together are refused together. Only the first of them makes the pause longer.
    if (this.#isOver || this.#allowed === 0) return;
    this.#allowed = 0;
    this.#isAnswering = false;
    this.#pause = Math.min(this.#pause * 2, MAX_PAUSE);
    this.#startPause();
  }

  /** Called when the result of a request says nothing about the upstream. */
  left(): void {
    this.#running--;
    this.#release();
  }

  /** Ends the wait of all requests with this reason. */
  close(reason: ProxyError): void {
    for (const held of this.#queue.inOrder()) this.#settle(held, reason);
    this.#end();
  }

  /** Ends the wait of the requests that another proxy may send instead. */
  move(reason: ProxyError): void {
    for (const held of this.#queue.inOrder()) if (held.isMovable) this.#settle(held, reason);
    this.#release();
  }

  #settle(held: HeldRequest, reason: ProxyError): void {
    this.#queue.remove(held);
    held.settle(reason);
  }

  /**
   * Starts a pause, after which one more request may be sent. A request that takes longer than the pause does not keep the
   * others waiting: it may be a long upload, or an event stream.
   */
  #startPause(): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      this.#allowed = this.#running + 1;
      this.#startPause();
      this.#release();
    }, this.#pause);
  }

  /**
   * Sends waiting requests until `#allowed` requests run. Ends the gate if none waits any longer, and the upstream has answered
   * or none runs.
   */
  #release(): void {
    while (this.#running < this.#allowed && this.#queue.length > 0) {
      const held = this.#queue.first as HeldRequest;
      this.#queue.serve(held);
      this.#running++;
      held.settle();
    }
    if (this.#queue.length === 0 && (this.#isAnswering || this.#running === 0)) this.#end();
  }

  #end(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    clearTimeout(this.#timer);
    this.#onOver(this.#isAnswering);
  }
}

/** Ends the wait of a request because another proxy sends it. */
class Moved extends ProxyError {
  /** Sends the request. `exchange` is an `Exchange`, a type of a higher layer. */
  readonly sendElsewhere: (exchange: object) => Promise<Response>;

  constructor(sendElsewhere: Moved["sendElsewhere"]) {
    super("destination_unavailable", { message: "another proxy sends the request" });
    this.sendElsewhere = sendElsewhere;
  }
}

/** The requests of a proxy that wait for their upstreams. */
export class HeldRequests {
  readonly #timeout: number;
  readonly #retry: Required<RetryOptions>;
  /** The gates, by the text of `keyOf` for one upstream, and by `Lease.group` for a target with several upstreams. */
  readonly #gates: Map<unknown, Gate> = new Map();
  /** The keys, as in `#gates`, of the upstreams that have answered. Their host names exist. */
  readonly #answered: RecentMap<unknown, true> = new RecentMap(MAX_ANSWERED);
  readonly #onWait: ((change: WaitChange) => unknown) | undefined;
  #fixedKey: unknown;
  /** The error of requests that wait when `close` is called; undefined before. */
  #closed: ProxyError | undefined;
  /** The reason why requests no longer wait here; undefined until `move` was called. */
  moved: Moved | undefined;

  /**
   * @param timeout milliseconds for which a request may wait
   * @param onWait called when requests begin to wait for an upstream, and when none waits any longer
   */
  constructor(
    timeout: number,
    retry: Required<RetryOptions>,
    onWait: ((change: WaitChange) => unknown) | undefined,
  ) {
    this.#timeout = timeout;
    this.#retry = retry;
    this.#onWait = onWait;
  }

  /** The number of requests that wait. */
  get size(): number {
    let size = 0;
    for (const gate of this.#gates.values()) size += gate.waiting;
    return size;
  }

  /**
   * Sets the only upstream of a proxy. Its host name comes from the options and not from a request, so requests may wait until
   * the name can be resolved (`#mayResolve`).
   */
  setFixedUpstream(upstream: Upstream): void {
    this.#fixedKey = keyOf(upstream);
  }

  /** Ends all waits with this reason. Later requests do not wait. */
  close(reason: ProxyError = poolClosed()): void {
    this.#closed = reason;
    for (const gate of this.#gates.values()) gate.close(reason);
  }

  /**
   * Lets another proxy send the requests that wait, except those that may have been processed in part.
   * @param sendElsewhere gets the exchange of a request, and sends the request in that proxy
   */
  move(sendElsewhere: Moved["sendElsewhere"]): void {
    this.moved = new Moved(sendElsewhere);
    for (const gate of this.#gates.values()) gate.move(this.moved);
  }

  /** Sends each request, and lets it wait if its upstream refuses connections. */
  readonly intercept: Interceptor = (next) => (request, scope) => {
    const { body } = request;
    // A body with `replay` is in memory already.
    if (body === null || body.replay !== undefined || mayGoUnread(request)) {
      return this.#send(next, request, scope, body);
    }
    const resumable = new ResumableBody(body, KEPT);
    const sent = this.#send(next, { ...request, body: resumable }, scope, body);
    return sent.finally(() => resumable.settle());
  };

  /** @param body the body that another proxy would send */
  #send(
    next: Send,
    request: UpstreamRequest,
    scope: Scope,
    body: BodySource | null,
  ): Promise<UpstreamResponse> {
    const { lease } = scope;
    const { upstream } = request;
    const key = lease?.upstream === upstream ? lease.group : keyOf(upstream);
    if (this.#gates.has(key)) {
      // Release the place at the upstream, so that the requests that the gate lets go can use it while this request waits.
      lease?.release();
      return this.#hold(next, request, scope, body, key, scope.observer?.attempts);
    }
    const attempts = scope.observer?.attempts;
    return next(request, scope).then(
      (response) => this.#noteAnswer(key, response),
      (thrown: unknown) => this.#hold(next, request, scope, body, key, attempts, thrown),
    );
  }

  /**
   * Lets a request wait until its upstream is back, and sends it.
   * @param attempts the number of attempts before this one; refused attempts do not count
   * @param thrown the error of the request, if it was sent already
   */
  async #hold(
    next: Send,
    request: UpstreamRequest,
    scope: Scope,
    body: BodySource | null,
    key: unknown,
    attempts: number | undefined,
    thrown?: unknown,
  ): Promise<UpstreamResponse> {
    const { lease } = scope;
    const { upstream } = request;
    const place = lease?.group.states && key === lease.group ? lease.group : upstream;
    const end = performance.now() + this.#timeout;
    let isMovable = scope.isMovable;
    let counting: Gate | undefined;
    let left = this.#retry.attempts;
    let gate = thrown === undefined ? this.#gates.get(key) : undefined;
    for (let isSent = thrown !== undefined; ; isSent = true) {
      if (isSent) {
        const again = this.#nextAttempt(request, scope, key, thrown, left);
        const isRefused = again?.left === left;
        if (isRefused || isBroken(thrown)) gate?.refused();
        else if (
          again !== undefined ||
          scope.error !== undefined ||
          UNCONNECTED.has(outcomeOf(thrown))
        ) {
          gate?.left();
        } else gate?.answered();
        if (again === undefined) throw thrown;
        // A request that has waited was sent to see whether the upstream is back: like those that still wait, it ends with `close`.
        if (this.#closed !== undefined) throw counting === undefined ? thrown : this.#closed;
        isMovable &&= UNPROCESSED.has(outcomeOf(thrown)) && isUntouched(body);
        // Only a refusal makes other requests wait. A connection may break because of the request on it.
        const opens = isRefused && !(isMovable && this.moved !== undefined);
        gate = opens ? this.#gateOf(key, place, thrown as ProxyError) : this.#gates.get(key);
        if (isRefused) {
          if (gate !== undefined) gate.reason = thrown as ProxyError;
          if (scope.observer !== undefined) scope.observer.attempts = attempts ?? 0;
        }
        ({ request, left } = again);
        scope = Object.assign(scope.again(), { lease });
      }
      if (gate !== undefined && gate !== counting) {
        counting = gate;
        gate.count++;
      }
      await this.#wait(scope, gate, Math.max(0, end - performance.now()), isMovable);
      try {
        scope.isLook = true;
        attempts = scope.observer?.attempts;
        const response = await next(request, scope);
        gate?.answered();
        return this.#noteAnswer(key, response);
      } catch (error) {
        thrown = error;
      }
    }
  }

  /** Waits until a request may be sent. The request's time limit is paused meanwhile. */
  async #wait(
    scope: Scope,
    gate: Gate | undefined,
    timeout: number,
    isMovable: boolean,
  ): Promise<void> {
    const since = performance.now();
    scope.listenNow();
    scope.pauseIdle(true);
    try {
      if (isMovable && this.moved !== undefined) throw this.moved;
      if (gate === undefined) await pause(FIRST_PAUSE, scope);
      else {
        const refuse = (what: string): ProxyError => this.#unavailable(what, gate.reason);
        await gate.enter(scope, timeout, isMovable, refuse);
      }
    } catch (thrown) {
      scope.end();
      throw thrown;
    } finally {
      if (scope.observer !== undefined) scope.observer.held += performance.now() - since;
    }
    scope.pauseIdle(false);
  }

  /**
   * Returns the attempt to make after a wait; undefined if the request must not wait. The attempt does not count
   * towards `attempts` if the upstream has not processed the request.
   */
  #nextAttempt(
    request: UpstreamRequest,
    scope: Scope,
    key: unknown,
    thrown: unknown,
    left: number,
  ): NextAttempt | undefined {
    if (scope.error !== undefined) return undefined;
    const outcome = outcomeOf(thrown);
    // `EACCES` means that this process may not use the socket, which is no sign of a restart.
    if (outcome === "refused" && codeOf((thrown as ProxyError).cause) === "EACCES")
      return undefined;
    if (outcome === "unresolved" && !this.#mayResolve(key, thrown as ProxyError)) return undefined;
    return nextAttempt(request, outcome, "later", this.#retry, left);
  }

  /**
   * Whether a name that cannot be found now may be found later. No request waits for a name that may come from a request,
   * because a client could choose names that do not exist.
   */
  #mayResolve(key: unknown, { cause }: ProxyError): boolean {
    const isFixed = typeof key === "object" || key === this.#fixedKey;
    return isFixed && (codeOf(cause) === "EAI_AGAIN" || this.#answered.get(key) === true);
  }

  #noteAnswer(key: unknown, response: UpstreamResponse): UpstreamResponse {
    if (this.#answered.get(key) === undefined) this.#answered.set(key, true);
    return response;
  }

  #gateOf(key: unknown, place: ErrorPlace, reason: ProxyError): Gate {
    const present = this.#gates.get(key);
    if (present !== undefined) return present;
    const since = performance.now();
    const upstream = namePlace(place);
    const report = (state: WaitChange["state"]): void => {
      const duration = performance.now() - since;
      const { code } = gate.reason ?? reason;
      callListener(this.#onWait, {
        upstream,
        state,
        reason: code.replaceAll("_", " "),
        requests: gate.count,
        duration,
      });
    };
    const gate = new Gate((isAnswering) => {
      this.#gates.delete(key);
      report(isAnswering ? "back" : "over");
    });
    this.#gates.set(key, gate);
    report("waiting");
    return gate;
  }

  /** Returns the error of a request that has waited without success. */
  #unavailable(what: string, cause: ProxyError | undefined): ProxyError {
    const message = `${what} (wait: ${this.#timeout} ms)`;
    const error = new ProxyError("destination_unavailable", { message, cause, retryAfter: 1 });
    if (cause !== undefined) placeError(error, placeOf(cause));
    return error;
  }
}

/** Creates the `HeldRequests` of a proxy. Only runtimes whose HTTP client reports refused connections use it. */
export function holdRequests(...given: ConstructorParameters<typeof HeldRequests>): HeldRequests {
  return new HeldRequests(...given);
}

/** Whether a body can still be sent from its beginning. */
function isUntouched(body: BodySource | null): boolean {
  return body === null || body.isUntouched === true || body instanceof BytesBody;
}

/** Names the upstream, or the upstreams, for which requests wait. */
function namePlace(place: ErrorPlace): string {
  const names = place.states?.().map(({ name }) => name);
  if (names === undefined) {
    return place.socketPath === undefined ? String(place.origin) : `unix:${place.socketPath}`;
  }
  const more = names.length - MAX_NAMED;
  return names.slice(0, MAX_NAMED).join(", ") + (more > 0 ? ` and ${more} more` : "");
}

/** Whether a connection has broken. The upstream may be stopping, so this does not show that it is back. */
function isBroken(thrown: unknown): boolean {
  const outcome = outcomeOf(thrown);
  return outcome === "stale" || outcome === "broken";
}

/** Returns a text that identifies the server of an upstream: its socket path or fixed address, if any, and its origin. */
function keyOf({ origin, socketPath, address }: Upstream): string {
  return `${socketPath ?? address ?? ""} ${origin}`;
}
