/** The signs of life of the workers, by which their parent finds one whose event loop is blocked. */

/** Milliseconds between two signs of life. */
export const BEAT_INTERVAL = 1000;

/** Milliseconds by which a look may be late. The parent could not run then either: the machine was asleep or overloaded. */
const MAX_DELAY = 500;

/** What is known of a worker's signs of life. */
interface Pulse {
  /** The looks in a row before which no sign came. */
  missed: number;
  hasBeaten: boolean;
}

/**
 * Looks every second whether each worker has given a sign of life.
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

  /** Begins to watch a worker, or notes its sign of life. */
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

  /** Ends watching a worker. */
  forget(key: Key): void {
    this.#pulses.delete(key);
    if (this.#pulses.size > 0) return;
    clearInterval(this.#timer);
    this.#timer = undefined;
  }

  /** Looks at all workers. */
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
