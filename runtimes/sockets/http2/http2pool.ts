import { ProxyError } from "../../../src/error.ts";
import { AddressBalancer } from "../../../src/http1/addressbalancer.ts";
import type { AttemptArguments, SharedParts, SharedPool } from "../../../src/http1/client.ts";
import type { Connector, ConnectScope, Destination, Socket } from "../../../src/http1/connector.ts";
import { IdleTrimmer } from "../../../src/http1/idletrimmer.ts";
import type { OriginPool } from "../../../src/http1/originpool.ts";
import { Queue } from "../../../src/http1/queue.ts";
import type { FilledPoolOptions } from "../../../src/options/pooloptions.ts";
import { poolClosed } from "../../../src/transport/closing.ts";
import type { Counters, OriginStats } from "../../../src/transport/stats.ts";
import { ExpiryTimer } from "../../../src/transport/timers.ts";
import type { NetSocket } from "../netsocket.ts";
import { Http2Connection, type Http2Owner } from "./http2connection.ts";
import { StreamAttempt, type StreamPool } from "./streamattempt.ts";

/** A connection of this age in milliseconds, or a younger one, counts as new for a request that needs a new connection. */
const NEW = 1000;
/** Milliseconds for which an upstream that has chosen HTTP/1.1 is not asked again. */
const REMEMBERED = 600_000;

/** Creates the pool of connections to one origin that carry HTTP/2. */
export function createHttp2Pool(
  destination: Destination,
  options: FilledPoolOptions,
  parts: SharedParts,
): SharedPool {
  return new Http2Pool(destination, options, parts);
}

/**
 * The HTTP/2 connections to one origin, and the requests that wait for one. Requests share a connection up to the upstream's
 * limit; only if all connections are full, another one is opened.
 *
 * An upstream with TLS may choose HTTP/1.1 instead: its requests then go to an HTTP/1.1 pool, which takes the connected
 * socket over.
 */
export class Http2Pool implements SharedPool, StreamPool, Http2Owner<StreamAttempt> {
  readonly name: string;
  isEvicted = false;
  readonly #destination: Destination;
  readonly #options: FilledPoolOptions;
  readonly #parts: SharedParts;
  readonly #counters: Counters;
  readonly #balancer: AddressBalancer = new AddressBalancer();
  readonly #connections: Set<Http2Connection<StreamAttempt>> = new Set();
  /** The idle connections, in the order in which they became idle. */
  readonly #idle: Http2Connection<StreamAttempt>[] = [];
  readonly #queue: Queue<StreamAttempt>;
  readonly #trimmer: IdleTrimmer;
  readonly #expiryTimer: ExpiryTimer = new ExpiryTimer((now) => this.#closeExpired(now));
  readonly #handover: Handover;
  /** The pool for an upstream that has chosen HTTP/1.1. */
  #http1: OriginPool | undefined;
  /** The time until which the upstream is taken to speak HTTP/1.1, on the clock of `performance.now()`. */
  #http1Until = 0;
  #opened = 0;
  #openedAtCheck = 0;
  #isClosed = false;
  #onEmpty: (() => void)[] = [];

