import { ProxyError } from "../error.ts";
import { AddressQueue } from "../transport/addressqueue.ts";
import type { Place, Places, Waiting } from "../transport/claim.ts";
import type { MinimumRate } from "../transport/slowclients.ts";
import { startBackgroundTimer } from "../transport/timers.ts";

/** A request that can wait for a connection. */
export interface QueuedJob extends Waiting {
  /** Called when the queue refuses the request, or the request has waited too long. */
  fail(error: ProxyError): void;
}

/** The limits of a queue. */
interface Limits extends MinimumRate {
  /** The maximum number of connections. Requests wait while all of them are in use. */
  readonly maxSockets: number;
  /** The maximum number of waiting requests. */
  readonly maxQueued: number;
  /** Milliseconds that a request may wait; 0 for no limit. */
  readonly queueTimeout: number;
}

/** The requests that wait for a connection to one origin, in the order in which they are sent. */
export class Queue<T extends QueuedJob> extends AddressQueue<T> {
  readonly #limits: Limits;
  #hasTimer = false;

  constructor(limits: Limits, places: Places) {
    super(places, limits);
    this.#limits = limits;
  }

  /**
   * Adds a request. If the queue is full, one request fails: the newest request of the client address with the most
   * waiting requests, or `item` itself if its own address has about as many.
   */
  push(item: T): void {
    const { maxQueued, queueTimeout } = this.#limits;
    if (this.length >= maxQueued) {
      const surplus = this.findSurplus(item);
      (surplus ?? item).fail(this.#refusal(`${maxQueued} requests wait (maxQueued)`));
      if (surplus === undefined) return;
      this.remove(surplus);
    }
    this.add(item);
    if (queueTimeout > 0 && !this.#hasTimer) this.#expireIn(queueTimeout);
  }

  /** Removes and returns the request that comes next. */
  shift(): T | undefined {
    const { first } = this;
    if (first !== undefined) this.serve(first);
    return first;
  }

  /** Returns the error for a request that has waited for a connection and was not sent. */
  explainWait(waited: number): ProxyError {
    return this.#refusal(`no connection became free within ${Math.round(waited)} ms`);
  }

  /** Starts the timer. One timer serves all waiting requests. */
  #expireIn(ms: number): void {
    this.#hasTimer = true;
    startBackgroundTimer(() => this.#expire(), ms);
  }

  /** Fails the requests that have waited too long. */
  #expire(): void {
    const { queueTimeout } = this.#limits;
    const now = performance.now();
    this.#hasTimer = false;
    let next = Infinity;
    for (const account of this.accounts()) {
      for (let item; (item = account.first as T | undefined) !== undefined;) {
        const left = (item.place as Place).since + queueTimeout - now;
        if (left > 0) {
          next = Math.min(next, left);
          break;
        }
        item.fail(this.explainWait(queueTimeout));
        this.remove(item);
      }
    }
    if (this.length > 0) this.#expireIn(Math.max(1, Math.ceil(next)));
  }

  /**
   * Returns the error for a request that gets no connection. Its `Retry-After` asks the client to try again after a
   * second.
   */
  #refusal(what: string): ProxyError {
    const { maxSockets } = this.#limits;
    return new ProxyError("connection_limit_reached", {
      message: `${what}: all ${maxSockets} that maxSockets allows are in use`,
      retryAfter: 1,
    });
  }
}
