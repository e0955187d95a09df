import type { Connection } from "./connection.ts";

/** The settings of a connection. */
export interface ConnectionOptions {
  /** Whether the connection may carry another request after the first. */
  readonly keepAlive: boolean;
  /** Milliseconds that the connection may be silent while it is used; 0 for no limit. */
  readonly timeout: number;
}

/** The pool that a connection belongs to, as the connection knows it. */
export interface Owner {
  /** The connection is established. */
  onOpen(connection: Connection): void;
  /** Its request is over, and the connection can take another. */
  onFree(connection: Connection): void;
  /** The connection has been silent for as long as it may. */
  onSilence(connection: Connection): void;
  /** The connection is closed, or could not be established. */
  onClose(connection: Connection): void;
}
