type Timer = ReturnType<typeof setTimeout>;

let unref = (timer: Timer): void => {
  (timer as { unref?(): unknown }).unref?.();
};

/**
 * Sets the function that lets the process end although a timer runs. Deno needs it, because its timers have no
 * `unref()`.
 */
export function setUnref(unrefTimer: (timer: Timer) => void): void {
  unref = unrefTimer;
}

/** Starts a timer that does not keep the process alive. */
export function startBackgroundTimer(callback: () => void, ms: number): Timer {
  const timer = setTimeout(callback, ms);
  unref(timer);
  return timer;
}

/** One timer for many expiry times, which is set for the earliest of them, and then for the next. */
export class ExpiryTimer {
  /** The time at which the timer fires, on the clock of `performance.now()`; `Infinity` if it is not set. */
  firesAt: number = Infinity;
  readonly #closeExpired: (now: number) => number;
  #timer: Timer | undefined;

  /** @param closeExpired called when the timer fires; returns the next expiry time, or `Infinity` if there is none */
  constructor(closeExpired: (now: number) => number) {
    this.#closeExpired = closeExpired;
  }

  /** Sets the timer to a time that is earlier than its present one. */
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
