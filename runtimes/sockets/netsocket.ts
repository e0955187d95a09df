import type { Socket as RawSocket } from "node:net";
import type { Socket, SocketHandler } from "../../src/http1/connector.ts";

/** A socket of `node:net` or `node:tls`, as Node, Bun and Deno have them. Its listeners stay for all requests. */
export class NetSocket implements Socket {
  /** Node's own socket. */
  readonly raw: RawSocket;
  #handler: SocketHandler | undefined;

  constructor(raw: RawSocket) {
    this.raw = raw;
  }

  attach(handler: SocketHandler): void {
    this.#handler = handler;
    this.raw
      // A runtime may cut what several sockets have read from one slab.
      .on("data", (bytes) => handler.onData(bytes, bytes.byteLength === bytes.buffer.byteLength))
      .on("end", () => handler.onHalfClose())
      .on("drain", () => handler.onDrain())
      .on("error", (error) => handler.onError(error))
      .on("close", () => handler.onClose())
      .on("timeout", () => handler.onTimeout());
  }

  /** Takes what `onread` has read, which no `data` event brings. */
  onRead(bytes: Uint8Array, mayTake: boolean): boolean {
    if (this.#handler !== undefined) return this.#handler.onData(bytes, mayTake);
    // The upstream speaks before a request is sent: these bytes are no response to one.
    this.raw.destroy();
    return false;
  }

  get remoteAddress(): string | undefined {
    return this.raw.remoteAddress;
  }

  get destroyed(): boolean {
    return this.raw.destroyed;
  }

  get usable(): boolean {
    const { destroyed, writable, readableEnded } = this.raw;
    return !destroyed && writable && !readableEnded;
  }

  get allowHalfOpen(): boolean {
    return this.raw.allowHalfOpen;
  }

  write(bytes: Uint8Array, done?: () => void): boolean {
    return this.raw.write(bytes, done);
  }

  pause(): void {
    this.raw.pause();
  }

  resume(): void {
    this.raw.resume();
  }

  ref(): void {
    this.raw.ref();
  }

  unref(): void {
    this.raw.unref();
  }

  setTimeout(ms: number): void {
    this.raw.setTimeout(ms);
  }

  confirmEnd(done: () => void): void {
    if (!this.raw.allowHalfOpen) return done();
    // Node 22 reports some resets as an orderly end. On a connection that was reset, a write of no bytes fails.
    this.raw.write("", (error) => {
      if (!error) done();
    });
  }

  destroy(): void {
    this.raw.destroy();
  }
}
