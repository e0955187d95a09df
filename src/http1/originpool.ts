import type { FilledPoolOptions } from "../options/pooloptions.ts";
import type { Holder } from "../transport/claim.ts";
import type { Codec } from "./codec.ts";
import {
  Connection,
  type ConnectionOptions,
  type ConnectionOwner,
  type Job,
} from "./connection.ts";
import type { Destination, Socket } from "./connector.ts";
import { Pool, type PoolParts } from "./pool.ts";
import { isRefusal, RefusingOrigin } from "./refusingorigin.ts";

/** An idle connection is closed this many milliseconds before the upstream would close it, according to `Keep-Alive`. */
const KEEP_ALIVE_MARGIN = 1000;

/** The HTTP/1.1 connections to one origin. A connection carries one request at a time, or becomes a tunnel. */
export class OriginPool extends Pool<Connection, Job> implements ConnectionOwner {
  readonly #codec: Codec;
  /** Shares one attempt to connect between requests while the origin refuses connections; otherwise undefined. */
  #refusing: RefusingOrigin | undefined;

  constructor(
    destination: Destination,
    options: FilledPoolOptions,
    parts: PoolParts,
    codec: Codec,
  ) {
    super(destination, options, parts);
    this.#codec = codec;
  }

  /** Sends a job as soon as there is a connection for it. The queue decides the order of waiting jobs. */
  assign(job: Job): void {
    const idle = needsNewConnection(job) ? undefined : this.#takeIdle(job);
    if (idle !== undefined || this.makeRoom()) return this.#send(job, idle);
    this.counters.version++;
    this.queue.push(job);
  }

  // ── `ConnectionOwner`: called by connections ──

  onFree(connection: Connection): void {
    this.counters.version++;
    // Give the place back first, because the queue chooses the next request by the number of places that each client
    // address has.
    if (connection.account !== undefined) this.queue.end(connection);
    const next = this.queue.length > 0 ? this.queue.shift() : undefined;
    // The upstream's `Keep-Alive` field may shorten the idle timeout, but not lengthen it.
    if (next === undefined)
      return this.addIdle(connection, connection.keepAliveTimeout - KEEP_ALIVE_MARGIN);
    const isUsable =
      !this.isTooOld(connection, performance.now()) &&
      !needsNewConnection(next) &&
      connection.clientAddress === this.#clientOf(next);
    if (!isUsable) this.discard(connection);
    this.#send(next, isUsable ? connection : undefined);
  }

  onOpen(connection: Connection): void {
    this.recordOpened(connection, connection.job !== undefined);
  }

  override onClose(connection: Connection): void {
    if (connection.account !== undefined) this.queue.end(connection);
    super.onClose(connection);
  }

  onSwitch(connection: Connection): void {
    this.counters.tunnels++;
    this.counters.version++;
    this.connections.delete(connection);
    this.tunnels.add(connection);
    this.serveQueue();
    this.closeTunnels();
  }

  onSilence({ job }: Connection): void {
    if (job !== undefined && !job.isPaused) job.fail(this.countSilence());
  }

  // ── `Places`: called by the queue ──

  override get taken(): number {
    return this.connections.size;
  }

  override *holders(): Generator<Holder> {
    yield* this.connections;
    yield* this.tunnels;
  }

  // ── within the pool ──

  /** Sends a job on `reused`, or on a new connection if `reused` is undefined. */
  #send(job: Job, reused?: Connection): void {
    const connection = reused ?? this.#open(job);
    // A request on a new connection is counted when the connection is established.
    if (reused !== undefined) this.counters.requests++;
    this.counters.version++;
    if (this.balancer.size > 1) this.balancer.countRequest(connection.address);
    connection.take(job);
    if (this.queue.isCounting) this.queue.start(connection);
  }

  /** Sends the next waiting job on a new connection, if there is room for one. */
  protected override serveQueue(): void {
    if (this.connections.size >= this.options.maxSockets) return;
    const next = this.queue.shift();
    if (next !== undefined) this.#send(next);
  }

  /** Opens a connection for a job. If the job asks to switch protocols, no other job uses the connection. */
  #open(job: Job): Connection {
    const { upgrade, connectTimeout } = job;
    const options: ConnectionOptions =
      upgrade === undefined
        ? this.options
        : { keepAlive: false, timeout: this.options.timeout, maySwitch: true };
    const connection = new Connection(options, this.#codec, this);
    const clientAddress = this.#clientOf(job);
    connection.clientAddress = clientAddress;
    const onCancel = (cancel: () => void): void => connection.onCancel(cancel);
    const connect = (): Promise<Socket> =>
      this.connect(connection, { onCancel, connectTimeout, clientAddress });
    // The connection counts towards `maxSockets` even while it waits for the result of another connection's attempt
    // (`RefusingOrigin`).
    this.connections.add(connection);
    const refusing = this.#refusing;
    (refusing === undefined ? connect() : refusing.open(connect, onCancel)).then(
      (socket) => connection.open(socket),
      (error: unknown) => {
        if (isRefusal(error))
          this.#refusing ??= new RefusingOrigin(() => (this.#refusing = undefined));
        connection.abandon(error);
      },
    );
    return connection;
  }

  /**
   * Removes and returns an idle connection for a request; undefined if a new connection is needed. The connection that
   * became idle last is used first, because it is the least likely to be stale. So connections that are not needed
   * expire.
   */
  #takeIdle(job: Job): Connection | undefined {
    for (let idle; (idle = this.#chooseIdle(job)) !== undefined;) {
      // The timer that closes expired connections may be late.
      if (idle.socket?.usable === true && idle.idleUntil > performance.now()) {
        this.removeIdle(idle);
        return idle;
      }
      this.discard(idle);
    }
    return undefined;
  }

  /**
   * Returns the idle connection to use; undefined if there is none, or if a new connection is better. If the host has
   * several addresses, a connection to the least used address is preferred. A connection that names a client is used only
   * for that client.
   */
  #chooseIdle(job: Job): Connection | undefined {
    if (this.options.proxyProtocol !== undefined) {
      const client = job.clientAddress;
      return this.idle.findLast(({ clientAddress }) => clientAddress === client);
    }
    const last = this.idle.at(-1);
    return this.balancer.size < 2 || last === undefined ? last : this.#chooseLeastUsed(last);
  }

  /** @param last the connection that became idle last */
  #chooseLeastUsed(last: Connection): Connection | undefined {
    const { leastUsed } = this.balancer;
    const found = this.idle.findLast(({ address }) => address === leastUsed);
    const isFull = this.connections.size >= this.options.maxSockets;
    return found ?? (isFull || !this.balancer.isOverused(last.address) ? last : undefined);
  }

  /** Returns the client address that a new connection for a job names to the upstream; undefined without `proxyProtocol`. */
  #clientOf(job: Job): string | undefined {
    return this.options.proxyProtocol && job.clientAddress;
  }
}

/** Whether a job needs a connection that no other job has used. */
function needsNewConnection({ newConnection, upgrade }: Job): boolean {
  return newConnection || upgrade !== undefined;
}
