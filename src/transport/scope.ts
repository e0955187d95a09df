import { type ErrorPlace, clientGone, placeError, ProxyError, toProxyError } from "../error.ts";
import type { HeaderList } from "../fields/headers.ts";
import { cleanInterimHeaders } from "../fields/hopbyhop.ts";
import { scopeEnded } from "../misuse.ts";
import type { Upstream } from "../target/target.ts";
import type { Claim } from "./claim.ts";
import type { UpstreamRequest, UpstreamResponse } from "./message.ts";

/** The facts that a transport reports about the connection of an attempt. */
export interface ObservedConnection {
  /** Whether the connection has carried an earlier request. */
  readonly isReused: boolean;
  /** Milliseconds that it took to establish the connection; undefined until then. */
  readonly connectDuration: number | undefined;
}

/**
 * Listens for a client's disconnection. An `AbortSignal` accepts this object as a listener, too, so that a request
 * needs no extra function.
 */
export interface Listener {
  /** Called when the client has disconnected. */
  handleEvent(): void;
}

/** A client, which may disconnect before it has the whole response. */
export interface Client {
  /** The address or network of the client, by which waiting requests take turns; see `Claim`. */
  readonly clientKey?: string | undefined;
  /** The address of the client, for connections that name their client (`proxyProtocol`). */
  readonly clientAddress?: string | undefined;
  /**
   * Milliseconds to wait before the scope calls `listen`, where listening is expensive; undefined to listen from the
   * start.
   */
  readonly listenAfter?: number | undefined;
  /** Calls the listener once when the client disconnects, or immediately if the client has disconnected already. */
  listen(listener: Listener): void;
  /** Removes the listener. */
  unlisten(listener: Listener): void;
  /**
   * @internal Counts the exchange with the client until it sends no further request. Undefined afterwards, and where
   * exchanges are not counted.
   */
  running?: RunningExchanges | undefined;
  /**
   * Passes an interim response (1xx, except 101) on to the client. Undefined where the server cannot send one.
   *
   * If the function throws or rejects, the exchange is aborted with that reason.
   */
  inform?: ((status: number, headers: HeaderList) => void | Promise<unknown>) | undefined;
}

/** The part of a transport's attempt that the scope calls to stop the attempt. */
export interface AbortTarget {
  /** Stops the attempt with this reason. A further call, after the attempt has ended, must do nothing. */
  fail(error: ProxyError): void;
  /**
   * @internal Returns the error to use if a time limit passes and the upstream is not at fault; undefined for the usual
   * error.
   */
  explainTimeout?: (() => ProxyError | undefined) | undefined;
  /** @internal Returns whether bytes of the request body were sent since its last call; see `watchProgress`. */
  hasProgressed?: (() => boolean) | undefined;
}

/**
 * Sends a request to an upstream. Resolves to the response when its headers have arrived.
 *
 * A scope serves one attempt: each further attempt takes a new scope from `scope.again()`.
 */
export type Send = (request: UpstreamRequest, scope: Scope) => Promise<UpstreamResponse>;

/** Reports failures of exchanges to the developer of the app. */
export type LogFailure = (error: ProxyError) => void;

/** Observes the attempts of an exchange, for `onRequestEnd` and the tools of a runtime. */
export interface ScopeObserver {
  /** Milliseconds that the request has waited for a place or a connection without being sent. */
  queued: number;
  /** Milliseconds that the request has waited for its upstream to come back (`wait`). */
  held: number;
  /** The number of attempts, without the refused ones after which the request has waited for its upstream (`wait`). */
  attempts: number;
  /** Called when an attempt begins. Returns the request with a body whose bytes are counted. */
  beginAttempt(request: UpstreamRequest, handsBodiesThrough?: boolean): UpstreamRequest;
  /** Called when the transport has a connection for the attempt, which may still have to be established. */
  connectionAssigned(connection: ObservedConnection): void;
  /** Called when the response headers have arrived. */
  headersReceived(): void;
}

/**
 * A place that is reserved for an attempt at one of several upstreams. It is used once: the attempt takes it, or
 * `release` gives it back.
 */
