import {
  type AttemptArguments,
  mustWait,
  type SharedParts,
  type SharedPool,
} from "../../../src/http1/client.ts";
import type {
  Connector,
  ConnectScope,
  Destination,
  NameUser,
  Socket,
} from "../../../src/http1/connector.ts";
import type { OriginPool } from "../../../src/http1/originpool.ts";
import { Pool } from "../../../src/http1/pool.ts";
import type { FilledPoolOptions } from "../../../src/options/pooloptions.ts";
import type { Holder } from "../../../src/transport/claim.ts";
import type { OriginStats } from "../../../src/transport/stats.ts";
import type { NetSocket } from "../netsocket.ts";
import { Http2Connection, type Http2Owner } from "./http2connection.ts";
import { StreamAttempt, type StreamPool } from "./streamattempt.ts";

/** The age in milliseconds up to which a connection counts as new for a request that needs a new connection. */
const MAX_NEW_AGE = 1000;
/** Milliseconds for which an upstream that has chosen HTTP/1.1 is not offered HTTP/2 again. */
const HTTP1_TTL = 600_000;

const NONE: OriginStats = { inUse: 0, free: 0, waiting: 0, tunnels: 0 };

/** Creates a pool of HTTP/2 connections to one origin. */
export function createHttp2Pool(
  destination: Destination,
  options: FilledPoolOptions,
  parts: SharedParts,
): SharedPool {
  return new Http2Pool(destination, options, parts);
}

/**
 * The HTTP/2 connections to one origin, and the requests that wait for a connection. Requests share a connection up to the
 * upstream's limit. If all connections are full, or if a request needs a new connection, the pool opens another one.
 *
 * An upstream with TLS may choose HTTP/1.1 instead: its requests then go to an HTTP/1.1 pool, which takes the connected
 * socket over. WebSockets go to that pool as well, unless the upstream announces that it takes them over HTTP/2 (RFC 8441).
 */
