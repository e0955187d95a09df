/** Heartbeats of the workers, by which their parent finds a worker whose event loop is blocked. */

/** Milliseconds between two heartbeats. */
export const BEAT_INTERVAL = 1000;

/**
 * Milliseconds by which a check may be late. If it is later, the parent could not run either, because the machine was asleep
 * or overloaded, and missing heartbeats do not count.
 */
const MAX_DELAY = 500;

/** The state of a worker's heartbeats. */
interface Pulse {
  /** The number of successive checks without a heartbeat before them. */
  missed: number;
  hasBeaten: boolean;
}

/**
 * Checks every second whether each worker has sent a heartbeat.
 *
 * A silence counts only in seconds in which the parent itself ran in time, so that no worker is blamed for a machine that was
 * asleep, or overloaded as a whole.
 */
export class Heartbeat<Key> {
  readonly #pulses: Map<Key, Pulse> = new Map();
  readonly #limit: number;
  readonly #onSilence: (key: Key) => void;
  #timer: ReturnType<typeof setInterval> | undefined;
  #checkedAt = 0;

  /**
   * @param timeout milliseconds of silence after which a worker is reported, once; 0 for never
   * @param now the clock in milliseconds
   */
  constructor(timeout: number, onSilence: (key: Key) => void) {
    this.#limit = timeout === 0 ? Infinity : Math.ceil(timeout / BEAT_INTERVAL);
    this.#onSilence = onSilence;
  }

  /** Starts to watch a worker, or notes its heartbeat. */
  beat(key: Key): void {
    const pulse = this.#pulses.get(key);
    if (pulse !== undefined) {
      pulse.hasBeaten = true;
      return;
    }
    this.#pulses.set(key, { missed: 0, hasBeaten: true });
    if (this.#timer !== undefined) return;
    this.#checkedAt = performance.now();
    this.#timer = setInterval(() => this.check(performance.now()), BEAT_INTERVAL).unref();
  }

  /** Stops watching a worker. */
  forget(key: Key): void {
    this.#pulses.delete(key);
    if (this.#pulses.size > 0) return;
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  /** Checks all workers. */
  check(now: number): void {
    const isLate = now - this.#checkedAt > BEAT_INTERVAL + MAX_DELAY;
    this.#checkedAt = now;
    for (const [key, pulse] of this.#pulses) {
      pulse.missed = pulse.hasBeaten || isLate ? 0 : pulse.missed + 1;
      pulse.hasBeaten = false;
      if (pulse.missed < this.#limit) continue;
      this.forget(key);
      this.#onSilence(key);
    }
  }
}
