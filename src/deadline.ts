import { clientGone, ProxyError } from "./error.ts";

/** Who is told when the client has left: an object, which an `AbortSignal` takes too, and no function more for each request. */
export interface Listener {
  /** The client has left. */
  handleEvent(): void;
}

/** Something that can tell when the client has left. */
export interface Abortable {
  /** Milliseconds after which it is early enough to listen, where to listen is dear. */
  readonly listenAfter?: number;
  /** Tells the listener once when the client leaves, at once if it has already. */
  listen(listener: Listener): void;
  /** The listener does not want to know any more, if it ever did. */
  unlisten(listener: Listener): void;
}

/** What a transport does for an exchange. */
export interface Stoppable {
  /** Stops it, for this reason; at most called once. */
  fail(error: ProxyError): void;
}

/** Milliseconds by which a timer is late only where something has kept the process from it. */
const BUSY = 20;

/**
 * How long one exchange with an upstream may last: the client's leaving, the
 * caller's signal and the deadlines all end here, in one place.
 *
 * The transport says what happens (`touch`, `opened`, `hold`, `end`) and sets
 * `request` to what is to be stopped. After `end()` no timer and no
 * listener is left behind.
 */
export class Lifetime implements Listener {
  /** What fails when the exchange is stopped. */
  request: Stoppable | undefined;

  #timer: ReturnType<typeof setTimeout> | undefined;
  /** When the timer fires. */
  #firesAt = 0;
  #limit = 0;
  #last = 0;
  /** When the last piece of the request was sent, once there are response headers. */
  #asked: number | undefined;
  #held = false;
  #streaming = false;
  #ended = false;
  #error: ProxyError | undefined;
  /** The lifetime of the attempt that came after this one. */
  #following: Lifetime | undefined;
  readonly #client: Abortable;
  readonly #timeout: number;
  readonly #idleTimeout: number;
  readonly #signal: AbortSignal | undefined;
  #listening = false;

  /**
   * Starts the time until the response headers.
   * @param client who may leave
   * @param timeout ms until the response headers; 0 for no limit
   * @param idleTimeout ms between two pieces of the response body; 0 for no limit
   */
  constructor(client: Abortable, timeout: number, idleTimeout: number, signal?: AbortSignal) {
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

  /** Why the last attempt was stopped, if it was. */
  get error(): ProxyError | undefined {
    return this.#following === undefined ? this.#error : this.#following.error;
  }

  /** For one more attempt, or the next hop: what is left of the time until the response headers. This one ends. */
  again(): Lifetime {
    this.end();
    const left = (this.#asked ?? this.#last) + this.#timeout - performance.now();
    const timeout = this.#timeout > 0 ? Math.max(1, Math.ceil(left)) : 0;
    this.#following = new Lifetime(this.#client, timeout, this.#idleTimeout, this.#signal);
    return this.#following;
  }

  /** What a promise gives; rejects with the reason as soon as the exchange is stopped. */
  orAbort<T>(work: Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      if (this.error !== undefined) reject(this.error);
      const waiting = { fail: reject };
      this.request = waiting;
      work
        .finally(() => {
          if (this.request === waiting) this.request = undefined;
        })
        .then(resolve, reject);
    });
  }

  /** Whether the response's body may have to be stopped for more than the client's leaving. */
  mayStop(eventStream: boolean): boolean {
    return this.#limitOf(eventStream) > 0 || this.#signal !== undefined;
  }

  /** Stops the exchange with this reason, unless it has ended already. */
  abort(error: ProxyError): void {
    if (this.#following !== undefined) return this.#following.abort(error);
    if (this.#ended) return;
    this.#error = error;
    const { request } = this;
    this.end();
    request?.fail(error);
  }

  /** A piece of either body moved: the clock starts anew. */
  touch(): void {
    if (this.#limit > 0) this.#last = performance.now();
  }

  /** The response headers are here. An event stream may be silent for as long as it likes. */
  opened(eventStream: boolean): void {
    this.#streaming = true;
    this.#asked = this.#last;
    this.#arm(this.#limitOf(eventStream));
  }

  #limitOf(eventStream: boolean): number {
    return eventStream ? 0 : this.#idleTimeout;
  }

  /** While the client does not take what is here, silence is not the upstream's fault. */
  hold(held: boolean): void {
    this.#held = held;
    this.touch();
  }

  /** Ends a lifetime that no transport has used: an interceptor has answered. */
  endUnused(): void {
    if (this.#following !== undefined) this.#following.endUnused();
    else if (this.request === undefined) this.end();
  }

  /** The exchange is over, well or badly. */
  end(): void {
    if (this.#ended) return;
    this.#ended = true;
    this.request = undefined;
    clearTimeout(this.#timer);
    this.#limit = 0;
    if (this.#listening) this.#client.unlisten(this);
    this.#signal?.removeEventListener("abort", this);
  }

  /** The client has left, or the caller's signal fired. */
  handleEvent(): void {
    this.abort(clientGone(this.#signal?.reason));
  }

  #listen(): void {
    this.#listening = true;
    this.#client.listen(this);
  }

  #arm(limit: number): void {
    if (this.#ended) return;
    this.#limit = limit;
    const wait = this.#waitOf(limit);
    if (wait === Infinity) {
      clearTimeout(this.#timer);
      this.#timer = undefined;
      return;
    }
    this.#last = performance.now();
    // One that fires too early finds what is left, and costs nothing where the exchange is over before.
    if (this.#timer === undefined || this.#firesAt > this.#last + wait) {
      this.#start(wait, this.#last);
    }
  }

  /** Milliseconds until the timer has something to do. */
  #waitOf(limit: number): number {
    const wait = limit === 0 ? Infinity : limit;
    if (this.#listening) return wait;
    return Math.min(wait, this.#client.listenAfter ?? Infinity);
  }

  #start(wait: number, now: number): void {
    clearTimeout(this.#timer);
    this.#firesAt = now + wait;
    this.#timer = setTimeout(expire, wait, this);
  }

  /** @internal A timer restarted by every chunk would cost more than the chunk: it looks at the last one's time instead. */
  expire(): void {
    if (!this.#listening) {
      this.#listen();
      if (this.#limit === 0) this.#timer = undefined;
      if (this.#limit === 0 || this.#ended) return;
    }
    const now = performance.now();
    const left = this.#held ? this.#limit : this.#last + this.#limit - now;
    if (left > 1) return this.#start(left, now);
    // A process that was busy for so long has yet to read what has come meanwhile.
    if (now - this.#firesAt > BUSY) return this.#start(1, now);
    const what = this.#streaming ? "the next piece of the response body" : "the response headers";
    this.abort(
      new ProxyError(this.#streaming ? "connection_read_timeout" : "http_response_timeout", {
        message: `waited ${this.#limit} ms in vain for ${what}`,
      }),
    );
  }
}

function expire(lifetime: Lifetime): void {
  lifetime.expire();
}
