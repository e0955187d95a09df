import { ProxyError } from "../error.ts";
import type { FilledPoolOptions } from "../options/pooloptions.ts";
import { poolClosed } from "../transport/closing.ts";
import type { Counters, OriginStats } from "../transport/stats.ts";
import { ExpiryTimer } from "../transport/timers.ts";
import { AddressBalancer } from "./addressbalancer.ts";
import type { Codec } from "./codec.ts";
import {
  Connection,
  type ConnectionOptions,
  type ConnectionOwner,
  type Job,
} from "./connection.ts";
import type { Connector, Destination } from "./connector.ts";
import { IdleTrimmer } from "./idletrimmer.ts";
import { Queue } from "./queue.ts";

/** An idle connection is closed this many milliseconds before the upstream would close it, according to `Keep-Alive`. */
const KEEP_ALIVE_MARGIN = 1000;

/** The parts that all pools of a transport share. */
export interface PoolParts {
  readonly counters: Counters;
  readonly idleList: IdleList;
  readonly connector: Connector;
  readonly codec: Codec;
}

/** The connections to one origin, and the requests that wait for a connection. */
export class OriginPool implements ConnectionOwner {
  /** The name of the origin in the statistics. */
  readonly name: string;
  /** Whether the transport has removed this pool: later requests to the origin get a new pool. */
  isEvicted = false;
  readonly #options: FilledPoolOptions;
  readonly #destination: Destination;
  readonly #counters: Counters;
  readonly #connector: Connector;
  readonly #codec: Codec;
  readonly #balancer: AddressBalancer = new AddressBalancer();
  readonly #connections: Set<Connection> = new Set();
  /**
   * The connections that carry a tunnel. They are not shared and last for long, so they do not count for `maxSockets`: a
   * few hundred WebSockets would leave no connection for requests. Until the upstream has switched the protocol, a
   * connection counts: otherwise clients could make the proxy open any number of connections to an upstream that is slow
   * to respond.
   */
  readonly #tunnels: Set<Connection> = new Set();
  /**
   * The idle connections, in the order in which they became idle. The last one is used first: it is the least likely to
   * be stale, and the connections that are not needed expire.
   */
  readonly #idle: Connection[] = [];
  /** The idle connections of all pools of the transport. */
  readonly #idleList: IdleList;
  readonly #queue: Queue<Job>;
  readonly #trimmer: IdleTrimmer;
  readonly #expiryTimer: ExpiryTimer = new ExpiryTimer((now) => this.#closeExpired(now));
  /** The number of connections that were opened. */
  #opened = 0;
  /** The value of `#opened` at the last call of `checkUnused`. */
  #openedAtCheck = 0;
  #isClosed = false;
  /** Whether tunnels are closed once the last request has finished. */
  #endsTunnels = false;
  /** The callbacks that wait until the pool has no connection. */
  #onEmpty: (() => void)[] = [];

