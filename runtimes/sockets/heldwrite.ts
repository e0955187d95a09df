/**
 * Reads the bytes that an upstream has sent before it closed the connection, although a write has already failed.
 *
 * An upstream may answer an upload early, for example with 413, and close the connection with the upload unread. The next write
 * then fails, while the answer still waits in the operating system. A socket that passed the error on would be destroyed before
 * it reads the answer. So the error is held back, and later writes are dropped. Reading continues. When it ends, nearly always
 * in the next turn of the event loop, the socket is destroyed with the error.
 *
 * - Rests on: a stream calls `_writableState.onwrite` with the result of each write, and destroys itself only there if a
 *   write fails. It calls `_write` and `_writev` of the socket for later writes.
 * - Check: `onwrite` must be a function that can be replaced.
 * - Otherwise: the error is not held back, so that early answers may be lost. Where reading does not end after a write has
 *   failed, the error is passed on after `HOLD_TIMEOUT`.
 * - Test: test/runtimes/sockets/heldwrite.node.test.ts, "a runtime that does not report the result of a write".
 */
import type { Socket as RawSocket } from "node:net";
import { startBackgroundTimer } from "../../src/transport/timers.ts";

/** The maximum number of milliseconds for which an error is held back while the socket is not paused. */
const HOLD_TIMEOUT = 200;
/** The codes of write errors on a connection that the upstream has closed. */
const CLOSED: ReadonlySet<unknown> = new Set(["EPIPE", "ECONNRESET"]);

/** The part of a stream's state that takes the result of each write. */
export interface WriteResults {
  onwrite: (error?: Error | null) => void;
}

/** Returns the object that takes the result of each write of a socket; undefined if the runtime does not show it. */
export function writeResultsOf(raw: object): WriteResults | undefined {
  const { _writableState: state } = raw as { _writableState?: object };
  const member = state && Object.getOwnPropertyDescriptor(state, "onwrite");
  const isKnown = member?.writable === true && typeof member.value === "function";
  return isKnown ? (state as WriteResults) : undefined;
}

/** Whether to hold back a write error: only if the upstream has closed the connection, and the socket still reads. */
export function isWorthHolding(raw: RawSocket, error: NodeJS.ErrnoException): boolean {
  return CLOSED.has(error.code) && !raw.destroyed && !raw.readableEnded;
}

/** The first write error of a socket, which is held back. The socket drops all later writes. */
export class HeldError {
  readonly #raw: RawSocket;
  readonly #error: Error;
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(raw: RawSocket, error: Error) {
    this.#raw = raw;
    this.#error = error;
    // On Bun, another write to the closed connection would discard the bytes that were not read yet.
    raw._write = (_chunk, _encoding, done) => done();
    raw._writev = (_chunks, done) => done();
    this.#wait();
  }

  /** Passes the error on, because all bytes that had arrived were read. */
  release(): void {
    this.#raw.destroy(this.#error);
  }

  /** Stops waiting, because the socket is closed. */
  clear(): void {
    clearTimeout(this.#timer);
  }

  #wait(): void {
    this.#timer = startBackgroundTimer(() => {
      // While the socket is paused for a slow client, the rest of the answer waits in the operating system.
      if (this.#raw.isPaused()) this.#wait();
      else this.release();
    }, HOLD_TIMEOUT);
  }
}
