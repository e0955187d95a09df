/** Bytes that are held until the connection is established before the writer has to wait. */
const HIGH_WATER_MARK = 65_536;

interface HeldWrite {
  readonly bytes: Uint8Array;
  readonly done: (() => void) | undefined;
}

/**
 * The time until a connection is established: it holds what is written meanwhile, and can be given up.
 *
 * The upload begins before there is a connection, so that a small body is kept by the time the upstream refuses the
 * connection, and can be sent again.
 */
export class Opening {
  /** Whether the connection is not wanted any more. */
  isCancelled = false;
  #cancel: (() => void) | undefined;
  #writes: HeldWrite[] = [];
  #length = 0;

  /** Sets what stops the attempt to connect. */
  onCancel(cancel: () => void): void {
    if (this.isCancelled) cancel();
    else this.#cancel = cancel;
  }

  cancel(): void {
    this.isCancelled = true;
    this.#cancel?.();
    this.#cancel = undefined;
  }

  /** @returns whether there is room for more */
  hold(bytes: Uint8Array, done: (() => void) | undefined): boolean {
    this.#writes.push({ bytes, done });
    this.#length += bytes.byteLength;
    return this.#length < HIGH_WATER_MARK;
  }

  /** Hands over what was held, for the connection to send. */
  take(): HeldWrite[] {
    this.#cancel = undefined;
    return this.#writes.splice(0);
  }

  /** Lets go of what was held: there will be no connection. */
  drop(): void {
    for (const { done } of this.take()) done?.();
  }
}
