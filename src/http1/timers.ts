/** Starts a timer that does not keep the process alive, where the runtime has such timers: on Deno it is a number. */
export function startBackgroundTimer(
  callback: () => void,
  ms: number,
): ReturnType<typeof setTimeout> {
  const timer = setTimeout(callback, ms);
  (timer as { unref?(): unknown }).unref?.();
  return timer;
}

/** One timer for many expiry times: it is set for the earliest of them, and then for the next. */
export class ExpiryTimer {
  /** The time at which the timer fires, on the clock of `performance.now()`; `Infinity` if it is not set. */
  firesAt: number = Infinity;
  readonly #closeExpired: (now: number) => number;
  #timer: ReturnType<typeof setTimeout> | undefined;

  /** @param closeExpired closes what has expired, and returns the next expiry time; `Infinity` for none */
  constructor(closeExpired: (now: number) => number) {
    this.#closeExpired = closeExpired;
  }

  /** Sets the timer for this time, which is earlier than the time for which it is set. */
  arm(time: number): void {
    clearTimeout(this.#timer);
    this.firesAt = time;
    this.#timer = startBackgroundTimer(() => this.#fire(), Math.max(1, time - performance.now()));
  }

  #fire(): void {
    const next = this.#closeExpired(performance.now());
    this.firesAt = Infinity;
    if (next < Infinity) this.arm(next);
  }
}
