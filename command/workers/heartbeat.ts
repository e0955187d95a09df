/** Watches the heartbeats of the workers. A worker whose heartbeats stop has a blocked event loop. */

/** Milliseconds between two heartbeats. */
export const BEAT_INTERVAL = 1000;

/** Milliseconds by which a check may be late. A later check shows that the machine was asleep or overloaded. */
const MAX_DELAY = 500;

/** The state of a worker's heartbeats. */
interface Pulse {
  /** The number of checks in a row that have found no new heartbeat. */
  missed: number;
  hasBeaten: boolean;
}

/**
 * Checks every second whether each worker has sent a heartbeat. If a check is late by more than `MAX_DELAY`, the workers could
 * not run either, so the counts of missing heartbeats begin again from 0.
 */
export class Heartbeat<Key> {
  readonly #pulses: Map<Key, Pulse> = new Map();
  readonly #limit: number;
  readonly #onSilence: (key: Key) => void;
  #timer: ReturnType<typeof setInterval> | undefined;
  #checkedAt = 0;

  /** @param timeout milliseconds without a heartbeat after which `onSilence` is called, once for each worker; 0 for never */
  constructor(timeout: number, onSilence: (key: Key) => void) {
    // A single check may come just before a heartbeat that is on time, so it takes two.
    this.#limit = timeout === 0 ? Infinity : Math.max(2, Math.ceil(timeout / BEAT_INTERVAL));
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

  /** Checks all workers. `now` is the time on the clock of `performance.now()`. */
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
