import { ProxyError } from "../../src/error.ts";
import type { FilledPoolOptions } from "../../src/pool.ts";
import type { Upstream } from "../../src/target.ts";
import type { OriginStats, PoolStats } from "../../src/transport.ts";
import type { Resolver } from "../dns.ts";
import { type Connect, connectTo } from "./connect.ts";
import { Connection, type Owner } from "./connection.ts";
import { Queue } from "./queue.ts";

/** A request that wants a connection. */
export interface Job {
  /** Whether only a new one will do. */
  readonly fresh: boolean;
  /** Whether its client does not take what is here: that its connection is silent is nobody's fault then. */
  readonly held: boolean;
  /**
   * Sends itself on a connection, which is its own until it is over.
   * @throws for what nobody can send: the connection has not been used then
   */
  start(connection: Connection): void;
  /** Stops it, wherever it is. */
  fail(thrown: unknown): void;
}

interface Waiting {
  readonly job: Job;
  readonly timer: ReturnType<typeof setTimeout> | undefined;
}

/** Counters over all origins of a transport. */
export type Counters = {
  -readonly [name in Exclude<keyof PoolStats, "origins">]: PoolStats[name];
} & { timedOut: number };

/** Milliseconds before the upstream closes an idle connection in which it is not used any more. */
const MARGIN = 1000;

/** The connections to one origin. */
export class Pool implements Owner {
  readonly name: string;
  /** Whether it has been forgotten: there may be another one for its origin. */
  retired = false;
  readonly #options: FilledPoolOptions;
  readonly #counters: Counters;
  readonly #connect: Connect;
  readonly #connections: Set<Connection> = new Set();
  /** The one used last is taken first: it is the least likely to be stale, and those not needed grow old. */
  readonly #free: Connection[] = [];
  readonly #waiting: Queue<Waiting> = new Queue();
  #sweep: ReturnType<typeof setTimeout> | undefined;
  #sweepAt = Infinity;
  #closed = false;
  #onEmpty: (() => void) | undefined;

  constructor(
    upstream: Upstream,
    options: FilledPoolOptions,
    resolver: Resolver | undefined,
    counters: Counters,
  ) {
    const { origin, socketPath = options.socketPath } = upstream;
    this.name = socketPath === undefined ? origin : `unix:${socketPath}`;
    this.#options = options;
    this.#counters = counters;
    this.#connect = connectTo(upstream, options, resolver);
  }

