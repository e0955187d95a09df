import { clientGone, ProxyError } from "./error.ts";

/** Is told when the client has left: an object, which an `AbortSignal` takes too, and no function more for each request. */
export interface Listener {
  /** The client has left. */
  handleEvent(): void;
}

/** A client, which may leave before it has the whole response. */
export interface Client {
  /** Milliseconds after which it is early enough to listen, where to listen is dear. */
  readonly listenAfter?: number;
  /** Tells the listener once when the client leaves, at once if it has left already. */
  listen(listener: Listener): void;
  /** Forgets a listener. */
  unlisten(listener: Listener): void;
}

/** What an aborted exchange stops: an attempt of a transport. */
export interface AbortTarget {
  /** Stops the attempt with this reason. Called at most once. */
  fail(error: ProxyError): void;
}

/** Milliseconds by which a timer is late only where the event loop was blocked. */
const BLOCKED = 20;

/**
 * The scope of one attempt to get a response: its deadlines, the client's leaving and the caller's signal.
 *
 * A transport calls at most three methods: `onAbort` with what stops the attempt, `touch` for each chunk that it sends
 * (a `ResponseBody` does so for those that it receives), and `end` when nothing more will happen (a `ResponseBody` does
 * that, too). After the end no timer and no listener is left.
 *
 * A scope is good for one attempt: `again()` makes the next one's, with what is left of the time.
 */
export class Scope implements Listener {
  #target: AbortTarget | undefined;
  #timer: ReturnType<typeof setTimeout> | undefined;
  /** When the timer fires. */
  #firesAt = 0;
  #limit = 0;
  /** When a chunk was last sent or received. */
  #last = 0;
  /** When the last chunk of the request was sent, once the response headers have arrived. */
  #asked: number | undefined;
  #isIdlePaused = false;
  #isEnded = false;
  #isListening = false;
  #error: ProxyError | undefined;
  /** The scope of the next attempt. */
  #following: Scope | undefined;
  readonly #client: Client;
  readonly #timeout: number;
  readonly #idleTimeout: number;
  readonly #signal: AbortSignal | undefined;

  /**
   * Starts the time until the response headers.
   * @param timeout ms until the response headers; 0 for no limit
   * @param idleTimeout ms between two chunks of the response body; 0 for no limit
   */
  constructor(client: Client, timeout: number, idleTimeout: number, signal?: AbortSignal) {
    this.#client = client;
    this.#timeout = timeout;
    this.#idleTimeout = idleTimeout;
    this.#signal = signal;
    if (client.listenAfter === undefined) this.#listen();
    this.#arm(timeout);
    if (signal) {
      if (signal.aborted) this.handleEvent();
      else signal.addEventListener("abort", this);
    }
  }

  // ── for transports ──

