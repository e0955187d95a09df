import type { Release } from "../body/memory.ts";
import { ProxyError } from "../error.ts";

/**
 * A WebSocket to an upstream, from an HTTP client that does not expose the connection. Only the runtime to which that HTTP
 * client belongs can connect the WebSocket with the proxy's client.
 */
export interface HandedSocket {
  /** The runtime's own object. */
  readonly socket: unknown;
  /** Closes the WebSocket. */
  destroy(): void;
}

/** The object that receives the events of a tunnel's upstream side. */
export interface TunnelHandler {
  /**
   * Called when bytes have arrived. They never change, and may share their ArrayBuffer with other bytes.
   * @param mayFree whether the handler may free the memory of the bytes, because no other code has seen them. False by
   * default, because a handler that wraps this one may keep the bytes
   */
  onData(bytes: Uint8Array, mayFree?: boolean): void;
  /** Called when there is room again after a `write` that returned false. */
  onDrain(): void;
  /** Called when the upstream has closed its direction. The other direction may still be open: `end()` closes it. */
  onEnd(): void;
  /** Called last, when the connection is closed. `error` is set if it was not closed properly. */
  onClose(error?: unknown): void;
}

/** A connection to an upstream that has switched protocols (101), which carries bytes in both directions. */
export interface Tunnel {
  /** Sets the handler, once. Bytes that arrived before are kept for the handler. */
  attach(handler: TunnelHandler): void;
  /**
   * Sends bytes, which must not change before `release` is called.
   * @param release called when the memory of the bytes can be freed. A tunnel never calls it if other code may see the bytes
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
   * Closes both directions immediately, with a reset where one can be sent, so that the upstream does not see a regular
   * end.
   * @param reason why the tunnel is closed, if it did not end regularly
   */
  destroy(reason?: unknown): void;
}

/** A tunnel that reports when it is closed, and how many bytes went through it in each direction. */
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

  /** Closes both directions and reports the end, because a tunnel without a handler reports it nowhere else. */
  destroy(reason?: unknown): void {
    this.#tunnel.destroy(reason);
    this.#onClose(reason);
  }
}

/**
 * Returns the error for an upstream that has not read the remaining bytes of a tunnel, or has not closed it, within
 * `timeout` milliseconds.
 */
export function unreadEnd(timeout: number): ProxyError {
  const message = `the tunnel did not end within ${timeout} ms`;
  return new ProxyError("connection_read_timeout", { message });
}