export interface Lease {
  /** The upstream at which the place is. */
  readonly upstream: Upstream;
  /** The target that the upstream belongs to. */
  readonly group: ErrorPlace;
  /** Whether an attempt has taken the place, or it was given back. */
  readonly isUsed: boolean;
  /** The attempt that has the place at present. Set only by transports that measure the speed of clients. */
  attempt?: Claim | undefined;
  /** Gives the place back, unless an attempt has taken it. */
  release(): void;
  /** Removes, in place, the fields of a request that are only for the balancer, such as its sticky cookie. */
  cut(request: UpstreamRequest): void;
  /**
   * Adds fields, such as a sticky cookie, to the response, in place, so that the client's next requests go to the same
   * upstream.
   */
  keepClient(response: UpstreamResponse, request: UpstreamRequest): void;
  /** Sends the request to the upstream, and to others if the attempt fails. */
  send(next: Send, request: UpstreamRequest, scope: Scope): Promise<UpstreamResponse>;
}

/**
 * The maximum number of interim responses (1xx) to one request. Each one is parsed, so that without a limit an upstream
 * could keep the event loop busy until the deadline. Every transport of this package has this limit.
 */
export const MAX_INTERIM = 64;

/**
 * The scope of one attempt to get a response. It aborts the exchange when a deadline passes, the client disconnects, or
 * the caller's signal is aborted.
 *
 * A transport must call three methods: `onAbort` with the object that stops the attempt, `touch` for each chunk that it
 * sends, and `end` when the attempt is over. It may call two more: `connectionAssigned` with its connection, and
 * `interimReceived` for each interim response. A `ResponseBody` calls `touch` for each chunk that it receives, and `end`
 * after the last one. After `end`, the scope has no timer and no listener.
 *
 * A scope serves one attempt: `again()` returns the scope of the next attempt, with the remaining time.
 */
export class Scope implements Listener {
  #target: AbortTarget | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;
  /**
   * The time at which the timer fires, on the clock of `performance.now()`; `Infinity` if the limit has passed, and the timer
   * only lets pending reads run before the exchange is aborted (see `expire`).
   */
  #firesAt = 0;
  /** The current time limit in milliseconds; 0 for none. */
  #limit = 0;
  /** The time from which the limit counts: that of the last chunk, or when the limit began, was paused or was resumed. */
  #lastChunkAt = 0;
  /** The value of `#lastChunkAt` when the response headers arrived; undefined until then. */
  #lastRequestChunkAt: number | undefined;
  #isIdlePaused = false;
  /**
   * The reader of the response body for which the time limit is paused. The pause begins with the first read, because no event
   * reports that an app has dropped a response without reading it.
   */
  reader: { readonly isUnread?: boolean } | undefined;
  #isEnded = false;
  #isListening = false;
  #error: ProxyError | undefined;
  /** The scope of the next attempt. */
  #next: Scope | undefined;
  /** @internal The observer of all attempts; undefined if nothing observes the exchange. */
  observer: ScopeObserver | undefined;
  /**
   * @internal Whether the request has waited for its upstream (`wait`), and is now sent to find out whether that upstream is
   * back. A refusal of this attempt counts as a failure of the upstream only with `retry: false`.
   */
  isLook = false;
  /** @internal The place of the attempt at one of several upstreams; undefined if the target has a single one. */
  lease: Lease | undefined;
  /** @internal The upstream that the request was sent to last; undefined until it is sent. */
  upstream: Upstream | undefined;
  /** @internal Reports a failure of the exchange to the developer of the app; undefined where nothing is reported. */
  log: LogFailure | undefined;
  /** @internal Whether another proxy may send the request instead, as long as no upstream has processed a part of it. */
  isMovable = false;
  /** @internal */
  readonly client: Client;
  /** @internal Gets the interim responses; by default, this is the client. Undefined for an additional request (`fork`). */
  informed: Pick<Client, "inform"> | undefined;
  readonly #timeout: number;
  readonly #idleTimeout: number;
  readonly #signal: AbortSignal | undefined;
  /** Milliseconds to open a connection for the attempt, 0 for no limit; undefined for the limit of the transport. */
  readonly connectTimeout: number | undefined;

