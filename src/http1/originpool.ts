import { ProxyError } from "../error.ts";
import { poolClosed } from "../closing.ts";
import type { FilledPoolOptions } from "../options/pooloptions.ts";
import type { Counters } from "../stats.ts";
import type { OriginStats } from "../transport.ts";
import type { Codec } from "./codec.ts";
import { Connection } from "./connection.ts";
import type { Connector, ConnectScope, Socket } from "./connector.ts";
import type { Destination } from "./destination.ts";
import type { IdleList } from "./idle.ts";
import type { Job } from "./job.ts";
import type { Owner } from "./owner.ts";
import { Queue } from "./queue.ts";
import { Spread } from "./spread.ts";
import { Surplus } from "./surplus.ts";
import { Sweep } from "./sweep.ts";
import { MARGIN } from "./times.ts";

/** What the pools of one transport share. */
export interface Shared {
  readonly counters: Counters;
  readonly idle: IdleList;
  readonly connector: Connector;
  readonly codec: Codec;
}

/** The connections to one origin. */
export class Pool implements Owner {
  readonly name: string;
  /** Whether its transport has forgotten it. */
  evicted = false;
  readonly #options: FilledPoolOptions;
  readonly #counters: Counters;
  readonly #connect: (scope: ConnectScope) => Promise<Socket>;
  readonly #codec: Codec;
  readonly #spread: Spread = new Spread();
  readonly #connections: Set<Connection> = new Set();
  /** The one used last is taken first: it is the least likely to be stale, and those not needed grow old. */
  readonly #free: Connection[] = [];
  /** Those of all origins, these among them. */
  readonly #idle: IdleList;
  readonly #waiting: Queue<Job>;
  readonly #surplus: Surplus;
  readonly #sweep: Sweep = new Sweep((now) => this.#closeExpired(now));
  #opened = 0;
  #openedAtLook = 0;
  #closed = false;
  #onEmpty: (() => void)[] = [];

