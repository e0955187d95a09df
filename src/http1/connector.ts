import type { Destination } from "./destination.ts";
import type { Address, Answer } from "./spread.ts";

/** The object that a socket reports to. Methods instead of events: a request adds and removes no listener. */
export interface SocketHandler {
  /**
   * The socket has read bytes.
   * @param mayTake whether the handler may keep their memory: it holds nothing else, and is not read into again
   * @returns whether the handler has kept the memory
   */
  onData(bytes: Uint8Array, mayTake: boolean): boolean;
  /** The upstream has ended its direction of the connection. */
  onHalfClose(): void;
  /** The socket has room again after a `write` that returned false. */
  onDrain(): void;
  /** The connection has failed; `onClose` follows. */
  onError(error: unknown): void;
  /** The connection is closed; nothing follows. */
  onClose(): void;
  /** No byte has moved in either direction for the time that `setTimeout` was given. */
  onTimeout(): void;
}

/** An established connection to an upstream, TLS included: what HTTP/1.1 needs of one. */
export interface Socket {
  /** The upstream's IP address, where the runtime tells it. */
  readonly remoteAddress: string | undefined;
  readonly destroyed: boolean;
  /** Whether both directions are open, so that a request can be sent and its response read. */
  readonly usable: boolean;
  /** Whether our direction stays open after the upstream has ended its own. */
  readonly allowHalfOpen: boolean;
  /** Sets the handler, once. Bytes that were read before wait for it. */
  attach(handler: SocketHandler): void;
  /**
   * Sends bytes in the order of the calls. They must not change before `done`.
   * @param done called when the bytes are not needed any more, also after a failure
   * @returns whether there is room for more; otherwise `onDrain` follows
   */
  write(bytes: Uint8Array, done?: () => void): boolean;
  /** Stops reading, so that the upstream has to wait; `resume` reads on. */
  pause(): void;
  resume(): void;
  /** Whether the connection keeps the process alive: `ref` that it does, `unref` that it does not. */
  ref(): void;
  unref(): void;
  /** Calls `onTimeout` after that many milliseconds without a byte. */
  setTimeout(ms: number): void;
  /** Calls back if the upstream has ended the connection in order; `onError` reports a reset instead. */
  confirmEnd(done: () => void): void;
  /** Closes the connection at once, in both directions. */
  destroy(): void;
}

/** What a connector may ask while it connects. */
export interface ConnectScope {
  /** The addresses of a name, in the order in which to try them. */
  order(answer: Answer): Address[];
  /** Sets what to call, at most once, when the connection is not wanted any more. */
  onCancel(cancel: () => void): void;
}

/** What the HTTP/1.1 client needs of a runtime: a way to make connections. */
export interface Connector {
  /**
   * Resolves to an established connection. Rejects with a `ProxyError`, or with the runtime's own error, whose
   * `code` is read; after `onCancel`'s callback, too. Time limits are the connector's.
   */
  connect(destination: Destination, scope: ConnectScope): Promise<Socket>;
}