  /**
   * Starts the deadline for the response headers.
   * @param timeout ms until the response headers arrive; 0 for no limit
   * @param idleTimeout ms between two chunks of the response body; 0 for no limit
   * @param connectTimeout ms to open a connection; undefined for the transport's own limit
   */
  constructor(
    client: Client,
    timeout: number,
    idleTimeout: number,
    signal?: AbortSignal,
    connectTimeout?: number,
  ) {
    this.client = client;
    this.informed = client;
    this.#timeout = timeout;
    this.#idleTimeout = idleTimeout;
    this.#signal = signal;
    this.connectTimeout = connectTimeout;
    if (client.listenAfter === undefined) this.#listen();
    this.#arm(timeout);
    if (signal) {
      if (signal.aborted) this.handleEvent();
      // A client that has already disconnected has ended the scope, and nothing would remove the listener.
      else if (!this.#isEnded) signal.addEventListener("abort", this);
    }
  }

  // ── for transports ──

  /**
   * Sets the attempt that an abort stops; stops it immediately if the exchange was aborted before.
   * @throws MisuseError if the scope has ended, because nothing would stop the attempt
   */
  onAbort(target: AbortTarget): void {
    if (this.#next !== undefined) return this.#next.onAbort(target);
    if (this.#error !== undefined) return target.fail(this.#error);
    if (this.#isEnded) throw scopeEnded();
    this.#target = target;
  }

  /**
   * Begins to listen for the client's disconnect before `listenAfter` has passed. A transport calls it when a request
   * has to wait for a connection, because the request must not be sent if the client disconnects during the wait.
   */
  listenNow(): void {
    if (this.#next !== undefined) return this.#next.listenNow();
    if (!this.#isListening && !this.#isEnded) this.#listen();
  }

  /** Reports the connection that carries the attempt, for `onRequestEnd`. */
  connectionAssigned(connection: ObservedConnection): void {
    this.observer?.connectionAssigned(connection);
  }

  /**
   * Restarts the time limit. Called when a chunk of the request body was sent, or a chunk of the response body has
   * arrived.
   */
  touch(): void {
    if (this.#limit > 0) this.#lastChunkAt = performance.now();
  }

  /**
   * @internal Makes the timer check the progress of a request body that the runtime moves by itself, because no code can
   * call `touch` for its chunks. The time limit restarts when a check sees progress.
   * @param hasProgressed returns whether bytes were sent since its last call; undefined to end the checks
   */
  watchProgress(hasProgressed: (() => boolean) | undefined): void {
    if (this.#target !== undefined) this.#target.hasProgressed = hasProgressed;
    this.touch();
    const wait = waitForProgress(this.#limit);
    if (wait > 0 && this.#firesAt > this.#lastChunkAt + wait) this.#start(wait, this.#lastChunkAt);
  }

  /**
   * Passes an interim response on to the client, without the fields that must not be forwarded. The
   * transport limits the number of interim responses, and does not pass a 101, which ends HTTP on a connection.
   */
  interimReceived(status: number, headers: HeaderList): void {
    const { informed } = this;
    if (this.#isEnded || informed?.inform === undefined) return;
    try {
      const informing = informed.inform(status, cleanInterimHeaders(headers));
      if (informing !== undefined) informing.catch((thrown: unknown) => this.abort(thrown));
    } catch (thrown) {
      this.abort(thrown);
    }
  }

  /** Ends the scope. Called when the response is complete, or the attempt has failed. */
  end(): void {
    if (this.#isEnded) return;
    this.#isEnded = true;
    this.#target = undefined;
    clearTimeout(this.#timer);
    this.#limit = 0;
    if (this.#isListening) this.client.unlisten(this);
    this.#signal?.removeEventListener("abort", this);
  }

  // ── for the core, and its own transports ──

  /** The reason why the last attempt was aborted; undefined if it was not. */
  get error(): ProxyError | undefined {
    return this.#next === undefined ? this.#error : this.#next.error;
  }

  /** Whether the scope of the last attempt has ended, because the attempt is over or was aborted. */
  get isEnded(): boolean {
    return this.#next === undefined ? this.#isEnded : this.#next.isEnded;
  }

  /** Whether the response headers of the last attempt have arrived. */
  get hasHeaders(): boolean {
    return this.#next?.hasHeaders ?? this.#lastRequestChunkAt !== undefined;
  }

  /**
   * Replaces the deadline by the idle timeout, because the response headers have arrived.
   * @param isEventStream whether the body is an event stream, which gets no idle timeout, because it may be silent for
   * any time
   */
  headersReceived(isEventStream: boolean): void {
    if (this.#next !== undefined) return this.#next.headersReceived(isEventStream);
    this.#lastRequestChunkAt = this.#lastChunkAt;
    this.observer?.headersReceived();
    this.#arm(this.#limitOf(isEventStream));
  }

  /**
   * Pauses or resumes the time limit. It is paused while the exchange waits for the client (to read the response body, or to
   * receive the responses to its earlier requests), and while it waits for its upstream to come back (`wait`).
   * @param reader the reader of the response body; the limit is not paused before the reader has begun to read
   */
  pauseIdle(isPaused: boolean, reader?: { readonly isUnread?: boolean }): void {
    this.#isIdlePaused = isPaused;
    this.reader = reader;
    this.touch();
  }

  /** Whether the idle timeout or the caller's signal may abort the response body. */
  mayAbort(isEventStream: boolean): boolean {
    return this.#limitOf(isEventStream) > 0 || this.#signal !== undefined;
  }

  /** Aborts the exchange with this reason, unless it has ended already. */
  abort(reason: unknown): void {
    if (this.#next !== undefined) return this.#next.abort(reason);
    if (this.#isEnded) return;
    const error = (this.#error = toProxyError(reason));
    const target = this.#target;
    this.end();
    // Count an aborted exchange no longer, because its interceptors may never settle.
    this.client.running?.aborted(this);
    target?.fail(error);
  }

  /**
   * Called when the exchange has failed, perhaps in the middle of a response: notes the upstream in the error, and reports it.
   */
  failed(error: ProxyError): void {
    if (this.#next !== undefined) return this.#next.failed(error);
    placeError(error, this.upstream);
    this.log?.(error);
  }

  /**
   * Ends the scope if no response body will do so, because the response has no body, or because an interceptor has made
   * the response and no transport has used the scope.
   */
  endUnused(hasBody: boolean): void {
    if (this.#next !== undefined) this.#next.endUnused(hasBody);
    else if (!hasBody || this.#target === undefined) this.end();
  }

  /**
   * Ends this scope, and returns the scope of the next attempt with the rest of the time for the response headers. An
   * attempt that still runs is aborted: use `fork()` to run two attempts at the same time.
   */
  again(): Scope {
    // The next attempt keeps the lease of this scope.
    if (this.#next !== undefined) return Object.assign(this.#next.again(), { lease: this.lease });
    const target = this.#target;
    this.end();
    // Stop an attempt that still runs, because it would continue without a deadline, even after the client has disconnected.
    target?.fail(superseded());
    const left =
      (this.#lastRequestChunkAt ?? this.#lastChunkAt) + this.#timeout - performance.now();
    const timeout = this.#timeout > 0 ? Math.max(1, Math.ceil(left)) : 0;
    const next = (this.#next = this.#like(timeout));
    next.observer = this.observer;
    next.lease = this.lease;
    next.isLook = this.isLook;
    next.upstream = this.upstream;
    next.log = this.log;
    next.informed = this.informed;
    next.isMovable = this.isMovable;
    // Listen without the delay of `listenAfter`, because the next attempt must not be sent if the client has
    // disconnected.
    next.listenNow();
    return next;
  }

  /**
   * Returns a scope for an additional request, such as one that an interceptor sends to an authorization service. The scope has
   * its own deadlines. It has the same client, but passes no interim responses on to the client.
   */
  fork(): Scope {
    return Object.assign(this.#like(this.#timeout), { informed: undefined });
  }

  #like(timeout: number): Scope {
    return new Scope(this.client, timeout, this.#idleTimeout, this.#signal, this.connectTimeout);
  }

  /** Stops the present attempt with this reason. The exchange continues: another attempt may follow. */
  failAttempt(error: ProxyError): void {
    if (this.#next !== undefined) this.#next.failAttempt(error);
    else this.#target?.fail(error);
  }

  /**
   * Waits for a promise. Rejects with the reason for the abort as soon as the exchange is aborted.
   * @param explainTimeout returns the error to use if a time limit passes during the wait
   */
  orAbort<T>(work: Promise<T>, explainTimeout?: () => ProxyError | undefined): Promise<T> {
    return new Promise((resolve, reject) => {
      const waiting: AbortTarget = { fail: reject, explainTimeout };
      this.onAbort(waiting);
      work
        .finally(() => {
          if (this.#target === waiting) this.#target = undefined;
        })
        .then(resolve, reject);
    });
  }

  /** Aborts the exchange. Called when the client has disconnected, or the caller's signal was aborted. */
  handleEvent(): void {
    this.abort(clientGone(this.#signal?.reason));
  }

  #limitOf(isEventStream: boolean): number {
    return isEventStream ? 0 : this.#idleTimeout;
  }

  #listen(): void {
    this.#isListening = true;
    this.client.listen(this);
  }

  #arm(limit: number): void {
    if (this.#isEnded) return;
    this.#limit = limit;
    const wait = this.#waitOf(limit);
    if (wait === Infinity) {
      clearTimeout(this.#timer);
      this.#timer = undefined;
      return;
    }
    this.#lastChunkAt = performance.now();
    // Keep an earlier timer: `expire()` restarts it for the remainder, and most exchanges end before it fires.
    if (this.#timer === undefined || this.#firesAt > this.#lastChunkAt + wait) {
      this.#start(wait, this.#lastChunkAt);
    }
  }

  /** Returns the milliseconds until the limit passes or listening begins, whichever is first. */
  #waitOf(limit: number): number {
    const wait = limit === 0 ? Infinity : limit;
    if (this.#isListening) return wait;
    return Math.min(wait, this.client.listenAfter ?? Infinity);
  }

  #start(wait: number, now: number): void {
    clearTimeout(this.#timer);
    this.#firesAt = now + wait;
    this.#timer = setTimeout(expire, wait, this);
  }

  /**
   * @internal Called when the timer fires. Begins to listen for the client's disconnect if `listenAfter` has delayed that.
   * Aborts the exchange if the limit has passed since the last chunk, and otherwise restarts the timer. A chunk only records
   * its time, because restarting the timer would cost more than the chunk.
   */
  expire(): void {
    if (!this.#isListening) this.#listen();
    if (this.#limit === 0) this.#timer = undefined;
    if (this.#limit === 0 || this.#isEnded) return;
    const now = performance.now();
    const hasProgressed = this.#target?.hasProgressed;
    if (hasProgressed?.()) this.#lastChunkAt = now;
    const isPaused = this.#isIdlePaused && this.reader?.isUnread !== true;
    const left = isPaused ? this.#limit : this.#lastChunkAt + this.#limit - now;
    if (left > 1) {
      return this.#start(hasProgressed ? Math.min(left, waitForProgress(this.#limit)) : left, now);
    }
    // The event loop may have been blocked, so let pending reads run before the exchange is aborted. Do that only once:
    // under overload, each turn of the event loop is long, and the exchange would never be aborted.
    if (this.#firesAt < Infinity) return this.#start(1, Infinity);
    const isStreaming = this.#lastRequestChunkAt !== undefined;
    const what = isStreaming ? "further chunk of the response" : "response headers";
    this.abort(
      this.#target?.explainTimeout?.() ??
        new ProxyError(isStreaming ? "connection_read_timeout" : "http_response_timeout", {
          message: `no ${what} within ${this.#limit} ms`,
        }),
    );
  }
}

/**
 * Returns the milliseconds between two checks of a request body's progress. A deadline passes at most this much too late:
 * bytes that are sent right after one check are noticed only by the next one.
 */
function waitForProgress(limit: number): number {
  return Math.min(500, limit / 8);
}

function expire(scope: Scope): void {
  scope.expire();
}

function superseded(): ProxyError {
  return new ProxyError("http_request_error", {
    status: 499,
    message: "another attempt was started",
  });
}

/** Counts the exchanges of a transport, so that those that have begun before `close` may still send requests. */
export class RunningExchanges {
  #count = 0;
  #isClosed = false;
  /** The callbacks that wait until no exchange is running. */
  #onNone: (() => void)[] = [];

  /** Counts a new exchange. Returns the value for `Client.running`, which is undefined after `close`. */
  begin(): this | undefined {
    if (this.#isClosed) return undefined;
    this.#count++;
    return this;
  }

  /** Called when a scope of a counted exchange is aborted. The abort of an additional request does not end the exchange. */
  aborted(scope: Scope): void {
    if (scope.informed !== undefined) this.end(scope.client);
  }

  /** Called when a counted exchange sends no further request. */
  end(client: Client): void {
    client.running = undefined;
    this.#count--;
    if (this.#isClosed) this.#callIfNone();
  }

  /** Whether the exchange of a scope may send requests. */
  admits(scope: Scope): boolean {
    return !this.#isClosed || scope.client.running === this;
  }

  /** Admits no further exchange. Resolves when the others send no further requests, or when `destroy` is called. */
  close(): Promise<void> {
    this.#isClosed = true;
    return new Promise((resolve) => {
      this.#onNone.push(resolve);
      this.#callIfNone();
    });
  }

  destroy(): void {
    this.#isClosed = true;
    for (const onNone of this.#onNone.splice(0)) onNone();
  }

  #callIfNone(): void {
    if (this.#count === 0) this.destroy();
  }
}
