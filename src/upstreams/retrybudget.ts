import type { Chance } from "./policy.ts";

/** Each request adds credit for retries. This is the time in milliseconds in which the credit decays to 37 % (1/e). */
const WINDOW = 10_000;

/** The limits of retries, so that retries do not multiply the load during an outage. */
export interface RetryBudgetOptions {
  /**
   * The number of retries per request, over the last ten seconds.
   * @default 0.2
   */
  ratio?: number;
  /**
   * The number of further retries that are allowed each second, however few requests there are.
   * @default 10
   */
  perSecond?: number;
}

/**
 * Limits the number of retries to a share of the number of requests in the last ten seconds, plus a fixed number a second
 * (Finagle's retry budget).
 */
export class RetryBudget {
  readonly #chance: Chance;
  readonly #ratio: number;
  readonly #perSecond: number;
  /** The credit that requests have added. It decays with time. */
  #credit = 0;
  #reserve: number;
  #at: number;

  constructor(chance: Chance, { ratio = 0.2, perSecond = 10 }: RetryBudgetOptions = {}) {
    this.#chance = chance;
    this.#ratio = ratio;
    this.#perSecond = perSecond;
    this.#reserve = perSecond;
    this.#at = chance.now();
  }

  /** Records a request. */
  deposit(): void {
    this.#pass();
    this.#credit += this.#ratio;
  }

  /** Takes the credit for one retry; false if there is none. */
  withdraw(): boolean {
    this.#pass();
    if (this.#reserve >= 1) this.#reserve--;
    else if (this.#credit >= 1) this.#credit--;
    else return false;
    return true;
  }

  #pass(): void {
    const now = this.#chance.now();
    const passed = now - this.#at;
    this.#at = now;
    // With a `perSecond` below 1, the reserve grows over several seconds until it is enough for one retry.
    const most = Math.max(1, this.#perSecond);
    this.#reserve = Math.min(most, this.#reserve + (passed / 1000) * this.#perSecond);
    // The decay is exponential: with `1 - passed / WINDOW`, the credit would depend on how often this method is called.
    this.#credit *= Math.exp(-passed / WINDOW);
  }
}
