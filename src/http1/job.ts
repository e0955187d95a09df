import type { Waiting } from "./queue.ts";
import type { Connection } from "./connection.ts";
import type { ResponseHead } from "./head.ts";

/** A request that wants a connection. */
export interface Job extends Waiting {
  /** Whether only a new one will do. */
  readonly fresh: boolean;
  /** Whether its client does not take what is here: that its connection is silent is nobody's fault then. */
  readonly isPaused: boolean;
  /** Sends itself on a connection, which is its own until it is over. */
  start(connection: Connection): void;
  /** Stops it, wherever it is. */
  fail(thrown: unknown): void;
  /** What the connection has to say of the response. */
  onHead(head: ResponseHead): void;
  onChunk(chunk: Uint8Array): void;
  onEnd(): void;
}