  /**
   * Starts a job as soon as there is a connection for it, in the order they came.
   * @returns how to give up waiting; undefined if it does not wait
   */
  run(job: Job): (() => void) | undefined {
    const { maxSockets, maxQueued } = this.#options;
    const kept = job.fresh ? undefined : this.#takeFree();
    if (kept !== undefined || this.#connections.size < maxSockets) {
      this.#start(job, kept);
      return undefined;
    }
    // A new one takes the place of one that is idle, once that is closed.
    const idle = this.#free.shift();
    idle?.destroy();
    if (idle !== undefined || this.#waiting.size < maxQueued) return this.#wait(job);
    job.fail(limitReached("too many requests wait for a connection"));
    return undefined;
  }

  get stats(): OriginStats {
    const free = this.#free.length;
    return { inUse: this.#connections.size - free, free, waiting: this.#waiting.size };
  }

  get isUnused(): boolean {
    return this.#connections.size === 0;
  }

  /** Lets running and waiting requests finish, then closes. */
  close(): Promise<void> {
    this.#closed = true;
    for (const connection of this.#free.splice(0)) connection.destroy();
    if (this.isUnused) return Promise.resolve();
    return new Promise((resolve) => (this.#onEmpty = resolve));
  }

  /** Breaks off what runs, and refuses what waits. */
  destroy(): void {
    this.#closed = true;
    const error = new ProxyError("destination_unavailable", { message: "the proxy was closed" });
    for (let job; (job = this.#next()) !== undefined;) job.fail(error);
    for (const connection of this.#connections) {
      connection.job?.fail(error);
      connection.destroy();
    }
  }

  /** A connection's request is over. */
  onFree(connection: Connection): void {
    const { maxFreeSockets, freeSocketTimeout, socketTTL } = this.#options;
    const now = performance.now();
    const end = socketTTL > 0 ? connection.openedAt + socketTTL : Infinity;
    const first = this.#waiting.first?.job;
    // What has to have a new connection gets one as soon as this one is closed.
    if (now >= end || first?.fresh) return connection.destroy();
    if (first !== undefined) return this.#start(this.#next() as Job, connection);
    // The upstream's hint may shorten the time, never lengthen it.
    const left = Math.min(freeSocketTimeout, connection.hint - MARGIN, end - now);
    const kept = left > 0 && this.#free.length < maxFreeSockets && !this.#closed;
    if (!kept) return connection.destroy();
    connection.rest(now + left);
    this.#free.push(connection);
    if (connection.expiry < this.#sweepAt) this.#armSweep(connection.expiry);
  }

  onSilence({ job }: Connection): void {
    if (job === undefined || job.held) return;
    this.#counters.timedOut++;
    job.fail(new ProxyError("connection_read_timeout", { message: "the connection was silent" }));
  }

  onClose(connection: Connection): void {
    this.#counters[connection.isOpen ? "closed" : "failed"]++;
    this.#connections.delete(connection);
    const index = this.#free.indexOf(connection);
    if (index >= 0) this.#free.splice(index, 1);
    if (this.#connections.size < this.#options.maxSockets) {
      const job = this.#next();
      if (job !== undefined) this.#start(job);
    }
    if (this.isUnused) this.#onEmpty?.();
  }

  #start(job: Job, kept?: Connection): void {
    let connection = kept;
    try {
      connection ??= this.#open();
      this.#counters.requests++;
      job.start(connection);
    } catch (thrown) {
      job.fail(thrown);
      if (connection !== undefined) this.onFree(connection);
    }
  }

  #open(): Connection {
    const { keepAlive, timeout } = this.#options;
    const socket = this.#connect(() => {
      connection.isOpen = true;
      this.#counters.created++;
    });
    const connection = new Connection(socket, keepAlive, timeout, this);
    this.#connections.add(connection);
    return connection;
  }

  #takeFree(): Connection | undefined {
    for (let kept; (kept = this.#free.pop()) !== undefined;) {
      // A timer may be late.
      if (kept.usable && kept.expiry > performance.now()) return kept;
      kept.destroy();
    }
    return undefined;
  }

  #wait(job: Job): () => void {
    const { queueTimeout } = this.#options;
    const late = (): void => {
      leave();
      job.fail(limitReached(`waited ${queueTimeout} ms in vain for a connection`));
    };
    const timer = queueTimeout > 0 ? setTimeout(late, queueTimeout) : undefined;
    const leave = this.#waiting.push({ job, timer });
    return () => {
      clearTimeout(timer);
      leave();
    };
  }

  /** Who has waited longest. */
  #next(): Job | undefined {
    const next = this.#waiting.shift();
    clearTimeout(next?.timer);
    return next?.job;
  }

  #armSweep(at: number): void {
    clearTimeout(this.#sweep);
    this.#sweepAt = at;
    const wait = Math.max(1, Math.ceil(at - performance.now()));
    this.#sweep = setTimeout(() => this.#closeExpired(), wait);
    this.#sweep.unref?.();
  }

  #closeExpired(): void {
    const now = performance.now();
    let next = Infinity;
    for (const connection of this.#free) {
      if (connection.expiry <= now) connection.destroy();
      else next = Math.min(next, connection.expiry);
    }
    this.#sweepAt = Infinity;
    if (next < Infinity) this.#armSweep(next);
  }
}

function limitReached(message: string): ProxyError {
  return new ProxyError("connection_limit_reached", { message });
}
