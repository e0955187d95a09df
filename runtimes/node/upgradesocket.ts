import type { ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import type { Release } from "../../src/body/memory.ts";
import type { Listener } from "../../src/transport/scope.ts";
import type { Tunnel, TunnelHandler } from "../../src/transport/tunnel.ts";
import { freeing } from "./chunkmemory.ts";
import { readIntoShared } from "./internals/sharedread.ts";
import { isUnwrappedSocket, watchReads } from "./internals/wrapped.ts";

/** The number of bytes that are kept before the upgrade is answered. Above it, the proxy stops reading from the client. */
const MAX_EARLY = 65_536;

/**
 * The client's socket of a request that asks for an upgrade, from the request to the end of the connection.
 *
 * Node hands the socket over without a listener. Until the upstream has answered, this class reads from it, because a
 * socket that is not read does not tell that the client has disconnected. It keeps the early bytes: they reach the
 * upstream after a 101 only. An upstream that refuses the upgrade would take them for another request.
 */
export class UpgradeSocket implements TunnelHandler {
  readonly #socket: Socket;
  /** Whether other code sees the bytes that arrive now. */
  readonly #isSeen: () => boolean;
  #early: Uint8Array[];
  #earlyBytes: number;
  /** Whether the client has disconnected, or has closed its direction. */
  #hasLeft = false;
  #listener: Listener | undefined;
  #tunnel: Tunnel | undefined;
  #response: ServerResponse | undefined;

  /** @param head the bytes that came with the request's head */
  constructor(socket: Duplex, head: Uint8Array) {
    // Node's type is Duplex, because a server can be given any stream as a connection.
    this.#socket = socket as Socket;
    this.#isSeen = watchReads(this.#socket);
    this.#early = head.byteLength > 0 ? [head] : [];
    this.#earlyBytes = head.byteLength;
    socket
      .on("data", (bytes: Uint8Array) => this.#onData(bytes))
      .on("end", () => this.#onClientEnd())
      .on("drain", () => this.#onClientDrain())
      // The error is followed by `close`, which ends the exchange or the tunnel.
      .on("error", () => {})
      .on("close", () => this.#onClientClose());
    if (socket.destroyed) this.#hasLeft = true;
  }

  // ── for the exchange ──

  /** Calls the listener when the client disconnects before the upgrade is answered. */
  listen(listener: Listener): void {
    if (this.#hasLeft) listener.handleEvent();
    else this.#listener = listener;
  }

  unlisten(): void {
    this.#listener = undefined;
  }

  /** Whether the client waits for the answer, and the responses in front of it have not ended the connection. */
  get isWaiting(): boolean {
    return !this.#hasLeft && this.#socket.writable;
  }

  /** Closes the connection without an answer. */
  destroy(): void {
    this.#socket.destroy();
  }

  // ── the answer ──

  /**
   * Answers with a response, which ends the connection.
   *
   * The rest of what the client sends is read and dropped: closing a connection with unread bytes resets it, and the client
   * might lose the response.
   */
  beginResponse(res: ServerResponse): void {
    const socket = this.#socket;
    // The response may have begun, and have failed to write its head.
    if (this.#response !== undefined) return;
    this.#response = res;
    this.#early = [];
    res.shouldKeepAlive = false;
    res.on("finish", () => socket.end(() => socket.destroy()));
    res.assignSocket(socket);
    socket.resume();
  }

  /**
   * Answers with a 101, and connects the client with the upstream.
   * @param head the head of the response
   * @param timeout milliseconds that the tunnel may be silent; 0 for no limit
   */
  switchTo(tunnel: Tunnel, head: string, timeout: number): void {
    const socket = this.#socket;
    // A server's own limits are about requests; other streams than sockets have none.
    if (typeof socket.setTimeout === "function") {
      socket.setTimeout(timeout);
      if (timeout > 0) socket.on("timeout", () => this.#close());
    }
    this.#tunnel = tunnel;
    socket.write(head, "latin1");
    tunnel.attach(this);
    for (const bytes of this.#early.splice(0)) this.#send(bytes);
    readIntoShared(socket, (bytes) => this.#onData(bytes), this.#isSeen);
    socket.resume();
  }

  // ── from the upstream ──

  /** @internal */
  onData(bytes: Uint8Array, mayFree = false): void {
    const release = mayFree ? this.#freeing(bytes) : undefined;
    if (!this.#socket.write(bytes, release)) this.#tunnel?.pause();
  }

  /** @internal */
  onDrain(): void {
    this.#socket.resume();
  }

  /** @internal */
  onEnd(): void {
    this.#socket.end();
  }

  /** @internal */
  onClose(error?: unknown): void {
    if (error !== undefined) return this.#breakOff();
    const socket = this.#socket;
    // A client that does not close its direction would keep the connection open: nothing takes its bytes any more.
    socket.end(() => socket.destroy());
    socket.resume();
  }

  // ── from the client ──

  #onData(bytes: Uint8Array): void {
    if (this.#tunnel !== undefined) {
      const release = this.#freeing(bytes);
      return this.#send(bytes, release !== undefined && this.#isSeen() ? undefined : release);
    }
    if (this.#response !== undefined) return;
    this.#early.push(bytes);
    this.#earlyBytes += bytes.byteLength;
    if (this.#earlyBytes >= MAX_EARLY) this.#socket.pause();
  }

  #send(bytes: Uint8Array, release?: Release): void {
    if (this.#tunnel?.write(bytes, release) === false) this.#socket.pause();
  }

  /**
   * Returns a function that frees the memory of bytes that pass through the socket, if they are many, and no code but Node's own
   * sees what is written. What a stream emits that is no socket, such as one that a test tool gives to the server, may belong
   * to its writer.
   */
  #freeing(bytes: Uint8Array): Release | undefined {
    const release = freeing(bytes);
    return release !== undefined && isUnwrappedSocket(this.#socket) ? release : undefined;
  }

  #onClientDrain(): void {
    this.#tunnel?.resume();
    // A server's own listener, which tells the response, was removed with the upgrade.
    this.#response?.emit("drain");
  }

  #onClientEnd(): void {
    this.#leave();
    this.#tunnel?.end();
  }

  #onClientClose(): void {
    this.#leave();
    // After an orderly end in both directions, bytes may still be on their way to the upstream.
    const { readableEnded, writableFinished } = this.#socket;
    if (!readableEnded || !writableFinished) this.#tunnel?.destroy();
  }

  #leave(): void {
    this.#hasLeft = true;
    this.#listener?.handleEvent();
  }

  #close(): void {
    this.#tunnel?.destroy();
    this.#socket.destroy();
  }

  /** Resets the connection, so that the client does not mistake the end for an orderly close. */
  #breakOff(): void {
    const socket = this.#socket;
    try {
      socket.resetAndDestroy();
    } catch {
      // Only a TCP socket can be reset. A TLS connection is closed without close_notify instead.
      socket.destroy();
    }
  }
}