  constructor(
    destination: Destination,
    options: FilledPoolOptions,
    { counters, idle, connector, codec }: Shared,
  ) {
    const { origin, socketPath } = destination;
    this.name = socketPath === undefined ? origin : `unix:${socketPath}`;
    this.#options = options;
    this.#counters = counters;
    this.#idle = idle;
    this.#connect = (scope) => connector.connect(destination, scope);
    this.#codec = codec;
    this.#waiting = new Queue(options);
    this.#surplus = new Surplus(options.maxFreeSockets, (count) => {
      for (const connection of this.#free.slice(0, count)) this.#drop(connection);
      return this.#free.length;
    });
  }

  /** Starts a job as soon as there is a connection for it, in the order they came. */
  run(job: Job): void {
    if (this.#closed) return job.fail(poolClosed());
    const kept = job.fresh ? undefined : this.#take();
    if (kept !== undefined || this.#hasRoom()) return this.#start(job, kept);
    this.#counters.version++;
    this.#waiting.push(job);
  }

  /** A job does not want to wait any more. */
  leave(job: Job): void {
    this.#counters.version++;
    this.#waiting.remove(job);
  }

  get stats(): OriginStats {
    const free = this.#free.length;
    return { inUse: this.#connections.size - free, free, waiting: this.#waiting.length };
  }

  /** Whether there is nothing in it. */
  get empty(): boolean {
    return this.#connections.size === 0;
  }

  /** Whether nothing has been in it since it was last asked. */
  wasEmpty(): boolean {
    const opened = this.#opened !== this.#openedAtLook;
    this.#openedAtLook = this.#opened;
    return this.empty && !opened;
  }

  /** Lets running and waiting requests finish, then closes. */
  close(): Promise<void> {
    this.#closed = true;
    for (const connection of this.#free) connection.destroy();
    if (this.empty) return Promise.resolve();
    return new Promise((resolve) => void this.#onEmpty.push(resolve));
  }

  /** Closes at once. */
  destroy(): void {
    const error = poolClosed();
    this.#closed = true;
    for (let job; (job = this.#waiting.shift()) !== undefined;) job.fail(error);
    for (const connection of this.#connections) {
      connection.job?.fail(error);
      connection.destroy();
    }
  }

  /** A connection's request is over. */
  onFree(connection: Connection): void {
    const { maxFreeSockets, freeSocketTimeout, socketTTL } = this.#options;
    this.#counters.version++;
    const now = performance.now();
    const end = socketTTL > 0 ? connection.openedAt + socketTTL : Infinity;
    const next = this.#waiting.shift();
    if (next !== undefined) {
      const usable = now < end && !next.fresh;
      if (!usable) this.#drop(connection);
      return this.#start(next, usable ? connection : undefined);
    }
    // The upstream's hint may shorten the time, never lengthen it.
    const left = Math.min(freeSocketTimeout, connection.hint - MARGIN, end - now);
    if (left <= 0 || maxFreeSockets === 0 || this.#closed) return connection.destroy();
    connection.rest(now + left);
    this.#surplus.count(this.#free.push(connection));
    this.#idle.push(connection);
    if (connection.expiry < this.#sweep.at) this.#sweep.arm(connection.expiry);
  }

  /** A connection is established. */
  onOpen(connection: Connection): void {
    this.#counters.countOpened(connection.job !== undefined);
  }

  onSilence({ job }: Connection): void {
    if (job === undefined || job.isPaused) return;
    this.#counters.timedOut++;
    this.#counters.version++;
    job.fail(new ProxyError("connection_read_timeout", { message: "the connection was silent" }));
  }

  onClose(connection: Connection): void {
    this.#counters[connection.socket === undefined ? "failed" : "closed"]++;
    if (connection.expiry <= performance.now()) this.#counters.timedOut++;
    this.#counters.version++;
    this.#connections.delete(connection);
    this.#unlist(connection);
    if (this.#connections.size < this.#options.maxSockets) {
      const next = this.#waiting.shift();
      if (next !== undefined) this.#start(next);
    }
    if (this.empty) for (const onEmpty of this.#onEmpty.splice(0)) onEmpty();
  }

  #start(job: Job, kept?: Connection): void {
    const connection = kept ?? this.#open();
    // On a connection that is still to be opened, a request counts once it is.
    if (kept !== undefined) this.#counters.requests++;
    this.#counters.version++;
    if (this.#spread.size > 1) this.#spread.count(connection.address);
    job.start(connection);
  }

  #open(): Connection {
    const connection = new Connection(this.#options, this.#codec, this);
    this.#opened++;
    this.#connections.add(connection);
    this.#connect({
      order: (answer) => this.#spread.order(answer),
      onCancel: (cancel) => connection.opening.onCancel(cancel),
    }).then(
      (socket) => connection.open(socket),
      (error: unknown) => connection.abandon(error),
    );
    return connection;
  }

  /** The free connection to use; none if there should be a new one. */
  #take(): Connection | undefined {
    for (let kept; (kept = this.#preferred()) !== undefined;) {
      // A timer may be late.
      if (kept.socket?.usable === true && kept.expiry > performance.now()) {
        this.#unlist(kept);
        return kept;
      }
      this.#drop(kept);
    }
    return undefined;
  }

  /** Of those that are free, one to the address that has had the fewest requests. */
  #preferred(): Connection | undefined {
    const last = this.#free.at(-1);
    if (this.#spread.size < 2 || last === undefined) return last;
    const found = this.#free.findLast(({ address }) => address === this.#spread.least);
    const full = this.#connections.size >= this.#options.maxSockets;
    return found ?? (full || !this.#spread.exceeds(last.address) ? last : undefined);
  }

  /** Whether there may be one more connection, where need be instead of a free one. */
  #hasRoom(): boolean {
    if (this.#connections.size < this.#options.maxSockets) return true;
    const oldest = this.#free[0];
    if (oldest !== undefined) this.#drop(oldest);
    return oldest !== undefined;
  }

  /** Another may take its place before it is closed. */
  #drop(connection: Connection): void {
    this.#connections.delete(connection);
    this.#unlist(connection);
    connection.destroy();
  }

  #unlist(connection: Connection): void {
    const index = this.#free.lastIndexOf(connection);
    if (index < 0) return;
    this.#free.splice(index, 1);
    this.#idle.remove(connection);
    this.#surplus.count(this.#free.length);
  }

  /** @returns when the next free connection expires */
  #closeExpired(now: number): number {
    let next = Infinity;
    for (const connection of this.#free) {
      if (connection.expiry <= now) connection.destroy();
      else next = Math.min(next, connection.expiry);
    }
    return next;
  }
}
