import { isIP, type Socket } from "node:net";
import { buildConnector } from "undici";
import { ProxyError } from "../../src/error.ts";
import type { FilledPoolOptions } from "../../src/pool.ts";
import type { Address, Resolver } from "../pool/dns.ts";
import type { Destination } from "../pool/destination.ts";
import type { Spread } from "../pool/spread.ts";
import { attemptTime } from "../pool/times.ts";

/** A connection that is being made. */
export interface Attempt {
  /** Gives up. */
  abort(error: Error): void;
}

/** How an attempt ends. */
export type Connected = (
  error: Error | null,
  socket: Socket | null,
  address: string | undefined,
) => void;

/** Opens the sockets of one origin. */
export class Connector {
  readonly #build: buildConnector.connector;
  readonly #options: FilledPoolOptions;
  readonly #resolver: Resolver | undefined;
  readonly #spread: Spread;
  /** The name to ask for in TLS, and to check the certificate against: none for an address (RFC 6066 §3). */
  readonly #servername: string | null;

  /** @param resolver undefined where there is nothing to look up */
  constructor(
    { hostname, socketPath, tls }: Destination,
    options: FilledPoolOptions,
    resolver: Resolver | undefined,
    spread: Spread,
  ) {
    const { keepAliveInitialDelay } = options;
    this.#build = buildConnector({
      // undici's own timer is up to a second late.
      timeout: 0,
      allowH2: false,
      keepAlive: keepAliveInitialDelay > 0,
      keepAliveInitialDelay,
      ...(socketPath === undefined ? {} : { socketPath }),
      ...tls,
    });
    this.#options = options;
    const isName = isIP(hostname) === 0;
    this.#resolver = isName && socketPath === undefined ? resolver : undefined;
    this.#servername = tls?.servername ?? (isName ? hostname : null);
    this.#spread = spread;
  }

  /** Connects, TLS included, to one address after the other until one answers. */
  connect(to: buildConnector.Options, done: Connected): Attempt {
    const { connectTimeout } = this.#options;
    const { hostname } = to;
    let socket: Socket | undefined;
    let address: string | undefined;
    let late: NodeJS.Timeout | undefined;
    let over = false;
    const end = (error: Error | null): void => {
      if (over) return;
      over = true;
      clearTimeout(late);
      clearTimeout(timer);
      if (error !== null) socket?.destroy();
      done(error, socket ?? null, address);
    };
    const failed = (): void => {
      if (address !== undefined) this.#resolver?.failed(hostname, address);
    };
    const expire = (): void => {
      failed();
      end(lateError(socket === undefined));
    };
    const timer = connectTimeout > 0 ? setTimeout(expire, connectTimeout) : undefined;

    const attempt = ([next, ...others]: readonly Address[]): void => {
      if (over) return;
      address = next?.address;
      const opening = this.#open(to, address ?? hostname, (error) => {
        clearTimeout(late);
        if (error === null) return end(null);
        failed();
        if (others.length > 0) attempt(others);
        else end(error);
      });
      socket = opening;
      if (others.length === 0) return;
      late = setTimeout(() => opening.destroy(lateError(false)), attemptTime(connectTimeout));
    };

    if (this.#resolver === undefined) attempt([]);
    else {
      this.#resolver
        .resolve(hostname)
        .then((answer) => attempt(this.#spread.order(answer)))
        .catch(end);
    }
    return { abort: end };
  }

  #open(to: buildConnector.Options, hostname: string, done: (error: Error | null) => void): Socket {
    // undici's types do not tell that it returns the socket at once.
    const build = this.#build as unknown as (
      to: object,
      done: (error: Error | null) => void,
    ) => Socket;
    const socket = build({ ...to, hostname, servername: this.#servername }, done);
    return socket.setNoDelay(this.#options.noDelay);
  }
}

function lateError(resolving: boolean): ProxyError {
  return new ProxyError(resolving ? "dns_timeout" : "connection_timeout");
}
