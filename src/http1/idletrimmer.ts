import { startBackgroundTimer } from "../transport/timers.ts";

/** Milliseconds for which idle connections are counted before some of them are closed. */
const INTERVAL = 100;

/**
 * Closes the idle connections above a limit that were not needed for a while.
 *
 * Responses end in bursts. A pool that closed all connections above the limit at once would close after each burst what
 * the next burst opens again.
 */
export class IdleTrimmer {
  /** Whether the number of idle connections is being watched, because it was above the limit. */
  isWatching = false;
  readonly #limit: number;
  readonly #closeOldest: (count: number) => number;
  /** The lowest number of idle connections since the watching began. */
  #fewest = 0;

  /** @param closeOldest closes this number of the connections that are idle longest, and returns how many are left */
  constructor(limit: number, closeOldest: (count: number) => number) {
    this.#limit = limit;
    this.#closeOldest = closeOldest;
  }

  /** Takes the number of idle connections. Needs calls only while it is above the limit, or `isWatching` is true. */
  update(count: number): void {
    this.#fewest = Math.min(this.#fewest, count);
    if (count <= this.#limit || this.isWatching) return;
    this.isWatching = true;
    this.#fewest = count;
    startBackgroundTimer(() => this.#trim(), INTERVAL);
  }

  #trim(): void {
    this.isWatching = false;
    this.update(this.#closeOldest(Math.max(0, this.#fewest - this.#limit)));
  }
}