  constructor(destination: Destination, options: FilledPoolOptions, parts: SharedParts) {
    const { origin, socketPath } = destination;
    this.name = socketPath === undefined ? origin : `unix:${socketPath}`;
    this.#destination = destination;
    this.#options = options;
    this.#parts = parts;
    this.#counters = parts.counters;
    this.#handover = new Handover(parts.connector);
    this.#queue = new Queue(options);
    this.#trimmer = new IdleTrimmer(options.maxFreeSockets, (count) => {
      for (const connection of this.#idle.slice(0, count)) this.#discard(connection);
      return this.#idle.length;
    });
  }

  send(...[request, scope, resolve, reject]: AttemptArguments): void {
    const attempt = new StreamAttempt(request, scope, resolve, reject);
    const { beginLater } = this.#parts;
    // A small body that has arrived is sent with its length, and can be sent again.
    if (request.body !== null && beginLater !== undefined) beginLater(attempt, this);
    else attempt.begin(this);
  }

  /** Sends an attempt on a connection, as soon as one has room. Waiting attempts are sent in the order of the calls. */
  assign(attempt: StreamAttempt): void {
    if (this.#isClosed) return attempt.fail(poolClosed());
    if (this.#http1Until > 0 && this.#http1Until > performance.now())
      return attempt.sendOverHttp1(this);
    const connection = this.#choose(attempt, attempt.isFresh);
    if (connection !== undefined) return this.#give(connection, attempt);
    this.#counters.version++;
    this.#queue.push(attempt);
  }

  /** Removes an attempt that waits for a connection. */
  leave(attempt: StreamAttempt): void {
    this.#counters.version++;
    this.#queue.remove(attempt);
  }

  /** Sends a request over HTTP/1.1, which the upstream has chosen. */
  sendOverHttp1(...attempt: AttemptArguments): void {
    this.#http1 ??= this.#parts.createHttp1Pool(this.#handover);
    this.#parts.sendOverHttp1(this.#http1, ...attempt);
  }

  get stats(): OriginStats {
    const free = this.#idle.length;
    const http1 = this.#http1?.stats ?? { inUse: 0, free: 0, waiting: 0, tunnels: 0 };
    return {
      inUse: this.#connections.size - free + http1.inUse,
      free: free + http1.free,
      waiting: this.#queue.length + http1.waiting,
      tunnels: http1.tunnels,
    };
  }

  get isEmpty(): boolean {
    return this.#connections.size === 0 && this.#http1?.isEmpty !== false;
  }

  checkUnused(): boolean {
    const hasOpened = this.#opened !== this.#openedAtCheck;
    this.#openedAtCheck = this.#opened;
    const isHttp1Unused = this.#http1?.checkUnused() ?? true;
    return this.isEmpty && isHttp1Unused && !hasOpened;
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    for (const connection of this.#idle.slice()) connection.destroy();
    if (this.#connections.size > 0) {
      await new Promise<void>((resolve) => void this.#onEmpty.push(resolve));
    }
    await this.#http1?.close();
  }

  destroy(): void {
    const error = poolClosed();
    this.#isClosed = true;
    for (let waiting; (waiting = this.#queue.shift()) !== undefined;) waiting.fail(error);
    for (const connection of this.#connections) {
      for (const attempt of connection.attempts.slice()) attempt.fail(error);
      connection.destroy();
    }
    this.#http1?.destroy();
  }

  // ── for connections ──

  onOpen(connection: Http2Connection<StreamAttempt>): void {
    this.#counters.countOpened(false);
    const waiting = connection.attempts.slice();
    for (const attempt of waiting) attempt.leaveConnection();
    for (const attempt of waiting) {
      if (connection.room > 0) this.#give(connection, attempt);
      else this.assign(attempt);
    }
    this.onRelease(connection);
  }

  onRelease(connection: Http2Connection<StreamAttempt>): void {
    this.#serveQueue();
    const { attempts, isDraining, idleUntil } = connection;
    if (attempts.length > 0 || isDraining || idleUntil < Infinity) return;
    const { freeSocketTimeout, maxFreeSockets, socketTTL } = this.#options;
    this.#counters.version++;
    const now = performance.now();
    const end = socketTTL > 0 ? connection.openedAt + socketTTL : Infinity;
    const left = Math.min(freeSocketTimeout, end - now);
    if (left <= 0 || maxFreeSockets === 0 || this.#isClosed) return connection.destroy();
    connection.setIdle(now + left);
    const count = this.#idle.push(connection);
    if (count > maxFreeSockets) this.#trimmer.update(count);
    this.#parts.idleList.push(connection);
    if (now + left < this.#expiryTimer.firesAt) this.#expiryTimer.arm(now + left);
  }

  onSilence(connection: Http2Connection<StreamAttempt>): void {
    const silent = connection.attempts.filter(({ isPaused }) => !isPaused);
    if (silent.length === 0) return;
    this.#counters.timedOut++;
    this.#counters.version++;
    const error = new ProxyError("connection_read_timeout", {
      message: "the connection was silent",
    });
    for (const attempt of silent) attempt.fail(error);
    connection.drain();
  }

  onClose(connection: Http2Connection<StreamAttempt>): void {
    this.#counters[connection.isOpen ? "closed" : "failed"]++;
    if (connection.idleUntil <= performance.now()) this.#counters.timedOut++;
    this.#counters.version++;
    this.#forget(connection);
    this.#serveQueue();
  }

  // ── within the pool ──

  #give(connection: Http2Connection<StreamAttempt>, attempt: StreamAttempt): void {
    attempt.join(connection, this.#options.connectTimeout);
    this.#counters.version++;
    if (!connection.isOpen) return;
    if (connection.idleUntil < Infinity) {
      this.#removeIdle(connection);
      connection.setInUse();
    }
    this.#counters.requests++;
    if (this.#balancer.size > 1) this.#balancer.countRequest(connection.address);
    attempt.sendOn(connection);
  }

  #serveQueue(): void {
    for (let first; (first = this.#queue.first) !== undefined;) {
      const connection = this.#choose(first, false);
      if (connection === undefined) return;
      this.#queue.shift();
      this.#give(connection, first);
    }
  }

  /**
   * Returns a connection that has room for a request, or opens one.
   * @param attempt the request
   * @param isFresh whether the request needs a new connection
   */
  #choose(
    { connectTimeout }: StreamAttempt,
    isFresh: boolean,
  ): Http2Connection<StreamAttempt> | undefined {
    const now = performance.now();
    const { socketTTL } = this.#options;
    let old: Http2Connection<StreamAttempt> | undefined;
    for (const connection of this.#connections) {
      const isExpired =
        connection.idleUntil <= now || (socketTTL > 0 && connection.openedAt + socketTTL <= now);
      if (isExpired && connection.isOpen) connection.drain();
      if (connection.room <= 0) continue;
      if (!isFresh || !connection.isOpen || now - connection.openedAt < NEW) return connection;
      old ??= connection;
    }
    return this.#makeRoom() ? this.#open(connectTimeout) : old;
  }

  /** @param asked the limit that the request has for the time to connect; undefined for the pool's */
  #open(asked: number | undefined): Http2Connection<StreamAttempt> {
    const connectTimeout = longer(asked, this.#options.connectTimeout);
    const connection = new Http2Connection(this.#options, this, connectTimeout);
    this.#opened++;
    this.#connections.add(connection);
    this.#parts.connector
      .connect(this.#destination, {
        order: (found) => this.#balancer.orderAddresses(found),
        onCancel: (cancel) => connection.onCancel(cancel),
        connectTimeout,
      })
      .then((socket) => this.#onSocket(connection, socket))
      .catch((error: unknown) => connection.abandon(error));
    return connection;
  }

  /** Begins HTTP/2 on a connected socket, or hands the socket to the HTTP/1.1 pool if the upstream has chosen HTTP/1.1. */
  #onSocket(connection: Http2Connection<StreamAttempt>, socket: Socket): void {
    if (connection.isClosed) return socket.destroy();
    const { secure, origin } = this.#destination;
    if (!secure || socket.protocol === "h2") {
      this.#http1Until = 0;
      try {
        return connection.start(socket as NetSocket, origin);
      } catch (error) {
        socket.destroy();
        throw error;
      }
    }
    this.#http1Until = performance.now() + REMEMBERED;
    const waiting = connection.attempts.slice();
    for (const attempt of waiting) attempt.leaveConnection();
    connection.isClosed = true;
    this.#handover.offer(socket);
    this.#connections.delete(connection);
    for (const attempt of waiting) attempt.sendOverHttp1(this);
    for (let next; (next = this.#queue.shift()) !== undefined;) next.sendOverHttp1(this);
    this.#handover.destroyUnused();
    this.#callIfEmpty();
  }

  /** Makes room for one more connection, if necessary by closing an idle one; returns whether there is room. */
  #makeRoom(): boolean {
    if (this.#connections.size < this.#options.maxSockets) return true;
    const oldest = this.#idle[0];
    if (oldest !== undefined) this.#discard(oldest);
    return oldest !== undefined;
  }

  /** Closes an idle connection. It no longer counts for `maxSockets`, although the socket closes later. */
  #discard(connection: Http2Connection<StreamAttempt>): void {
    this.#forget(connection);
    connection.destroy();
  }

  #forget(connection: Http2Connection<StreamAttempt>): void {
    this.#connections.delete(connection);
    this.#removeIdle(connection);
    this.#callIfEmpty();
  }

  #callIfEmpty(): void {
    if (this.#connections.size > 0) return;
    for (const onEmpty of this.#onEmpty.splice(0)) onEmpty();
  }

  #removeIdle(connection: Http2Connection<StreamAttempt>): void {
    const index = this.#idle.lastIndexOf(connection);
    if (index < 0) return;
    this.#idle.splice(index, 1);
    this.#parts.idleList.remove(connection);
    if (this.#trimmer.isWatching) this.#trimmer.update(this.#idle.length);
  }

  /** Closes the idle connections that have expired; returns when the next one expires, or `Infinity`. */
  #closeExpired(now: number): number {
    let next = Infinity;
    for (const connection of this.#idle.slice()) {
      if (connection.idleUntil <= now) connection.destroy();
      else next = Math.min(next, connection.idleUntil);
    }
    return next;
  }
}

/**
 * Returns the longer of two time limits, where 0 means no limit. A request that asks for less than the pool's own limit must
 * not end a connection that other requests wait for as well.
 */
function longer(asked: number | undefined, limit: number): number {
  return asked === 0 || limit === 0 ? 0 : Math.max(asked ?? 0, limit);
}

/** A connector that hands over a socket that is connected already, and opens the others. */
class Handover implements Connector {
  readonly #connector: Connector;
  #offered: Socket | undefined;

  constructor(connector: Connector) {
    this.#connector = connector;
  }

  /** Offers a socket to the next call of `connect`. */
  offer(socket: Socket): void {
    this.#offered = socket;
  }

  /** Closes the socket that was offered, if no connection has taken it. */
  destroyUnused(): void {
    this.#offered?.destroy();
    this.#offered = undefined;
  }

  connect(destination: Destination, scope: ConnectScope): Promise<Socket> {
    const socket = this.#offered;
    this.#offered = undefined;
    if (socket?.usable === true) return Promise.resolve(socket);
    return this.#connector.connect(destination, scope);
  }
}
