import { later } from "./times.ts";

/** Milliseconds over which connections are looked at before some are too many. */
const INTERVAL = 100;

/**
 * Which of the free connections are too many: those that were never needed for a while.
 *
 * Answers come in batches. Whoever closed all beyond the limit at once would close with each batch
 * what the next one opens again.
 */
export class Surplus {
  readonly #limit: number;
  readonly #closeOldest: (count: number) => number;
  #looking = false;
  #fewest = 0;

  /** @param closeOldest closes so many, and says how many are left */
  constructor(limit: number, closeOldest: (count: number) => number) {
    this.#limit = limit;
    this.#closeOldest = closeOldest;
  }

  /** So many are free now. */
  count(free: number): void {
    this.#fewest = Math.min(this.#fewest, free);
    if (free <= this.#limit || this.#looking) return;
    this.#looking = true;
    this.#fewest = free;
    later(() => this.#look(), INTERVAL);
  }

  #look(): void {
    this.#looking = false;
    this.count(this.#closeOldest(Math.max(0, this.#fewest - this.#limit)));
  }
}
