import { startBackgroundTimer } from "../transport/timers.ts";

/** Milliseconds for which the number of idle connections is observed before some are closed. */
const INTERVAL = 100;

/**
 * Closes idle connections above a limit if they were not needed for a while.
 *
 * Responses end in bursts. If a pool closed all connections above the limit immediately, each burst would reopen the
 * connections that were closed after the previous burst.
 */
export class IdleTrimmer {
  /** Whether the number of idle connections is being watched, because it was above the limit. */
  isWatching = false;
  readonly #limit: number;
  readonly #closeOldest: (count: number) => number;
  /** The lowest number of idle connections since `isWatching` became true. */
  #fewest = 0;

  /**
   * @param closeOldest closes this number of connections, beginning with the one that has been idle longest, and returns
   * the number of idle connections that remain
   */
  constructor(limit: number, closeOldest: (count: number) => number) {
    this.#limit = limit;
    this.#closeOldest = closeOldest;
  }

  /** Records the number of idle connections. The pool need call it only above the limit, or while `isWatching` is true. */
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
