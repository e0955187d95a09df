import { ProxyError } from "../error.ts";
import type { FilledPoolOptions } from "../options/pooloptions.ts";
import { poolClosed } from "../transport/closing.ts";
import type { Holder, Places } from "../transport/claim.ts";
import type { Counters, OriginStats } from "../transport/stats.ts";
import { ExpiryTimer } from "../transport/timers.ts";
import { AddressBalancer } from "./addressbalancer.ts";
import type {
  Connector,
  ConnectScope,
  Destination,
  FoundAddresses,
  NameUser,
  Socket,
} from "./connector.ts";
import { IdleTrimmer } from "./idletrimmer.ts";
import { Queue, type QueuedJob } from "./queue.ts";

/**
 * A connection takes no further request when this number of lookups in a row have not found its address. If a name has
 * many addresses, some name servers return only a part of them at a time, in turn. If each answer has at least a third of
 * the addresses, no connection is closed. If the server picks addresses at random, a connection lasts at least three TTLs.
 * The connections to a host that has moved are closed after three lookups.
 */
const MAX_ABSENCES = 3;

/** Schedules a call of `pool.begin(attempt)`; see `ClientParts.schedule`. */
export type BeginLater = <Attempt>(
  pool: { begin(attempt: Attempt): void },
  attempt: Attempt,
) => void;

/** The members of an attempt that its pool calls before the attempt is a job. */
interface PoolAttempt<OwnPool> {
  /** Asks the pool for a connection. */
  begin(pool: OwnPool): void;
  fail(error: ProxyError): void;
}

/** The parts that all pools of a transport share. */
export interface PoolParts {
  readonly counters: Counters;
  readonly idleList: IdleList;
  readonly connector: Connector;
}

/** The members of a connection that its pool uses. */
export interface PooledConnection extends IdleItem {
  readonly openedAt: number;
  /** Milliseconds that it took to establish the connection; undefined until then. */
  readonly connectDuration: number | undefined;
  /** The time until which the connection may be idle, on the clock of `performance.now()`; `Infinity` during a request. */
  readonly idleUntil: number;
  /** The upstream's IP address, once the connection is established. */
  readonly address: string | undefined;
  /** The number of lookups in a row that have not found `address`. */
  absences: number;
  /** Makes the connection take no further request, and close when its present requests are over. */
  drain(): void;
  /** Makes the connection idle until a time. */
  setIdle(until: number): void;
  /** Fails the requests that use the connection, or wait until it is established. */
  fail(thrown: unknown): void;
}

/**
 * The connections to one origin, and the requests that wait for a connection. This class manages everything that does not
 * depend on the protocol: how many connections there are, which of them are idle, and when they are closed.
 */
export abstract class Pool<
  Connection extends PooledConnection = PooledConnection,
  Job extends QueuedJob = QueuedJob,
