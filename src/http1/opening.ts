/** The number of bytes that are held for a connection that is not established before the writer has to wait. */
const HIGH_WATER_MARK = 65_536;

interface HeldWrite {
  readonly bytes: Uint8Array;
  readonly done: (() => void) | undefined;
}

/**
 * The state of a connection until it is established. It holds the bytes that are written meanwhile, and can be
 * cancelled.
 *
 * The upload begins before the connection is established. So if the upstream refuses the connection, a copy of a small
 * body exists already, and the body can be sent again.
 */
export class Opening {
  /** Whether no socket is wanted any more: the connection was cancelled, or could not be established. */
  isCancelled = false;
  #cancel: (() => void) | undefined;
  #writes: HeldWrite[] = [];
  #length = 0;

  /** Sets the callback that stops connecting. */
  onCancel(cancel: () => void): void {
    if (this.isCancelled) cancel();
    else this.#cancel = cancel;
  }

  /** Stops connecting. */
  cancel(): void {
    this.isCancelled = true;
    this.#cancel?.();
    this.#cancel = undefined;
  }

  /**
   * Holds bytes until the connection is established.
   * @returns whether there is room for more
   */
  hold(bytes: Uint8Array, done: (() => void) | undefined): boolean {
    this.#writes.push({ bytes, done });
    this.#length += bytes.byteLength;
    return this.#length < HIGH_WATER_MARK;
  }

  /** Returns the held bytes, for the connection to send. */
  take(): HeldWrite[] {
    this.#cancel = undefined;
    return this.#writes.splice(0);
  }

  /** Drops the held bytes: there will be no connection. */
  drop(): void {
    for (const { done } of this.take()) done?.();
  }
}