  /** Sets what is stopped when the exchange is aborted; it is stopped at once if that has happened. */
  onAbort(target: AbortTarget): void {
    if (this.#error !== undefined) return target.fail(this.#error);
    if (!this.#isEnded) this.#target = target;
  }

  /** A chunk of either body was sent or received: the timer starts anew. */
  touch(): void {
    if (this.#limit > 0) this.#last = performance.now();
  }

  /** The response is complete, or the attempt has failed. */
  end(): void {
    if (this.#isEnded) return;
    this.#isEnded = true;
    this.#target = undefined;
    clearTimeout(this.#timer);
    this.#limit = 0;
    if (this.#isListening) this.#client.unlisten(this);
    this.#signal?.removeEventListener("abort", this);
  }

  // ── for the core, and its own transports ──

  /** Why the exchange was aborted, in this attempt or a later one; the first reason counts. */
  get error(): ProxyError | undefined {
    return this.#error ?? this.#following?.error;
  }

  /** Whether the response headers have arrived. */
  get hasHeaders(): boolean {
    return this.#following?.hasHeaders ?? this.#asked !== undefined;
  }

  /**
   * The response headers have arrived: from now on the idle timeout counts.
   * @param isEventStream whether the body is an event stream, which may be silent for any time
   */
  headersReceived(isEventStream: boolean): void {
    if (this.#following !== undefined) return this.#following.headersReceived(isEventStream);
    this.#asked = this.#last;
    this.#arm(this.#limitOf(isEventStream));
  }

  /** While the client takes no chunks, silence is not the upstream's fault. */
  pauseIdle(isPaused: boolean): void {
    this.#isIdlePaused = isPaused;
    this.touch();
  }

  /** Whether the response's body may have to be stopped for more than the client's leaving. */
  mayAbort(isEventStream: boolean): boolean {
    return this.#limitOf(isEventStream) > 0 || this.#signal !== undefined;
  }

  /** Stops the exchange with this reason, unless it has ended already. */
  abort(error: ProxyError): void {
    if (this.#following !== undefined) return this.#following.abort(error);
    if (this.#isEnded) return;
    this.#error = error;
    const target = this.#target;
    this.end();
    target?.fail(error);
  }

  /** Ends a scope that no transport has used: a hook or an interceptor has answered. */
  endUnused(): void {
    if (this.#following !== undefined) this.#following.endUnused();
    else if (this.#target === undefined) this.end();
  }

  /** The scope of the next attempt, with what is left of the time until the response headers. This one ends. */
  again(): Scope {
    this.end();
    const left = (this.#asked ?? this.#last) + this.#timeout - performance.now();
    const timeout = this.#timeout > 0 ? Math.max(1, Math.ceil(left)) : 0;
    this.#following = new Scope(this.#client, timeout, this.#idleTimeout, this.#signal);
    return this.#following;
  }

  /** What a promise gives; rejects with the reason as soon as the exchange is aborted. */
  orAbort<T>(work: Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      const waiting = { fail: reject };
      this.onAbort(waiting);
      work
        .finally(() => {
          if (this.#target === waiting) this.#target = undefined;
        })
        .then(resolve, reject);
    });
  }

  /** The client has left, or the caller's signal was aborted. */
  handleEvent(): void {
    this.abort(clientGone(this.#signal?.reason));
  }

  #limitOf(isEventStream: boolean): number {
    return isEventStream ? 0 : this.#idleTimeout;
  }

  #listen(): void {
    this.#isListening = true;
    this.#client.listen(this);
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
    this.#last = performance.now();
    // Keep an earlier timer: `expire()` restarts it for the rest, and most exchanges are over before.
    if (this.#timer === undefined || this.#firesAt > this.#last + wait) {
      this.#start(wait, this.#last);
    }
  }

  /** Milliseconds until the timer has something to do. */
  #waitOf(limit: number): number {
    const wait = limit === 0 ? Infinity : limit;
    if (this.#isListening) return wait;
    return Math.min(wait, this.#client.listenAfter ?? Infinity);
  }

  #start(wait: number, now: number): void {
    clearTimeout(this.#timer);
    this.#firesAt = now + wait;
    this.#timer = setTimeout(expire, wait, this);
  }

  /** @internal Looks at the time of the last chunk: a timer restarted by every chunk would cost more than the chunk. */
  expire(): void {
    if (!this.#isListening) {
      this.#listen();
      if (this.#limit === 0) this.#timer = undefined;
      if (this.#limit === 0 || this.#isEnded) return;
    }
    const now = performance.now();
    const left = this.#isIdlePaused ? this.#limit : this.#last + this.#limit - now;
    if (left > 1) return this.#start(left, now);
    // The event loop was blocked: chunks that have arrived meanwhile are read first.
    if (now - this.#firesAt > BLOCKED) return this.#start(1, now);
    const isStreaming = this.#asked !== undefined;
    const what = isStreaming ? "the next chunk of the response body" : "the response headers";
    this.abort(
      new ProxyError(isStreaming ? "connection_read_timeout" : "http_response_timeout", {
        message: `waited ${this.#limit} ms in vain for ${what}`,
      }),
    );
  }
}

function expire(scope: Scope): void {
  scope.expire();
}
