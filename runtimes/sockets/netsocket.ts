import type { Socket as RawSocket } from "node:net";
import type { TLSSocket } from "node:tls";
import type { Release } from "../../src/body/memory.ts";
import type { Socket, SocketHandler } from "../../src/http1/connector.ts";
import { HeldError, isWorthHolding, writeResultsOf } from "./heldwrite.ts";

/**
 * The option `onread` of `net.connect` for a socket that always reads into the same memory, into which other sockets may
 * read as well. This class has no file of its own, because test/work/way.test.ts limits the number of files whose code a
 * request runs.
 */
export class MemoryReader {
  readonly buffer: Uint8Array;
  /** The socket that reads with this reader. */
  socket: NetSocket | undefined;

  constructor(memory: Uint8Array) {
    this.buffer = memory;
  }

  /** Node calls this function with Node's own socket as `this`, so it must be an arrow function. */
  readonly callback = (length: number): boolean => {
    this.socket?.onRead(this.buffer.subarray(0, length));
    return true;
  };
}

/**
 * Watches a socket that emits `data`, with or without TLS. The returned function says whether other code sees the chunk that is
 * arriving. Such a chunk must be copied.
 */
export type WatchReads = (raw: RawSocket) => () => boolean;

/** A socket of `node:net` or `node:tls`, on Node, Bun or Deno. Its listeners are added once, and serve all requests. */
export class NetSocket implements Socket {
  /** The runtime's own socket. */
  readonly raw: RawSocket;
  #handler: SocketHandler | undefined;
  readonly #watchReads: WatchReads | undefined;
  /** A write error, which is held back until all bytes that have arrived are read. */
  #held: HeldError | undefined;

  constructor(raw: RawSocket, reader?: MemoryReader, watchReads?: WatchReads) {
    this.raw = raw;
    this.#watchReads = watchReads;
    if (reader !== undefined) reader.socket = this;
  }

  attach(handler: SocketHandler): void {
    this.#handler = handler;
    const isSeen = this.#watchReads?.(this.raw);
    this.#watchWrites();
    this.raw
      // The handler may free the memory of a chunk only if no other code sees the chunk.
      .on("data", (bytes) => handler.onData(bytes, isSeen?.() !== true))
      .on("end", () => {
        if (this.#held === undefined) handler.onHalfClose();
        else this.#held.release();
      })
      .on("drain", () => handler.onDrain())
      .on("error", (error) => handler.onError(error))
      .on("close", () => {
        this.#held?.clear();
        handler.onClose();
      })
      .on("timeout", () => handler.onTimeout());
  }

  /**
   * Watches the result of each write, to hold an error back. This code has no file of its own, for the reason that
   * `MemoryReader` gives.
   */
  #watchWrites(): void {
    const results = writeResultsOf(this.raw);
    if (results === undefined) return;
    const { onwrite } = results;
    results.onwrite = (error) => onwrite(error && this.#holds(error) ? undefined : error);
  }

  /**
   * Holds a write error back if the upstream may have answered before it closed the connection. Returns whether the error is
   * held back.
   */
  #holds(error: Error): boolean {
    if (!isWorthHolding(this.raw, error)) return false;
    this.#held ??= new HeldError(this.raw, error);
    return true;
  }

  /** Takes the bytes that a `MemoryReader` has read; a socket with a `MemoryReader` emits no `data` event. */
  onRead(bytes: Uint8Array): void {
    if (this.#handler !== undefined) this.#handler.onData(bytes, false);
    // The upstream has sent bytes before it got a request: they cannot be a response.
    else this.raw.destroy();
  }

  get remoteAddress(): string | undefined {
    return this.raw.remoteAddress;
  }

  get protocol(): string | undefined {
    // If no protocol was negotiated, Node has `false` here, and Bun has `false` or an empty string.
    return (this.raw as Partial<TLSSocket>).alpnProtocol || undefined;
  }

  get destroyed(): boolean {
    return this.raw.destroyed;
  }

  get usable(): boolean {
    const { destroyed, writable, readableEnded } = this.raw;
    return !destroyed && writable && !readableEnded && this.#held === undefined;
  }

  get allowHalfOpen(): boolean {
    return this.raw.allowHalfOpen;
  }

  write(bytes: Uint8Array, done?: Release): boolean {
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

  confirmEnd(done: () => void, isTunnel = false): void {
    const { allowHalfOpen, writableEnded, writableLength } = this.raw;
    // After `end()`, no write can test the connection.
    if (!allowHalfOpen || writableEnded || (isTunnel && writableLength > 0)) return done();
    // Node 22 reports some resets as a graceful close. An empty write tests this: on a connection that was reset, it fails.
    this.raw.write("", (error) => {
      if (!error) done();
    });
  }

  end(): void {
    this.raw.end();
  }

  reset(): void {
    const { writableEnded, writableFinished, writableLength } = this.raw;
    // While Node sends the FIN, it cannot reset the connection (EINVAL), and would leave it open.
    if (writableEnded && !writableFinished && writableLength === 0) return this.destroy();
    try {
      this.raw.resetAndDestroy();
    } catch {
      // Only a TCP socket can be reset. A TLS connection is closed without close_notify instead.
      this.raw.destroy();
    }
  }

  destroy(): void {
    this.raw.destroy();
  }
}
