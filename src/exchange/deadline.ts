/**
 * A time limit for a peer. When its time is over, what has arrived meanwhile is read before it passes: timers run before
 * reads, so that after a blocked event loop every peer would look too slow.
 */
export class Deadline {
  #timer: ReturnType<typeof setTimeout>;

  /**
   * @param limit milliseconds
   * @param pass called when the limit has passed, unless the deadline is cleared before
   */
  constructor(limit: number, pass: () => void) {
    this.#timer = setTimeout(() => {
      this.#timer = setTimeout(pass, 1);
    }, limit);
  }

  clear(): void {
    clearTimeout(this.#timer);
  }
}
