import type { ProxyError } from "../error.ts";

/**
 * A request that waits for a place (a connection, an HTTP/2 stream, or one of `maxRequests`) or has one: which client it is
 * from, how many bytes that client has moved, and how to end the request if the client is too slow.
 */
export interface Claim {
  /**
   * The address or network of the client; undefined if it is not known. All unknown clients count as one address.
   * `AddressQueue` reads the property only while requests wait.
   */
  readonly clientKey?: string | undefined;
  /**
   * The number of bytes that the client has taken or sent so far, if the request waits for its client at present; undefined
   * if it does not, or if the number is not known.
   */
  readonly clientBytes?: number | undefined;
  /** Ends the request with this reason, because its client is too slow. */
  endSlow?(reason: ProxyError): void;
}

/** An object that has one of the places, such as a connection or a stream. */
export interface Holder {
  /**
   * The account of the client that the place is counted for; undefined while it is not counted. Only the queue sets it.
   */
  account: Account | undefined;
  /** The request that has the place; undefined for none. */
  readonly claim: Claim | undefined;
}

/** The places for which requests wait. */
export interface Places {
  /** The number of places that are taken. A tunnel counts only if it takes up one of the limited places. */
  readonly taken: number;
  /** Returns the holders of the places, including tunnels. */
  holders(): Iterable<Holder>;
}

/** A request that can wait. */
export interface Waiting extends Claim {
  /** The place in the queue; undefined if the request does not wait. Only the queue sets it. */
  place: Place | undefined;
}

/** A place in a queue. */
export interface Place {
  /** The time at which the request was added, on the clock of `performance.now()`. */
  readonly since: number;
  readonly account: Account;
  next: Waiting | undefined;
  previous: Waiting | undefined;
}

/** The requests of one address: those that wait, as a linked list, and the number of those that run. */
export class Account {
  readonly key: string;
  /** The number of places that the address has; correct only while `AddressQueue.isCounting` is true. */
  running = 0;
  waiting = 0;
  /** The request that has waited longest. */
  first: Waiting | undefined;
  last: Waiting | undefined;
  /** The account whose turn is before this one, among those with waiting requests. */
  previous: Account | undefined;
  /** The account whose turn comes after this one. */
  next: Account | undefined;

  constructor(key: string) {
    this.key = key;
  }
}
