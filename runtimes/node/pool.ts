import { type FilledPoolOptions, poolClosed } from "../../src/pool.ts";
import type { Counters } from "../../src/stats.ts";
import type { OriginStats } from "../../src/transport.ts";
import type { Resolver } from "../pool/dns.ts";
import type { Destination } from "../pool/destination.ts";
import { Connector } from "./connect.ts";
import { Connection } from "./connection.ts";
import { Queue, type Waiting } from "../pool/queue.ts";
import { Spread } from "../pool/spread.ts";

/** A request that wants a connection. */
export interface Job extends Waiting {
  /** Whether only a new connection will do. */
  readonly fresh: boolean;
  /** Sends itself on a connection that is free. */
  start(connection: Connection): void;
}

/**
 * The connections to one origin.
 *
 * The one used last is reused first: it is the least likely to be stale, and those not
 * needed any more grow old and close.
 */
export class OriginPool {
  /** Which origin this is, for people. */
  readonly name: string;
  /** What undici is told, or it would connect anew, and ask for another name in TLS, with each new `Host`. */
  readonly servername: string | null;
  /** Whether its transport has forgotten it. */
  evicted = false;
  readonly options: FilledPoolOptions;
  readonly counters: Counters;
  readonly connector: Connector;
  readonly #destination: Destination;
  readonly #spread: Spread = new Spread();
  readonly #free: Connection[] = [];
  readonly #waiting: Queue<Job>;
  readonly #connections: Set<Connection> = new Set();
  #opened = 0;
  #openedAtLook = 0;
  #closed = false;
  #lastClosed: Promise<void> = Promise.resolve();
  #onEmpty: (() => void)[] = [];

  constructor(
    destination: Destination,
    options: FilledPoolOptions,
    counters: Counters,
    resolver: Resolver | undefined,
  ) {
    const { origin, hostname, secure, socketPath } = destination;
    this.name = socketPath === undefined ? origin : `unix:${socketPath}`;
    this.servername = secure ? hostname : null;
    this.options = options;
    this.counters = counters;
    this.#destination = destination;
    this.#waiting = new Queue(options);
    this.connector = new Connector(destination, options, resolver, this.#spread);
  }

  /** Starts the job as soon as there is a connection for it, in the order they came. */
  run(job: Job): void {
    if (this.#closed) return job.fail(poolClosed());
    const connection = job.fresh ? undefined : this.#take();
    if (connection !== undefined) this.#start(job, connection);
    else if (this.#hasRoom()) this.#start(job, this.#open());
    else {
      this.counters.version++;
      this.#waiting.push(job);
    }
  }

  /** The job does not want to wait any more. */
  leave(job: Job): void {
    this.counters.version++;
    this.#waiting.remove(job);
  }

  /** The connection's request is over: it goes to the next job, or waits for one. */
  release(connection: Connection): void {
    this.counters.version++;
    connection.end();
    const next = this.#waiting.shift();
    if (connection.retired || next?.fresh) {
      this.#drop(connection);
      if (next !== undefined) this.#start(next, this.#open());
    } else if (next !== undefined) this.#start(next, connection);
    else if (this.#closed || this.#free.length >= this.options.maxFreeSockets) {
      this.#drop(connection);
    } else this.#free.push(connection);
  }

  /** The connection has broken before anything of the job was sent on it. */
  replace(connection: Connection, job: Job): void {
    this.#drop(connection);
    this.#start(job, this.#open());
  }

  /** The connection's request has failed, and the connection with it. */
  discard(connection: Connection): void {
    this.counters.version++;
    this.#drop(connection);
    const next = this.#waiting.shift();
    if (next !== undefined) this.#start(next, this.#open());
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
    for (const connection of this.#free.splice(0)) this.#drop(connection);
    if (this.#connections.size === 0) return this.#lastClosed;
    return new Promise((resolve) => {
      this.#onEmpty.push(() => resolve(this.#lastClosed));
    });
  }

  /** Closes at once. */
  destroy(): void {
    const error = poolClosed();
    this.#closed = true;
    for (let job = this.#waiting.shift(); job !== undefined; job = this.#waiting.shift())
      job.fail(error);
    this.#free.length = 0;
    for (const connection of this.#connections) {
      connection.destroy(error);
      this.#drop(connection);
    }
  }

  onRetired(connection: Connection): void {
    this.onClosed(connection);
  }

  /** A free one is of no more use. One with a request on it: the request says how it ends. */
  onClosed(connection: Connection): void {
    const index = this.#free.indexOf(connection);
    if (index < 0) return;
    this.#free.splice(index, 1);
    this.#drop(connection);
  }

  /** The free connection to use; none if there should be a new one. */
  #take(): Connection | undefined {
    const free = this.#free;
    const spread = this.#spread;
    if (spread.size < 2 || free.length === 0) return free.pop();
    const { least } = spread;
    const index = free.findLastIndex(({ address }) => address === least);
    if (index >= 0) return free.splice(index, 1)[0];
    const full = this.#connections.size >= this.options.maxSockets;
    return full || !spread.exceeds(free.at(-1)?.address) ? free.pop() : undefined;
  }

  /** Whether there may be one more connection, where need be instead of a free one. */
  #hasRoom(): boolean {
    if (this.#connections.size < this.options.maxSockets) return true;
    const oldest = this.#free.shift();
    if (oldest !== undefined) this.#drop(oldest);
    return oldest !== undefined;
  }

  #start(job: Job, connection: Connection): void {
    this.counters.requests++;
    this.counters.version++;
    if (this.#spread.size > 1) this.#spread.count(connection.address);
    job.start(connection);
  }

  #open(): Connection {
    const connection = new Connection(this.#destination.origin, this);
    this.#opened++;
    this.#connections.add(connection);
    return connection;
  }

  /** Nothing will be sent on it any more: it closes when its last response is through. */
  #drop(connection: Connection): void {
    if (!this.#connections.delete(connection)) return;
    this.#lastClosed = connection.close();
    if (this.#connections.size > 0) return;
    for (const onEmpty of this.#onEmpty.splice(0)) onEmpty();
  }
}
