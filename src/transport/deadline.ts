/**
 * A time limit for a peer. After its timer has fired, the deadline waits for one more turn of the event loop before it passes.
 * The event loop runs timers before reads: after it was blocked, bytes that arrived in time would still be unread.
 */
export class Deadline {
  #timer: ReturnType<typeof setTimeout>;

  /**
   * @param limit the time limit in milliseconds
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
