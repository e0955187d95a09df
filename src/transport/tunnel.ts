import type { Release } from "../body/memory.ts";
import { ProxyError } from "../error.ts";

/**
 * A WebSocket to an upstream, as a client gives it that hands out no connection. Only the runtime whose client it is can
 * connect it with the client of the proxy.
 */
export interface HandedSocket {
  /** The runtime's own object. */
  readonly socket: unknown;
  /** Closes the WebSocket. */
  destroy(): void;
}

/** What calls are made on while bytes arrive from the upstream of a tunnel. */
export interface TunnelHandler {
  /**
   * Bytes have arrived. They never change, and may share their ArrayBuffer with others.
   * @param mayFree whether the handler may free their memory, because no other code has seen them. False by default: code that
   * has a handler of its own in front of another one may keep them
   */
  onData(bytes: Uint8Array, mayFree?: boolean): void;
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
   * Sends bytes, which must not change afterwards, unless it calls `release`.
   * @param release given where the memory is to be freed. A tunnel calls it only if no other code can see the bytes
   * @returns whether there is room for more; otherwise `onDrain` follows
   */
  write(bytes: Uint8Array, release?: Release): boolean;
  /** Stops reading, so that the upstream has to wait. */
  pause(): void;
  /** Continues reading. */
  resume(): void;
  /** Closes our direction once everything is written. */
  end(): void;
  /**
   * Closes both directions at once, where the runtime can so that the upstream does not take it for an orderly end.
   * @param reason why the tunnel is closed, if it could not end in order
   */
  destroy(reason?: unknown): void;
}

/** A tunnel that tells when it is closed, and how many bytes went through it in each direction. */
export class WatchedTunnel implements Tunnel {
  readonly #tunnel: Tunnel;
  readonly #onClose: (error?: unknown) => void;
  readonly #onBytes: ((toUpstream: number, toClient: number) => void) | undefined;

  constructor(
    tunnel: Tunnel,
    onClose: (error?: unknown) => void,
    onBytes?: (toUpstream: number, toClient: number) => void,
  ) {
    this.#tunnel = tunnel;
    this.#onClose = onClose;
    this.#onBytes = onBytes;
  }

  attach(handler: TunnelHandler): void {
    this.#tunnel.attach({
      onData: (bytes, mayFree) => {
        this.#onBytes?.(0, bytes.byteLength);
        handler.onData(bytes, mayFree);
      },
      onDrain: () => handler.onDrain(),
      onEnd: () => handler.onEnd(),
      onClose: (error) => {
        handler.onClose(error);
        this.#onClose(error);
      },
    });
  }

  write(bytes: Uint8Array, release?: Release): boolean {
    this.#onBytes?.(bytes.byteLength, 0);
    return this.#tunnel.write(bytes, release);
  }

  pause(): void {
    this.#tunnel.pause();
  }

  resume(): void {
    this.#tunnel.resume();
  }

  end(): void {
    this.#tunnel.end();
  }

  /** Closes both directions. A tunnel that was never attached tells of its end here only. */
  destroy(reason?: unknown): void {
    this.#tunnel.destroy();
    this.#onClose(reason);
  }
}

/** Returns the error for an upstream that has not read the rest of a tunnel, or has not closed it, in this time. */
export function unreadEnd(timeout: number): ProxyError {
  const message = `waited ${timeout} ms for the end of the tunnel`;
  return new ProxyError("connection_read_timeout", { message });
}
