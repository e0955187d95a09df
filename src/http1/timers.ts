/** Deno, whose timers are numbers. */
const { Deno } = globalThis as { Deno?: { unrefTimer?(timer: number): void } };

/** Starts a timer that does not keep the process alive. */
export function startBackgroundTimer(
  callback: () => void,
  ms: number,
): ReturnType<typeof setTimeout> {
  const timer = setTimeout(callback, ms);
  if (typeof timer === "number") Deno?.unrefTimer?.(timer);
  else (timer as { unref?(): unknown }).unref?.();
  return timer;
}

/** One timer for many expiry times: it is set for the earliest of them, and then for the next. */
export class ExpiryTimer {
  /** The time at which the timer fires, on the clock of `performance.now()`; `Infinity` if it is not set. */
  firesAt: number = Infinity;
  readonly #closeExpired: (now: number) => number;
  #timer: ReturnType<typeof setTimeout> | undefined;

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
