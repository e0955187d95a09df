/** What calls are made on while bytes arrive from the upstream of a tunnel. */
export interface TunnelHandler {
  /** Bytes have arrived, in memory that belongs to the handler. */
  onData(bytes: Uint8Array): void;
  /** There is room again after a `write` that returned false. */
  onDrain(): void;
  /** The upstream has closed its direction; ours is still open. */
  onEnd(): void;
  /** The connection is closed; nothing follows. `error` is set if it did not close in order. */
  onClose(error?: unknown): void;
}

/** A connection to an upstream that has switched protocols (101): it carries bytes in both directions. */
export interface Tunnel {
  /** Sets the handler, once. Bytes that arrived before are kept for it. */
  attach(handler: TunnelHandler): void;
  /**
   * Sends bytes, which must not change afterwards.
   * @returns whether there is room for more; otherwise `onDrain` follows
   */
  write(bytes: Uint8Array): boolean;
  /** Stops reading, so that the upstream has to wait. */
  pause(): void;
  /** Continues reading. */
  resume(): void;
  /** Closes our direction once everything is written. */
  end(): void;
  /** Closes both directions at once, where the runtime can so that the upstream does not take it for an orderly end. */
  destroy(): void;
}
