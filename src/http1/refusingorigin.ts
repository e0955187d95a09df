import { ProxyError } from "../error.ts";
import { Deadline } from "../transport/deadline.ts";
import { socketErrorType } from "../transport/socketerror.ts";
import type { Socket } from "./connector.ts";

/**
 * Milliseconds that a request waits for the attempt of another request. If an attempt takes longer, the origin no longer
 * refuses: it may drop packets now, and each request must then have the whole `connectTimeout` for itself.
 */
const MAX_WAIT = 50;

/** Whether an attempt has failed because the origin refuses connections. */
export function isRefusal(error: unknown): boolean {
  return socketErrorType(error) === "connection_refused";
}

/** A connection that waits for the result of an attempt. */
interface Waiter {
  /** Makes an attempt for this connection. */
  readonly connect: () => Promise<Socket>;
  readonly resolve: (socket: Socket | Promise<Socket>) => void;
  readonly reject: (error: unknown) => void;
  isCancelled: boolean;
}

/**
 * Opens connections to an origin that has refused the last one. Only one attempt is made at a time. If it is refused, each
 * connection that was wanted when it began fails as well: a socket for each of them would cost several times as much as a
 * successful response, and would slow down the requests to other upstreams.
 *
 * No refusal is remembered: a connection fails only by an attempt that began after the connection was wanted.
 */
export class RefusingOrigin {
  readonly #onOver: () => void;
  #isTrying = false;
  /** The connections that were wanted after the present attempt had begun. */
  #next: Waiter[] = [];

  /**
   * @param onOver called when an attempt was not refused, or took longer than `MAX_WAIT`; each later connection is then opened
   * by an attempt of its own
   */
  constructor(onOver: () => void) {
    this.#onOver = onOver;
  }

  /**
   * Opens a connection. Fails if the next attempt at the origin, which may belong to another request, is refused.
   * @param connect makes an attempt for the connection
   * @param onCancel sets the callback for a connection that is no longer wanted; `connect` may replace the callback
   */
  open(connect: () => Promise<Socket>, onCancel: (cancel: () => void) => void): Promise<Socket> {
    return new Promise((resolve, reject) => {
      const waiter: Waiter = { connect, resolve, reject, isCancelled: false };
      onCancel(() => {
        waiter.isCancelled = true;
        reject(new ProxyError("connection_terminated"));
      });
      this.#next.push(waiter);
      if (!this.#isTrying) this.#try();
    });
  }

  #try(): void {
    const waiting = this.#next.splice(0).filter(({ isCancelled }) => !isCancelled);
    const first = waiting.shift();
    this.#isTrying = first !== undefined;
    if (first === undefined) return;
    const release = (): void => this.#release(waiting.splice(0));
    const deadline = new Deadline(MAX_WAIT, release);
    const onOpen = (socket: Socket): void => {
      deadline.clear();
      first.resolve(socket);
      release();
    };
    const onError = (error: unknown): void => {
      deadline.clear();
      first.reject(error);
      // Any other error says nothing about the origin. For example, the client may have cancelled the request.
      if (!isRefusal(error)) return release();
      for (const { reject } of waiting) reject(error);
      this.#try();
    };
    first.connect().then(onOpen, onError);
  }

  /** Lets each connection be opened by an attempt of its own. */
  #release(waiting: readonly Waiter[]): void {
    this.#onOver();
    for (const { isCancelled, resolve, connect } of [...waiting, ...this.#next.splice(0)]) {
      if (!isCancelled) resolve(connect());
    }
  }
}
