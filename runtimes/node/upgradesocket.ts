import type { ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { Duplex } from "node:stream";
import type { Release } from "../../src/body/memory.ts";
import { clientGone, type ProxyError } from "../../src/error.ts";
import { fillTunnelOptions, type TunnelOptions } from "../../src/options/limitoptions.ts";
import type { Listener } from "../../src/transport/scope.ts";
import { startBackgroundTimer } from "../../src/transport/timers.ts";
import { type Tunnel, type TunnelHandler, unreadEnd } from "../../src/transport/tunnel.ts";
import { freeing } from "./chunkmemory.ts";
import { isUnwrappedSocket, watchReads } from "./internals/wrapped.ts";

/** If this number of bytes is kept before the upgrade is answered, the proxy stops reading from the client. */
const MAX_EARLY = 65_536;

/** The state of one side of a tunnel. The states of both sides decide when the tunnel is closed. */
interface Side {
  /** Whether the side has closed its direction. */
  hasEnded: boolean;
  /** Whether bytes wait for this side. The side must take some of them before the other side may send more. */
  isFull: boolean;
}

/**
 * The client's socket of a request that asks for an upgrade, from the request to the end of the connection.
 *
 * Node hands the socket over without a listener. Until the upstream has answered, this class reads from the socket, because a
 * socket that is not read does not report that the client has disconnected. The class keeps the early bytes, and sends them to
 * the upstream only after a 101, because an upstream that refuses the upgrade would parse them as another request.
 */
export class UpgradeSocket implements TunnelHandler {
  readonly #socket: Socket;
  /** Whether other code sees the bytes that arrive now. */
  readonly #isSeen: () => boolean;
  #early: Uint8Array[];
  #earlyBytes: number;
  /** Whether the client has disconnected, or has closed its direction. */
  #hasLeft = false;
  /** The exchanges that listen; an interceptor may begin several for one request (`scope.fork()`). */
  readonly #listeners = new Set<Listener>();
  #tunnel: Tunnel | undefined;
  /** Whether the tunnel carries a WebSocket, whose time limit begins when one direction ends (`#limitEnd`). */
  #isWebSocket = false;
  readonly #client: Side = { hasEnded: false, isFull: false };
  readonly #upstream: Side = { hasEnded: false, isFull: false };
  /** Whether the tunnel is closed: the upstream neither sends nor takes anything more. */
  #isTunnelClosed = false;
  #closeTimeout = 0;
  /** The timer that closes both sides of a tunnel if its remaining bytes are not read in time. */
  #closing: ReturnType<typeof setTimeout> | undefined;
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
      .on("end", () => this.hasEnded() && this.#onClientEnd())
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
    else this.#listeners.add(listener);
  }

  unlisten(listener: Listener): void {
    this.#listeners.delete(listener);
  }

  /** Whether the client still waits for the answer, and no earlier response has ended the connection. */
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
   * Further bytes of the client are read and dropped: closing a connection with unread bytes resets it, and the client might
   * lose the response.
   */
  beginResponse(res: ServerResponse): void {
    // If the head of a response cannot be written, a 500 follows in the same `res`, which already has the connection.
    if (this.#response !== undefined) return;
    this.#response = res;
    this.#early = [];
    this.assignTo(res);
    this.#socket.resume();
  }

  /** Connects the client with the upstream. The client must already have the head of the response. */
  switchTo(tunnel: Tunnel, isWebSocket: boolean, options: TunnelOptions): void {
    const socket = this.#socket;
    const { tunnelTimeout: timeout, tunnelCloseTimeout } = fillTunnelOptions(options);
    this.#isWebSocket = isWebSocket;
    this.#closeTimeout = tunnelCloseTimeout;
    // Replace the server's timeout of the socket, which is for requests. Streams that are not sockets have no timeout.
    if (typeof socket.setTimeout === "function") {
      socket.setTimeout(timeout);
      if (timeout > 0) socket.on("timeout", () => this.#close());
    }
    this.#tunnel = tunnel;
    tunnel.attach(this);
    for (const bytes of this.#early.splice(0)) this.#send(bytes);
    socket.resume();
  }

  // ── from the upstream ──

  /** @internal */
  onData(bytes: Uint8Array, mayFree = false): void {
    const release = mayFree ? this.#freeing(bytes) : undefined;
    if (this.#socket.write(bytes, release)) return;
    // A closed connection never emits `drain`, so the upstream would stay paused.
    if (!this.#socket.destroyed) this.#tunnel?.pause();
    this.#client.isFull = true;
    this.#limitEnd();
  }

  /** @internal */
  onDrain(): void {
    this.#socket.resume();
    this.#upstream.isFull = false;
    this.#limitEnd();
  }

  /** @internal */
  onEnd(): void {
    this.#socket.end();
    this.#upstream.hasEnded = true;
    this.#limitEnd();
  }

  /** @internal */
  onClose(error?: unknown): void {
    const socket = this.#socket;
    this.#isTunnelClosed = true;
    if (socket.destroyed) return clearTimeout(this.#closing);
    if (error !== undefined) return this.breakOff();
    this.#upstream.hasEnded = true;
    this.#limitEnd();
    // The client's bytes are no longer used, so close the connection even if the client does not close its direction.
    this.endBoth();
    socket.resume();
  }

  // ── overridden for HTTP/2 streams ──

  /** Whether the event `end` means that the client has closed its direction. */
  protected hasEnded(): boolean {
    return true;
  }

  /** Whether both directions were closed gracefully before the connection was closed. */
  protected hasClosed(): boolean {
    const { readableEnded, writableFinished } = this.#socket;
    return readableEnded && writableFinished;
  }

  /** Makes a response write to the connection, and close it afterwards. */
  protected assignTo(res: ServerResponse): void {
    res.shouldKeepAlive = false;
    res.on("finish", () => this.endBoth());
    if (res.socket !== this.#socket) res.assignSocket(this.#socket);
  }

  /** Closes our direction, and then the connection. */
  protected endBoth(): void {
    const socket = this.#socket;
    socket.end(() => socket.destroy());
  }

  /** Resets the connection, so that the client does not mistake the end for a graceful close. */
  protected breakOff(): void {
    const socket = this.#socket;
    try {
      socket.resetAndDestroy();
    } catch {
      // Only a TCP socket can be reset. A TLS connection is closed without close_notify instead.
      socket.destroy();
    }
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
    if (this.#tunnel?.write(bytes, release) !== false) return;
    this.#socket.pause();
    this.#upstream.isFull = true;
    this.#limitEnd();
  }

  /**
   * Returns a function that frees the memory of a chunk, if the chunk is large and only Node's own code sees it. Streams that
   * are not sockets, such as those of test tools, may still use the chunk.
   */
  #freeing(bytes: Uint8Array): Release | undefined {
    const release = freeing(bytes);
    return release !== undefined && isUnwrappedSocket(this.#socket) ? release : undefined;
  }

  #onClientDrain(): void {
    this.#tunnel?.resume();
    this.#client.isFull = false;
    this.#limitEnd();
    // The server's own `drain` listener, which informs the response, was removed with the upgrade.
    this.#response?.emit("drain");
  }

  #onClientEnd(): void {
    this.#leave();
    this.#tunnel?.end();
    this.#client.hasEnded = true;
    this.#limitEnd();
  }

  #onClientClose(): void {
    this.#leave();
    if (this.#isTunnelClosed) return clearTimeout(this.#closing);
    // After a graceful close in both directions, bytes may still be on their way to the upstream: let the tunnel end by itself.
    // Resume it, because the end of the upstream's direction arrives after its remaining bytes, which are read and dropped
    // (`onData`).
    if (this.hasClosed()) this.#tunnel?.resume();
    else this.#tunnel?.destroy();
  }

  /**
   * Sets or clears the time limit for the rest of a tunnel.
   *
   * If one side ends its direction, it may have disconnected, or may only have nothing more to send. The difference shows only
   * once bytes for that side make no progress. A WebSocket has no half-closed state, so its limit begins when one side ends. The
   * limit of every tunnel begins when it is closed: the upstream then takes nothing more of the client.
   */
  #limitEnd(): void {
    const [client, upstream] = [this.#client, this.#upstream];
    if (this.#closeTimeout === 0 || !(client.hasEnded || upstream.hasEnded)) return;
    const isClosed =
      this.#isWebSocket || this.#isTunnelClosed || (client.hasEnded && upstream.hasEnded);
    const isStalled = [client, upstream].some((side) => side.hasEnded && side.isFull);
    if (isClosed || isStalled) {
      this.#closing ??= startBackgroundTimer(() => this.#closeUnread(), this.#closeTimeout);
    } else {
      clearTimeout(this.#closing);
      this.#closing = undefined;
    }
  }

  /**
   * Closes a tunnel whose remaining bytes were not read in time. While bytes wait for the client, the client is at fault,
   * because the upstream may be unable to end before the client takes them.
   */
  #closeUnread(): void {
    const { hasEnded, isFull } = this.#upstream;
    const isClients = this.#client.isFull || (hasEnded && !isFull);
    this.#close(isClients ? clientGone() : unreadEnd(this.#closeTimeout));
  }

  #leave(): void {
    this.#hasLeft = true;
    for (const listener of this.#listeners) listener.handleEvent();
  }

  #close(reason?: ProxyError): void {
    this.#tunnel?.destroy(reason);
    this.destroy();
  }
}
