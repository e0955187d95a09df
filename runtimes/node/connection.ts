import type { Socket } from "node:net";
import { Client } from "undici";
import { ProxyError } from "../../src/error.ts";
import type { FilledPoolOptions } from "../../src/pool.ts";
import type { Counters } from "../../src/stats.ts";
import { MARGIN } from "../pool/times.ts";
import type { Attempt, Connector } from "./connect.ts";

/** Who has connections. */
interface Owner {
  readonly options: FilledPoolOptions;
  readonly counters: Counters;
  readonly connector: Connector;
  /** It is not to be used for further requests. */
  onRetired(connection: Connection): void;
  /** It is closed. A client makes another when it is given a request. */
  onClosed(connection: Connection): void;
}

/** One connection: an undici `Client`, with one request on it at a time. */
export class Connection {
  readonly client: Client;
  /** Whether it has carried a request already. */
  used = false;
  /** Whether it may take no further request. */
  retired: boolean;
  /** The address that was looked up for it. */
  address: string | undefined;
  readonly #owner: Owner;
  /** What is under way before there is a socket. */
  #connecting: Attempt | undefined;
  #lifespan: NodeJS.Timeout | undefined;
  #busy = false;

  constructor(origin: string, owner: Owner) {
    this.#owner = owner;
    const { keepAlive, freeSocketTimeout } = owner.options;
    this.retired = !keepAlive;
    this.client = new Client(origin, {
      connect: (to, done) => {
        this.#connecting = owner.connector.connect(to, (error, socket, address) => {
          this.#connecting = undefined;
          if (socket === null || error !== null) owner.counters.failed++;
          else this.#opened(socket, address);
          owner.counters.version++;
          (done as (error: Error | null, socket: Socket | null) => void)(error, socket);
        });
      },
      keepAliveTimeout: freeSocketTimeout,
      // The server's hint may shorten the time, never lengthen it: edges close
      // at 30 s what undici would keep for 600.
      keepAliveMaxTimeout: freeSocketTimeout,
      keepAliveTimeoutThreshold: MARGIN,
      // The deadlines are the request's own, and the same on every runtime.
      headersTimeout: 0,
      bodyTimeout: 0,
      allowH2: false,
    });
    this.client.on("disconnect", () => {
      clearTimeout(this.#lifespan);
      this.used = false;
      owner.counters.closed++;
      owner.counters.version++;
      owner.onClosed(this);
    });
  }

  /** A request is about to be sent on it. Returns whether there was one before. */
  begin(): boolean {
    const { used } = this;
    this.used = true;
    this.#busy = true;
    return used;
  }

  /** Its request is over. */
  end(): void {
    this.#busy = false;
  }

  /** Closes when its last response is through. */
  close(): Promise<void> {
    return this.client.close().catch(() => {});
  }

  /** Closes at once; what is on it fails. */
  destroy(reason: ProxyError): void {
    void this.client.destroy(reason).catch(() => {});
    this.#connecting?.abort(reason);
  }

  #opened(socket: Socket, address: string | undefined): void {
    const { options, counters } = this.#owner;
    counters.created++;
    this.used = false;
    this.address = address;
    if (options.timeout > 0) {
      socket.setTimeout(options.timeout).on("timeout", () => this.#onSilence(socket));
    }
    if (options.socketTTL > 0) {
      this.#lifespan = setTimeout(() => this.#retire(), options.socketTTL).unref();
    }
  }

  /** What could not be read because there was no time for it, or nobody wants to read, is not the upstream's silence. */
  #onSilence(socket: Socket): void {
    const { options, counters } = this.#owner;
    const moved = socket.bytesRead + socket.bytesWritten;
    setImmediate(() => {
      if (socket.destroyed || !this.#busy || socket.bytesRead + socket.bytesWritten > moved) return;
      if (socket.readableLength > 0) {
        socket.setTimeout(options.timeout);
        return;
      }
      counters.timedOut++;
      const message = `waited ${options.timeout} ms in vain for the connection to move`;
      socket.destroy(new ProxyError("connection_read_timeout", { message }));
    });
  }

  #retire(): void {
    this.retired = true;
    this.#owner.onRetired(this);
  }
}
