import { buildConnector, Client } from "undici";
import { ProxyError } from "../../src/error.ts";
import { fillPoolOptions, type FilledPoolOptions, type PoolOptions } from "../../src/pool.ts";
import type { Upstream } from "../../src/target.ts";
import type { OriginStats } from "../../src/transport.ts";

/** A request that wants a connection. */
export interface Job {
  /** Sends itself on a connection that is free. */
  start(client: Client): void;
  /** Whether it has been aborted while it waited. */
  readonly aborted: boolean;
  /** There will be no connection. */
  fail(error: ProxyError): void;
}

/** Counters over all origins of a transport. */
export interface Counters {
  created: number;
  closed: number;
  failed: number;
  requests: number;
}

/**
 * The connections to one origin.
 *
 * Each undici `Client` is one connection, with one request on it at a time.
 * The one used last is reused first: it is the least likely to be stale, and those not
 * needed any more grow old and close.
 */
export class OriginPool {
  readonly #upstream: Upstream;
  readonly #options: FilledPoolOptions;
  readonly #counters: Counters;
  readonly #connect: buildConnector.connector;
  readonly #free: Client[] = [];
  readonly #waiting: Job[] = [];
  readonly #clients: Set<Client> = new Set();
  #closed = false;
  #lastClosed: Promise<void> = Promise.resolve();
  #onEmpty: (() => void) | undefined;

  constructor(upstream: Upstream, options: PoolOptions, counters: Counters) {
    this.#upstream = upstream;
    this.#options = fillPoolOptions(options);
    this.#counters = counters;
    this.#connect = buildConnector({
      timeout: this.#options.connectTimeout,
      allowH2: false,
      ...(upstream.socketPath === undefined ? {} : { socketPath: upstream.socketPath }),
      ...upstream.tls,
    });
  }

  /** Starts the job as soon as there is a connection for it, in the order they came. */
  run(job: Job): void {
    if (this.#closed) {
      job.fail(new ProxyError("destination_unavailable", { message: "the proxy has been closed" }));
      return;
    }
    const client = this.#free.pop();
    if (client !== undefined) this.#start(job, client);
    else if (this.#clients.size < this.#options.maxSockets) this.#start(job, this.#open());
    else this.#waiting.push(job);
  }

  /** The connection's request is over: it goes to the next job, or waits for one. */
  release(client: Client): void {
    const next = this.#next();
    if (next !== undefined) this.#start(next, client);
    else if (this.#closed || this.#free.length >= this.#options.maxFreeSockets) this.#drop(client);
    else this.#free.push(client);
  }

  /** The connection's request has failed, and the connection with it. */
  discard(client: Client): void {
    this.#drop(client);
    const next = this.#next();
    if (next !== undefined) this.#start(next, this.#open());
  }

  /** Which origin this is, for people. */
  get name(): string {
    const { origin, socketPath } = this.#upstream;
    return socketPath === undefined ? origin : `unix:${socketPath}`;
  }

  get stats(): OriginStats {
    const free = this.#free.length;
    return { inUse: this.#clients.size - free, free, waiting: this.#waiting.length };
  }

  /** Lets running and waiting requests finish, then closes. */
  close(): Promise<void> {
    this.#closed = true;
    for (const client of this.#free.splice(0)) this.#drop(client);
    if (this.#clients.size === 0) return this.#lastClosed;
    return new Promise((resolve) => {
      this.#onEmpty = () => resolve(this.#lastClosed);
    });
  }

  #start(job: Job, client: Client): void {
    this.#counters.requests++;
    job.start(client);
  }

  #next(): Job | undefined {
    let job = this.#waiting.shift();
    while (job?.aborted) job = this.#waiting.shift();
    return job;
  }

  #open(): Client {
    const client = new Client(this.#upstream.origin, {
      connect: this.#connect,
      keepAliveTimeout: this.#options.freeSocketTimeout,
      // The server's hint may shorten the time, never lengthen it: edges close
      // at 30 s what undici would keep for 600.
      keepAliveMaxTimeout: this.#options.freeSocketTimeout,
      // The deadlines are the request's own, and the same on every runtime.
      headersTimeout: 0,
      bodyTimeout: 0,
      allowH2: false,
    });
    this.#clients.add(client);
    client.on("connect", () => void this.#counters.created++);
    client.on("connectionError", () => void this.#counters.failed++);
    client.on("disconnect", () => {
      this.#counters.closed++;
      const index = this.#free.indexOf(client);
      if (index >= 0) {
        this.#free.splice(index, 1);
        this.#drop(client);
      }
    });
    return client;
  }

  /** Nothing will be sent on it any more: it closes when its last response is through. */
  #drop(client: Client): void {
    if (!this.#clients.delete(client)) return;
    this.#lastClosed = client.close().catch(() => {});
    if (this.#clients.size === 0) this.#onEmpty?.();
  }
}