>
  implements NameUser, Places
{
  /** The name of the origin in the statistics. */
  readonly name: string;
  /** Whether the transport has removed this pool. Later requests to the origin get a new pool. */
  isEvicted = false;
  protected readonly options: FilledPoolOptions;
  protected readonly destination: Destination;
  protected readonly counters: Counters;
  protected readonly balancer: AddressBalancer = new AddressBalancer();
  /** The connections that count towards `maxSockets`. */
  protected readonly connections: Set<Connection> = new Set();
  /**
   * The connections of HTTP/1.1 that carry a tunnel. They do not count towards `maxSockets`, because they stay open for long,
   * and a few hundred WebSockets would leave no connection for requests. A connection counts until the upstream has
   * switched the protocol. Otherwise, clients could make the proxy open any number of connections to an upstream that is
   * slow to respond.
   */
  protected readonly tunnels: Set<Connection> = new Set();
  /** The idle connections, in the order in which they became idle. */
  protected readonly idle: Connection[] = [];
  protected readonly queue: Queue<Job>;
  #isClosed = false;
  #isDestroyed = false;
  /** The number of attempts that the pool has accepted and that have not begun. They count as running requests. */
  #accepted = 0;
  /** Whether tunnels are closed when the last request has finished. */
  #endsTunnels = false;
  readonly #connector: Connector;
  /** The idle connections of all pools of the transport. */
  readonly #idleList: IdleList;
  readonly #trimmer: IdleTrimmer;
  readonly #expiryTimer: ExpiryTimer = new ExpiryTimer((now) => this.#closeExpired(now));
  /** The number of connections that the pool has begun to open. */
  #opened = 0;
  /** The value of `#opened` at the last call of `checkUnused`. */
  #openedAtCheck = 0;
  /** The value of `#opened` at the last call of `checkUsed`. */
  #openedAtLookup = 0;
  /** Called when the pool is empty. They resolve the promises of `close`. */
  #onEmpty: (() => void)[] = [];

  constructor(destination: Destination, options: FilledPoolOptions, parts: PoolParts) {
    const { origin, socketPath } = destination;
    this.name = socketPath === undefined ? origin : `unix:${socketPath}`;
    this.destination = destination;
    this.options = options;
    this.counters = parts.counters;
    this.queue = new Queue(options, this);
    this.#connector = parts.connector;
    this.#idleList = parts.idleList;
    this.#trimmer = new IdleTrimmer(options.maxFreeSockets, (count) => {
      for (const connection of this.idle.slice(0, count)) this.discard(connection);
      return this.idle.length;
    });
  }

  /** Begins an attempt: with `beginLater` when that calls `begin`, otherwise immediately. */
  accept(attempt: PoolAttempt<this>, beginLater: BeginLater | undefined): void {
    if (this.#isClosed) return attempt.fail(poolClosed());
    this.#accepted++;
    if (beginLater === undefined) this.begin(attempt);
    else beginLater(this, attempt);
  }

  /** Begins an attempt that the pool has accepted, even if the pool was closed meanwhile, but not if it was destroyed. */
  begin(attempt: PoolAttempt<this>): void {
    this.#accepted--;
    if (this.#isDestroyed) attempt.fail(poolClosed());
    else attempt.begin(this);
    // An attempt that was aborted meanwhile asks for no connection, so no connection's end follows.
    this.closeTunnels();
    this.callIfEmpty();
  }

  /** Removes a job that waits for a connection. */
  leave(job: Job): void {
    this.counters.version++;
    this.queue.remove(job);
  }

  /** Returns the error for a job whose time limit has passed while it waited for a connection. */
  explainWait(since: number): ProxyError {
    return this.queue.explainWait(performance.now() - since);
  }

  get stats(): OriginStats {
    const free = this.idle.length;
    const inUse = this.connections.size - free;
    return { inUse, free, waiting: this.queue.length, tunnels: this.tunnels.size };
  }

  get isEmpty(): boolean {
    return this.#count === 0;
  }

  /** Returns whether the pool is empty, and has opened no connection since the last call. */
  checkUnused(): boolean {
    const hasOpened = this.#opened !== this.#openedAtCheck;
    this.#openedAtCheck = this.#opened;
    return this.isEmpty && !hasOpened;
  }

  /**
   * Lets running and waiting requests finish, then closes the connections.
   * @param endsTunnels whether the tunnels are closed once no request is running, because the caller sets no time limit
   * that would close them
   */
  close(endsTunnels: boolean = false): Promise<void> {
    this.#isClosed = true;
    this.#endsTunnels = endsTunnels;
    for (const connection of this.idle.slice()) connection.destroy();
    this.closeTunnels();
    if (this.#count === 0) return Promise.resolve();
    return new Promise((resolve) => void this.#onEmpty.push(resolve));
  }

  /** Fails all requests, and closes the connections. */
  destroy(): void {
    const error = poolClosed();
    this.#isClosed = true;
    this.#isDestroyed = true;
    for (let job; (job = this.queue.shift()) !== undefined;) job.fail(error);
    for (const connection of [...this.connections, ...this.tunnels]) {
      connection.fail(error);
      connection.destroy();
    }
  }

  /** Called when a connection is closed, or could not be established. */
  onClose(connection: Connection): void {
    this.counters[connection.connectDuration === undefined ? "failed" : "closed"]++;
    if (connection.idleUntil <= performance.now()) this.counters.timedOut++;
    this.counters.version++;
    this.connections.delete(connection);
    this.tunnels.delete(connection);
    this.removeIdle(connection);
    this.serveQueue();
    this.closeTunnels();
    this.callIfEmpty();
  }

  // ── `Places`: called by the queue ──

  abstract get taken(): number;

  abstract holders(): Iterable<Holder>;

  // ── `NameUser`: called by the connector ──

  checkUsed(): boolean {
    const hasOpened = this.#opened !== this.#openedAtLookup;
    this.#openedAtLookup = this.#opened;
    return !this.#isClosed && (hasOpened || this.connections.size > 0);
  }

  onAddresses(found: FoundAddresses): void {
    this.balancer.update(found);
    const present = new Set([...found.good, ...found.down].map(({ address }) => address));
    for (const connection of this.connections) {
      if (connection.address === undefined) continue;
      connection.absences = present.has(connection.address) ? 0 : connection.absences + 1;
      if (connection.absences >= MAX_ABSENCES) connection.drain();
    }
  }

  // ── for the pools of a protocol ──

  /** Sends waiting jobs as long as there is room for them. */
  protected abstract serveQueue(): void;

  /** Adds a connection, and opens a socket for it. */
  protected connect(connection: Connection, scope: Omit<ConnectScope, "order">): Promise<Socket> {
    const order: ConnectScope["order"] = (found) => this.balancer.orderAddresses(found);
    const connecting = this.#connector.connect(this.destination, { ...scope, order });
    this.#opened++;
    this.connections.add(connection);
    return connecting;
  }

  /** Counts a connection that is established, and watches the addresses of its host name from now on. */
  protected recordOpened(opened: Connection, hasRequest: boolean): void {
    this.counters.countOpened(hasRequest);
    // If the order of the addresses is fixed (`isOrder`), different programs may listen on them, so requests must not
    // alternate between the addresses.
    if (this.balancer.isOrder) {
      for (const connection of this.connections) {
        const { address = opened.address } = connection;
        if (address !== opened.address) connection.drain();
      }
    }
    this.#connector.watch?.(this.destination, this);
  }

  /** Makes room for one more connection, if necessary by closing an idle one; returns whether there is room. */
  protected makeRoom(): boolean {
    if (this.connections.size < this.options.maxSockets) return true;
    const oldest = this.idle[0];
    if (oldest !== undefined) this.discard(oldest);
    return oldest !== undefined;
  }

  /** Closes a connection. It no longer counts towards `maxSockets`, although the socket closes later. */
  protected discard(connection: Connection): void {
    this.connections.delete(connection);
    this.removeIdle(connection);
    connection.destroy();
  }

  /** Whether a connection has reached the age of `socketTTL`. */
  protected isTooOld({ openedAt }: Connection, now: number): boolean {
    const { socketTTL } = this.options;
    return socketTTL > 0 && openedAt + socketTTL <= now;
  }

  /**
   * Keeps a connection that carries no request, or closes it if the options do not let the pool keep it.
   * @param limit milliseconds for which the upstream keeps the connection
   */
  protected addIdle(connection: Connection, limit: number = Infinity): void {
    const { maxFreeSockets, freeSocketTimeout, socketTTL } = this.options;
    const now = performance.now();
    const end = socketTTL > 0 ? connection.openedAt + socketTTL : Infinity;
    const left = Math.min(freeSocketTimeout, limit, end - now);
    if (left <= 0 || maxFreeSockets === 0 || this.#isClosed) return connection.destroy();
    connection.setIdle(now + left);
    const count = this.idle.push(connection);
    if (count > maxFreeSockets) this.#trimmer.update(count);
    this.#idleList.push(connection);
    const { idleUntil } = connection;
    if (idleUntil < this.#expiryTimer.firesAt) this.#expiryTimer.arm(idleUntil);
  }

  /** Removes a connection that is used again or closed; does nothing if the connection is not idle. */
  protected removeIdle(connection: Connection): void {
    const index = this.idle.lastIndexOf(connection);
    if (index < 0) return;
    // In most cases, the connection is the last one. Use `pop` for that case: unlike `splice`, it allocates nothing.
    if (index === this.idle.length - 1) this.idle.pop();
    else this.idle.splice(index, 1);
    this.#idleList.remove(connection);
    if (this.#trimmer.isWatching) this.#trimmer.update(this.idle.length);
  }

  /**
   * Whether connections carry requests, or are being opened for them. It is read only after `close`, when no connection is
   * idle.
   */
  protected get hasRequests(): boolean {
    return this.connections.size > 0;
  }

  /** Closes the tunnels if `close` was called with `endsTunnels` and no request is running. */
  protected closeTunnels(): void {
    if (!this.#endsTunnels || this.#accepted > 0 || this.hasRequests) return;
    for (const connection of [...this.connections, ...this.tunnels]) {
      connection.fail(poolClosed());
      connection.destroy();
    }
  }

  /** Counts a connection that was silent for too long, and returns the error for its requests. */
  protected countSilence(): ProxyError {
    this.counters.timedOut++;
    this.counters.version++;
    return new ProxyError("connection_read_timeout", { message: "the connection was silent" });
  }

  /** Resolves the promises of `close` if the pool is empty. */
  protected callIfEmpty(): void {
    if (this.#count === 0) for (const onEmpty of this.#onEmpty.splice(0)) onEmpty();
  }

  // ── within this class ──

  get #count(): number {
    return this.connections.size + this.tunnels.size + this.#accepted;
  }

  /** Closes the idle connections that have expired; returns when the next one expires, or `Infinity`. */
  #closeExpired(now: number): number {
    let next = Infinity;
    for (const connection of this.idle.slice()) {
      if (connection.idleUntil <= now) connection.destroy();
      else next = Math.min(next, connection.idleUntil);
    }
    return next;
  }
}

/**
 * A connection in the linked list of idle connections. It holds the links of the list itself, so that a request allocates
 * nothing.
 */
export interface IdleItem {
  /** The item before this one, which became idle earlier. */
  previousIdle: IdleItem | undefined;
  /** The item after this one, which became idle later. */
  nextIdle: IdleItem | undefined;
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