export class Http2Pool
  extends Pool<Http2Connection<StreamAttempt>, StreamAttempt>
  implements SharedPool, StreamPool, Http2Owner<StreamAttempt>
{
  readonly #parts: SharedParts;
  readonly #handover: Handover;
  /** The pool for requests over HTTP/1.1. */
  #http1: OriginPool | undefined;
  /** The time until which the pool assumes that the upstream speaks HTTP/1.1, on the clock of `performance.now()`. */
  #http1Until = 0;

  constructor(destination: Destination, options: FilledPoolOptions, parts: SharedParts) {
    super(destination, options, parts);
    this.#parts = parts;
    this.#handover = new Handover(parts.connector);
  }

  send(
    request: AttemptArguments[0],
    scope: AttemptArguments[1],
    resolve: AttemptArguments[2],
    reject: AttemptArguments[3],
  ): void {
    const attempt = new StreamAttempt(request, scope, resolve, reject);
    // Wait for a small body to arrive: it is then sent with its length, and can be sent again. Without a body, wait for the
    // runtime to notice which connections the upstream has closed.
    this.accept(attempt, mustWait(request) ? this.#parts.beginLater : undefined);
  }

  /** Sends an attempt on a connection that has room for it. If none has, the attempt waits for its turn in the queue. */
  assign(attempt: StreamAttempt): void {
    const isHttp1 = this.#http1Until > 0 && this.#http1Until > performance.now();
    if (isHttp1 || (attempt.upgrade !== undefined && this.#lacksWebSockets))
      return attempt.sendOverHttp1(this);
    const connection = this.#choose(attempt, attempt.isFresh);
    if (connection !== undefined) return this.#give(connection, attempt);
    this.counters.version++;
    this.queue.push(attempt);
  }

  freePlace(attempt: StreamAttempt): void {
    this.queue.end(attempt);
  }

  /** Sends a request over HTTP/1.1: the upstream has chosen HTTP/1.1, or takes WebSockets only over HTTP/1.1. */
  sendOverHttp1(...attempt: AttemptArguments): void {
    this.#http1 ??= this.#parts.createHttp1Pool(this.#handover);
    this.#parts.sendOverHttp1(this.#http1, ...attempt);
  }

  override get stats(): OriginStats {
    const own = super.stats;
    const { inUse, free, waiting, tunnels } = this.#http1?.stats ?? NONE;
    let onlyTunnels = 0;
    let onStreams = 0;
    for (const connection of this.connections) {
      const count = connection.tunnels;
      onStreams += count;
      if (count > 0 && count === connection.attempts.length) onlyTunnels++;
    }
    return {
      inUse: own.inUse - onlyTunnels + inUse,
      free: own.free + free,
      waiting: own.waiting + waiting,
      tunnels: onStreams + tunnels,
    };
  }

  override get isEmpty(): boolean {
    return super.isEmpty && this.#http1?.isEmpty !== false;
  }

  override checkUnused(): boolean {
    const isHttp1Unused = this.#http1?.checkUnused() ?? true;
    return super.checkUnused() && isHttp1Unused;
  }

  override async close(endsTunnels?: boolean): Promise<void> {
    await super.close(endsTunnels);
    await this.#http1?.close(endsTunnels);
  }

  override destroy(): void {
    super.destroy();
    this.#http1?.destroy();
  }

  // ── for the queue ──

  override get taken(): number {
    let taken = 0;
    for (const { attempts, tunnels } of this.connections) taken += attempts.length - tunnels;
    return taken;
  }

  override *holders(): Generator<Holder> {
    for (const { attempts } of this.connections) yield* attempts;
  }

  // ── for connections ──

  onOpen(connection: Http2Connection<StreamAttempt>): void {
    this.recordOpened(connection, false);
    const waiting = connection.attempts.slice();
    for (const attempt of waiting) attempt.leaveConnection();
    for (const attempt of waiting) {
      if (connection.room > 0) this.#give(connection, attempt);
      else this.assign(attempt);
    }
    // Drain again a connection that was drained before it was open: without attempts, this closes it, and nothing else would.
    if (connection.isDraining) connection.drain();
    this.onRelease(connection);
  }

  onSwitch(): void {
    this.counters.tunnels++;
    this.counters.version++;
    this.closeTunnels();
  }

  protected override get hasRequests(): boolean {
    return this.taken > 0;
  }

  onRelease(connection: Http2Connection<StreamAttempt>): void {
    this.serveQueue();
    this.closeTunnels();
    const { attempts, isDraining, idleUntil } = connection;
    if (attempts.length > 0 || isDraining || idleUntil < Infinity) return;
    this.counters.version++;
    this.addIdle(connection);
  }

  onSilence(connection: Http2Connection<StreamAttempt>): void {
    const silent = connection.attempts.filter(({ isPaused }) => !isPaused);
    if (silent.length === 0) return;
    const error = this.countSilence();
    for (const attempt of silent) attempt.fail(error);
    connection.drain();
  }

  // ── within the pool ──

  /** Whether WebSockets must go over HTTP/1.1, because connections are open and none of them takes WebSockets. */
  get #lacksWebSockets(): boolean {
    const open = [...this.connections].filter(({ isOpen }) => isOpen);
    return open.length > 0 && !open.some(({ takesWebSockets }) => takesWebSockets);
  }

  #give(connection: Http2Connection<StreamAttempt>, attempt: StreamAttempt): void {
    if (attempt.upgrade !== undefined && connection.isOpen && !connection.takesWebSockets) {
      return attempt.sendOverHttp1(this);
    }
    attempt.join(connection, this.options.connectTimeout);
    this.counters.version++;
    if (this.queue.isCounting) this.queue.start(attempt);
    if (!connection.isOpen) return;
    if (connection.idleUntil < Infinity) {
      this.removeIdle(connection);
      connection.setInUse();
    }
    this.counters.requests++;
    if (this.balancer.size > 1) this.balancer.countRequest(connection.address);
    attempt.sendOn(connection);
  }

  protected override serveQueue(): void {
    for (let first; (first = this.queue.first) !== undefined;) {
      const connection = this.#choose(first, false);
      if (connection === undefined) return;
      this.queue.shift();
      this.#give(connection, first);
    }
  }

  /**
   * Returns a connection that has room for a request, or opens one; undefined if all are full and none may be opened.
   * @param attempt the request
   * @param isFresh whether the request needs a new connection
   */
  #choose(attempt: StreamAttempt, isFresh: boolean): Http2Connection<StreamAttempt> | undefined {
    const now = performance.now();
    let other: Http2Connection<StreamAttempt> | undefined;
    for (const connection of this.connections) {
      const isExpired = connection.idleUntil <= now || this.isTooOld(connection, now);
      if (isExpired && connection.isOpen) connection.drain();
      if (connection.room <= 0) continue;
      const { isOpen, openedAt, connectTimeout } = connection;
      // All requests that wait for a connection fail when its time limit passes, so that limit must not be too short.
      const isSuitable = isOpen
        ? !isFresh || now - openedAt < MAX_NEW_AGE
        : longer(attempt.connectTimeout, connectTimeout) === connectTimeout;
      if (isSuitable) return connection;
      other ??= connection;
    }
    return this.makeRoom() ? this.#open(attempt.connectTimeout) : other;
  }

  /** @param ownTimeout the request's own limit for the time to connect; the longer of this limit and the pool's applies */
  #open(ownTimeout: number | undefined): Http2Connection<StreamAttempt> {
    const connectTimeout = longer(ownTimeout, this.options.connectTimeout);
    const connection = new Http2Connection(this.options, this, connectTimeout);
    this.connect(connection, { onCancel: (cancel) => connection.onCancel(cancel), connectTimeout })
      .then((socket) => this.#onSocket(connection, socket))
      .catch((error: unknown) => connection.abandon(error));
    return connection;
  }

  /** Begins HTTP/2 on a connected socket, or hands the socket to the HTTP/1.1 pool if the upstream has chosen HTTP/1.1. */
  #onSocket(connection: Http2Connection<StreamAttempt>, socket: Socket): void {
    if (connection.isClosed) return socket.destroy();
    const { secure, origin } = this.destination;
    if (!secure || socket.protocol === "h2") {
      this.#http1Until = 0;
      try {
        return connection.start(socket as NetSocket, origin);
      } catch (error) {
        socket.destroy();
        throw error;
      }
    }
    this.#http1Until = performance.now() + HTTP1_TTL;
    const waiting = connection.attempts.slice();
    for (const attempt of waiting) attempt.leaveConnection();
    connection.isClosed = true;
    this.#handover.offer(socket);
    this.connections.delete(connection);
    for (const attempt of waiting) attempt.sendOverHttp1(this);
    for (let next; (next = this.queue.shift()) !== undefined;) next.sendOverHttp1(this);
    this.#handover.destroyUnused();
    this.callIfEmpty();
  }
}

/**
 * Returns the longer of two time limits, where 0 means no limit. A request with a shorter limit than the pool's must not end a
 * connection that other requests wait for as well.
 */
function longer(ownTimeout: number | undefined, limit: number): number {
  return ownTimeout === 0 || limit === 0 ? 0 : Math.max(ownTimeout ?? 0, limit);
}

/**
 * A connector that returns the connected socket that was offered to it, and otherwise lets another connector open a connection.
 */
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

  watch(destination: Destination, user: NameUser): void {
    this.#connector.watch?.(destination, user);
  }
}
