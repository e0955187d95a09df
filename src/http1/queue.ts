import { ProxyError } from "../error.ts";
import { startBackgroundTimer } from "../transport/timers.ts";

/** An item that can wait in a queue. */
export interface Waiting {
  /** The item's place while it waits. The queue sets it. */
  place: Place | undefined;
  /** Called when the queue refuses the item, or the item has waited too long. */
  fail(error: ProxyError): void;
}

/** A place in a queue. */
export interface Place {
  /** The time at which the item was added, on the clock of `performance.now()`. */
  readonly since: number;
  next: Waiting | undefined;
  previous: Waiting | undefined;
}

/** The limits of a queue. */
interface Limits {
  /** The maximum number of waiting items. */
  readonly maxQueued: number;
  /** Milliseconds that an item may wait; 0 for no limit. */
  readonly queueTimeout: number;
}

/**
 * A first-in, first-out queue from which any item can be removed at the same low cost. It is a linked list: in an array,
 * each removal would move all later items.
 */
export class Queue<T extends Waiting> {
  /** The number of waiting items; read only. A field instead of a getter, because each response reads it. */
  length = 0;
  /** The item that has waited longest; read only. */
  first: T | undefined;
  readonly #limits: Limits;
  #last: T | undefined;
  #hasTimer = false;

  constructor(limits: Limits) {
    this.#limits = limits;
  }

  /** Adds an item, or fails it if the queue is full. */
  push(item: T): void {
    const { maxQueued, queueTimeout } = this.#limits;
    if (this.length >= maxQueued) return item.fail(limitReached("too many requests wait"));
    const last = this.#last;
    item.place = { since: performance.now(), next: undefined, previous: last };
    if (last === undefined) this.first = item;
    else (last.place as Place).next = item;
    this.#last = item;
    this.length++;
    if (queueTimeout > 0 && !this.#hasTimer) this.#expireIn(queueTimeout);
  }

  /** Removes and returns the first item. */
  shift(): T | undefined {
    const { first } = this;
    if (first !== undefined) this.remove(first);
    return first;
  }

  /** Removes an item; does nothing if the item does not wait. */
  remove(item: T): void {
    if (item.place === undefined) return;
    const next = item.place.next as T | undefined;
    const previous = item.place.previous as T | undefined;
    if (previous === undefined) this.first = next;
    else (previous.place as Place).next = next;
    if (next === undefined) this.#last = previous;
    else (next.place as Place).previous = previous;
    item.place = undefined;
    this.length--;
  }

  /** Starts the timer, which serves all items: the first item has waited longest. */
  #expireIn(ms: number): void {
    this.#hasTimer = true;
    startBackgroundTimer(() => this.#expire(), ms);
  }

  /** Fails the items that have waited too long. */
  #expire(): void {
    const { queueTimeout } = this.#limits;
    const now = performance.now();
    this.#hasTimer = false;
    while (this.first !== undefined) {
      const left = (this.first.place as Place).since + queueTimeout - now;
      if (left > 0) return this.#expireIn(Math.ceil(left));
      this.shift()?.fail(limitReached(`waited ${queueTimeout} ms in vain`));
    }
  }
}

/** Returns the error of a request that gets no connection. It asks the client to try again after a second. */
function limitReached(what: string): ProxyError {
  return new ProxyError("connection_limit_reached", {
    message: `${what} for a connection`,
    retryAfter: 1,
  });
}