  constructor(
    destination: Destination,
    options: FilledPoolOptions,
    { counters, idleList, connector, codec }: PoolParts,
  ) {
    const { origin, socketPath } = destination;
    this.name = socketPath === undefined ? origin : `unix:${socketPath}`;
    this.#destination = destination;
    this.#options = options;
    this.#counters = counters;
    this.#idleList = idleList;
    this.#connector = connector;
    this.#codec = codec;
    this.#queue = new Queue(options);
    this.#trimmer = new IdleTrimmer(options.maxFreeSockets, (count) => {
      for (const connection of this.#idle.slice(0, count)) this.#discard(connection);
      return this.#idle.length;
    });
  }

  /** Sends a job on a connection, as soon as there is one. Waiting jobs are sent in the order of the calls. */
  assign(job: Job): void {
    if (this.#isClosed) return job.fail(poolClosed());
    const idle = needsOwn(job) ? undefined : this.#takeIdle();
    if (idle !== undefined || this.#makeRoom()) return this.#send(job, idle);
    this.#counters.version++;
    this.#queue.push(job);
  }

  /** Removes a job that waits for a connection. */
  leave(job: Job): void {
    this.#counters.version++;
    this.#queue.remove(job);
  }

  get stats(): OriginStats {
    const free = this.#idle.length;
    const inUse = this.#connections.size - free;
    return { inUse, free, waiting: this.#queue.length, tunnels: this.#tunnels.size };
  }

  /** Whether the pool has no connection. */
  get isEmpty(): boolean {
    return this.#connections.size === 0 && this.#tunnels.size === 0;
  }

  /** Returns whether the pool is empty, and has opened no connection since the last call. */
  checkUnused(): boolean {
    const hasOpened = this.#opened !== this.#openedAtCheck;
    this.#openedAtCheck = this.#opened;
    return this.isEmpty && !hasOpened;
  }

  /**
   * Lets running and waiting requests finish, then closes the connections.
   * @param endsTunnels whether tunnels are closed then, too; otherwise the pool waits for them
   */
  close(endsTunnels = false): Promise<void> {
    this.#isClosed = true;
    this.#endsTunnels = endsTunnels;
    for (const connection of this.#idle) connection.destroy();
    this.#closeTunnels();
    if (this.isEmpty) return Promise.resolve();
    return new Promise((resolve) => void this.#onEmpty.push(resolve));
  }

  /** Fails all requests, and closes the connections. */
  destroy(): void {
    const error = poolClosed();
    this.#isClosed = true;
    for (let job; (job = this.#queue.shift()) !== undefined;) job.fail(error);
    for (const connection of [...this.#connections, ...this.#tunnels]) {
      connection.job?.fail(error);
      connection.destroy();
    }
  }

  // ── for connections ──

  onFree(connection: Connection): void {
    const { maxFreeSockets, freeSocketTimeout, socketTTL } = this.#options;
    this.#counters.version++;
    const now = performance.now();
    const end = socketTTL > 0 ? connection.openedAt + socketTTL : Infinity;
    const next = this.#queue.length > 0 ? this.#queue.shift() : undefined;
    if (next !== undefined) {
      const isUsable = now < end && !needsOwn(next);
      if (!isUsable) this.#discard(connection);
      return this.#send(next, isUsable ? connection : undefined);
    }
    // The upstream's `Keep-Alive` field may shorten the time, but not lengthen it.
    const limit = Math.min(freeSocketTimeout, connection.keepAliveTimeout - KEEP_ALIVE_MARGIN);
    const left = Math.min(limit, end - now);
    if (left <= 0 || maxFreeSockets === 0 || this.#isClosed) return connection.destroy();
    connection.setIdle(now + left);
    const count = this.#idle.push(connection);
    if (count > maxFreeSockets) this.#trimmer.update(count);
    this.#idleList.push(connection);
    const { idleUntil } = connection;
    if (idleUntil < this.#expiryTimer.firesAt) this.#expiryTimer.arm(idleUntil);
  }

  onOpen(connection: Connection): void {
    this.#counters.countOpened(connection.job !== undefined);
  }

  onSwitch(connection: Connection): void {
    this.#counters.tunnels++;
    this.#counters.version++;
    this.#connections.delete(connection);
    this.#tunnels.add(connection);
    this.#sendNext();
    if (this.#endsTunnels) this.#closeTunnels();
  }

  onSilence({ job }: Connection): void {
    if (job === undefined || job.isPaused) return;
    this.#counters.timedOut++;
    this.#counters.version++;
    job.fail(new ProxyError("connection_read_timeout", { message: "the connection was silent" }));
  }

  onClose(connection: Connection): void {
    this.#counters[connection.socket === undefined ? "failed" : "closed"]++;
    if (connection.idleUntil <= performance.now()) this.#counters.timedOut++;
    this.#counters.version++;
    this.#connections.delete(connection);
    this.#tunnels.delete(connection);
    this.#removeIdle(connection);
    this.#sendNext();
    if (this.#endsTunnels) this.#closeTunnels();
    if (this.isEmpty) for (const onEmpty of this.#onEmpty.splice(0)) onEmpty();
  }

  // ── within the pool ──

  /** Sends a job on the connection that is reused, or on a new connection if none is given. */
  #send(job: Job, reused?: Connection): void {
    const connection = reused ?? this.#open(job);
    if (reused === undefined) this.#connections.add(connection);
    // A request on a new connection is counted when the connection is established.
    if (reused !== undefined) this.#counters.requests++;
    this.#counters.version++;
    if (this.#balancer.size > 1) this.#balancer.countRequest(connection.address);
    job.sendOn(connection);
  }

  /** Sends the next waiting job on a new connection, if there is room for one. */
  #sendNext(): void {
    if (this.#connections.size >= this.#options.maxSockets) return;
    const next = this.#queue.shift();
    if (next !== undefined) this.#send(next);
  }

  /** Closes the tunnels, if they are to be closed and no request is running. */
  #closeTunnels(): void {
    if (!this.#endsTunnels || this.#connections.size > 0) return;
    for (const connection of this.#tunnels) {
      connection.job?.fail(poolClosed());
      connection.destroy();
    }
  }

  /** Opens a connection for a job. If the job asks to switch protocols, no other job uses the connection. */
  #open({ upgrade, connectTimeout }: Job): Connection {
    const options: ConnectionOptions =
      upgrade === undefined
        ? this.#options
        : { keepAlive: false, timeout: this.#options.timeout, maySwitch: true };
    const connection = new Connection(options, this.#codec, this);
    this.#opened++;
    const connecting = this.#connector.connect(this.#destination, {
      order: (found) => this.#balancer.orderAddresses(found),
      onCancel: (cancel) => connection.opening.onCancel(cancel),
      connectTimeout,
    });
    connecting.then(
      (socket) => connection.open(socket),
      (error: unknown) => connection.abandon(error),
    );
    return connection;
  }

  /** Removes and returns an idle connection for a request; undefined if a new connection is needed. */
  #takeIdle(): Connection | undefined {
    for (let idle; (idle = this.#chooseIdle()) !== undefined;) {
      // The timer that closes expired connections may be late.
      if (idle.socket?.usable === true && idle.idleUntil > performance.now()) {
        this.#removeIdle(idle);
        return idle;
      }
      this.#discard(idle);
    }
    return undefined;
  }

  /**
   * Returns the idle connection to use; undefined if there is none, or if a new connection is better. If the host has
   * several addresses, a connection to the least used address is preferred.
   */
  #chooseIdle(): Connection | undefined {
    const last = this.#idle.at(-1);
    if (this.#balancer.size < 2 || last === undefined) return last;
    const { leastUsed } = this.#balancer;
    const found = this.#idle.findLast(({ address }) => address === leastUsed);
    const isFull = this.#connections.size >= this.#options.maxSockets;
    return found ?? (isFull || !this.#balancer.isOverused(last.address) ? last : undefined);
  }

  /** Makes room for one more connection, if necessary by closing an idle one; returns whether there is room. */
  #makeRoom(): boolean {
    if (this.#connections.size < this.#options.maxSockets) return true;
    const oldest = this.#idle[0];
    if (oldest !== undefined) this.#discard(oldest);
    return oldest !== undefined;
  }

  /** Closes a connection. It no longer counts for `maxSockets`, although the socket closes later. */
  #discard(connection: Connection): void {
    this.#connections.delete(connection);
    this.#removeIdle(connection);
    connection.destroy();
  }

  #removeIdle(connection: Connection): void {
    const index = this.#idle.lastIndexOf(connection);
    if (index < 0) return;
    // Nearly always, the last connection is taken: `pop` allocates nothing.
    if (index === this.#idle.length - 1) this.#idle.pop();
    else this.#idle.splice(index, 1);
    this.#idleList.remove(connection);
    if (this.#trimmer.isWatching) this.#trimmer.update(this.#idle.length);
  }

  /** Closes the idle connections that have expired; returns when the next one expires, or `Infinity`. */
  #closeExpired(now: number): number {
    let next = Infinity;
    for (const connection of this.#idle) {
      if (connection.idleUntil <= now) connection.destroy();
      else next = Math.min(next, connection.idleUntil);
    }
    return next;
  }
}

/** Whether a job needs a connection that no other job has used. */
function needsOwn({ newConnection, upgrade }: Job): boolean {
  return newConnection || upgrade !== undefined;
}

/** A connection in the linked list of idle connections. It holds the links itself, so that a request allocates none. */
export interface IdleItem {
  /** The item before this one, which became idle earlier. */
  previousIdle: IdleItem | undefined;
  /** The item after this one, which became idle later. */
  nextIdle: IdleItem | undefined;
  /** Closes the connection. */
  destroy(): void;
}

/**
 * The idle connections of all pools of a transport, in the order in which they became idle. Above the limit, the
 * connection that has been idle longest is closed. A limit for each origin alone would not limit the number of file
 * descriptors where clients decide how many origins there are.
 */
export class IdleList {
  readonly #limit: number;
  #first: IdleItem | undefined;
  #last: IdleItem | undefined;
  #length = 0;

  constructor(limit: number) {
    this.#limit = limit;
  }

  /** Adds a connection that has become idle. */
  push(item: IdleItem): void {
    const last = this.#last;
    item.previousIdle = last;
    if (last === undefined) this.#first = item;
    else last.nextIdle = item;
    this.#last = item;
    if (++this.#length <= this.#limit) return;
    const oldest = this.#first as IdleItem;
    this.remove(oldest);
    oldest.destroy();
  }

  /** Removes a connection that is used again or closed; does nothing if the connection is not in the list. */
  remove(item: IdleItem): void {
    const { previousIdle, nextIdle } = item;
    if (previousIdle === undefined && this.#first !== item) return;
    if (previousIdle === undefined) this.#first = nextIdle;
    else previousIdle.nextIdle = nextIdle;
    if (nextIdle === undefined) this.#last = previousIdle;
    else nextIdle.previousIdle = previousIdle;
    item.previousIdle = undefined;
    item.nextIdle = undefined;
    this.#length--;
  }
}
