/** A connection in the list, which holds its own place there: nothing is allocated for a request. */
export interface Idle {
  /** The connection that became idle before this one, */
  before: Idle | undefined;
  /** and after it. */
  after: Idle | undefined;
  destroy(): void;
}

/**
 * The idle connections of all origins, in the order in which they became idle. Beyond the limit, the one that
 * has been idle longest is closed: a limit for each origin alone leaves the number of file descriptors without
 * one where clients decide how many origins there are.
 */
export class IdleList {
  readonly #limit: number;
  #first: Idle | undefined;
  #last: Idle | undefined;
  #length = 0;

  constructor(limit: number) {
    this.#limit = limit;
  }

  /** Adds a connection that has just become idle. */
  push(idle: Idle): void {
    const last = this.#last;
    idle.before = last;
    if (last === undefined) this.#first = idle;
    else last.after = idle;
    this.#last = idle;
    if (++this.#length <= this.#limit) return;
    const oldest = this.#first as Idle;
    this.remove(oldest);
    oldest.destroy();
  }

  /** Takes a connection out, if it is in: it is used again, or closed. */
  remove(idle: Idle): void {
    const { before, after } = idle;
    if (before === undefined && this.#first !== idle) return;
    if (before === undefined) this.#first = after;
    else before.after = after;
    if (after === undefined) this.#last = before;
    else after.before = before;
    idle.before = undefined;
    idle.after = undefined;
    this.#length--;
  }
}
