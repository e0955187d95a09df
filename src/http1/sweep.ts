import { later } from "./times.ts";

/** One timer for many expiry times: it is set for the earliest, and after that for the next. */
export class Sweep {
  /** When it is due, as `performance.now()` has it; `Infinity` for never. */
  at: number = Infinity;
  readonly #run: (now: number) => number;
  #timer: ReturnType<typeof setTimeout> | undefined;

  /** @param run closes what has expired by now, and returns the next expiry time; `Infinity` for none */
  constructor(run: (now: number) => number) {
    this.#run = run;
  }

  /** Sets the timer for an earlier time than the one it is set for. */
  arm(at: number): void {
    clearTimeout(this.#timer);
    this.at = at;
    this.#timer = later(() => this.#sweep(), Math.max(1, at - performance.now()));
  }

  #sweep(): void {
    const next = this.#run(performance.now());
    this.at = Infinity;
    if (next < Infinity) this.arm(next);
  }
}
