import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import type { Tunnel, TunnelHandler } from "../../src/transport/tunnel.ts";

/** A tunnel through a connection that undici has handed over, because the upstream has answered 101. */
export class SocketTunnel implements Tunnel {
  readonly #socket: Duplex;
  #handler: TunnelHandler | undefined;
  #error: unknown;

  constructor(socket: Duplex) {
    this.#socket = socket;
    // undici has removed its own listener for errors, and Node throws an error that has no listener.
    socket.on("error", (error) => (this.#error = error)).on("close", () => this.#onClose());
  }

  attach(handler: TunnelHandler): void {
    const socket = this.#socket;
    this.#handler = handler;
    if (socket.closed) return this.#onClose();
    socket
      .on("data", (bytes: Uint8Array) => handler.onData(bytes))
      .on("end", () => handler.onEnd())
      .on("drain", () => handler.onDrain())
      .resume();
  }

  write(bytes: Uint8Array): boolean {
    // A connection that is being closed emits no `drain`, so do not make the caller wait for it.
    return !this.#socket.writable || this.#socket.write(bytes);
  }

  pause(): void {
    this.#socket.pause();
  }

  resume(): void {
    this.#socket.resume();
  }

  end(): void {
    this.#socket.end();
  }

  destroy(): void {
    try {
      (this.#socket as Socket).resetAndDestroy();
    } catch {
      // Only a TCP socket can be reset. A TLS connection is closed without close_notify instead.
      this.#socket.destroy();
    }
  }

  #onClose(): void {
    const error = this.#error ?? new Error("the connection of the tunnel was closed");
    this.#handler?.onClose(this.#socket.readableEnded ? undefined : error);
  }
}
