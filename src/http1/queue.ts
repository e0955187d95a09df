import { ProxyError } from "../error.ts";
import { later } from "./times.ts";

/** What can wait. */
export interface Waiting {
  /** Where it waits. */
  place: Place | undefined;
  /** It has waited in vain. */
  fail(error: ProxyError): void;
}

/** A place in a queue. */
export interface Place {
  /** When it was taken, as `performance.now()` has it. */
  readonly since: number;
  next: Waiting | undefined;
  previous: Waiting | undefined;
}

/** How many may wait, and for how many milliseconds; `0` for as long as they like. */
interface Limits {
  readonly maxQueued: number;
  readonly queueTimeout: number;
}

/**
 * First in, first out; and out from anywhere between at once, with nothing left behind.
 * An array would move all that wait for each that leaves.
 */
export class Queue<T extends Waiting> {
  readonly #limits: Limits;
  #first: T | undefined;
  #last: T | undefined;
  #length = 0;
  #expiring = false;

  constructor(limits: Limits) {
    this.#limits = limits;
  }

  get length(): number {
    return this.#length;
  }

  /** Takes one in, or fails it. */
  push(item: T): void {
    const { maxQueued, queueTimeout } = this.#limits;
    if (this.#length >= maxQueued) return item.fail(limitReached("too many requests wait"));
    const last = this.#last;
    item.place = { since: performance.now(), next: undefined, previous: last };
    if (last === undefined) this.#first = item;
    else (last.place as Place).next = item;
    this.#last = item;
    this.#length++;
    if (queueTimeout > 0 && !this.#expiring) this.#expireIn(queueTimeout);
  }

  /** Takes the first out. */
  shift(): T | undefined {
    const first = this.#first;
    if (first !== undefined) this.remove(first);
    return first;
  }

  /** Takes one out, if it is in. */
  remove(item: T): void {
    if (item.place === undefined) return;
    const next = item.place.next as T | undefined;
    const previous = item.place.previous as T | undefined;
    if (previous === undefined) this.#first = next;
    else (previous.place as Place).next = next;
    if (next === undefined) this.#last = previous;
    else (next.place as Place).previous = previous;
    item.place = undefined;
    this.#length--;
  }

  /** One timer for all: who has waited longest is the first. */
  #expireIn(ms: number): void {
    this.#expiring = true;
    later(() => this.#expire(), ms);
  }

  #expire(): void {
    const { queueTimeout } = this.#limits;
    const now = performance.now();
    this.#expiring = false;
    while (this.#first !== undefined) {
      const left = (this.#first.place as Place).since + queueTimeout - now;
      if (left > 0) return this.#expireIn(Math.ceil(left));
      this.shift()?.fail(limitReached(`waited ${queueTimeout} ms in vain`));
    }
  }
}

/** Too many at a time: a moment later there may be room. */
function limitReached(what: string): ProxyError {
  return new ProxyError("connection_limit_reached", {
    message: `${what} for a connection`,
    retryAfter: 1,
  });
}
