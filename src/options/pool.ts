import { type Check, check, isBoolean, isMilliseconds, isRecord, optionNames } from "./check.ts";
import { ProxyError } from "../error.ts";
import { explainToPool } from "./foreign.ts";
import { badOption } from "./misuse.ts";
import type { TlsOptions } from "../request/target.ts";

/** How names are looked up. */
export interface DnsOptions {
  /** Milliseconds that an answer of the system is kept, which does not say so itself: 10 000 by default. */
  ttl?: number;
  /**
   * Name servers to ask instead of the system, as `"address"` or `"address:port"`: their answers say how long they hold.
   * They know nothing of `/etc/hosts`.
   */
  servers?: readonly string[];
}

/** Options of a pool of connections, for `createTransport` and for `createProxy`'s `pool`. */
export interface PoolOptions {
  /**
   * Connections to one origin at the same time; requests beyond it wait, in the order they came.
   * `Infinity` for no limit.
   * @default 256
   */
  maxSockets?: number;
  /**
   * Idle connections kept to one origin; those beyond it are closed once nobody has needed them for 100 ms.
   * `0` keeps none, `Infinity` all.
   * @default 64
   */
  maxFreeSockets?: number;
  /**
   * Idle connections kept to all origins together; beyond it the one that has been idle longest is closed.
   * `0` keeps none, `Infinity` sets no limit: then clients that choose the origin decide how many file descriptors are
   * open. `maxFreeSockets` limits each origin as well.
   * @default 1024
   */
  maxTotalFreeSockets?: number;
  /**
   * Milliseconds that an idle connection is kept. Below the 5 s of usual
   * upstreams, so that it is not the upstream that closes first; a shorter
   * `Keep-Alive: timeout` of the upstream wins.
   * @default 4000
   */
  freeSocketTimeout?: number;
  /**
   * Milliseconds that a connection in use may be silent, then it is closed and its request fails.
   * `0` for no limit: the request's own `timeout` and `idleTimeout` count.
   * @default 0
   */
  timeout?: number;
  /**
   * Milliseconds that a connection lives: then it takes no further request, and closes after the one it has, so that
   * traffic spreads anew over addresses and instances. `0` for no limit.
   * @default 0
   */
  socketTTL?: number;
  /**
   * Milliseconds to connect; `0` leaves it to the system.
   * @default 10000
   */
  connectTimeout?: number;
  /**
   * Requests that may wait for a connection to one origin; those beyond it get 503 with `Retry-After`.
   * `Infinity` for no limit.
   * @default 4096
   */
  maxQueued?: number;
  /**
   * Milliseconds that a request may wait for a connection, then 503 with `Retry-After`.
   * `0` for as long as the request's `timeout` lets it.
   * @default 0
   */
  queueTimeout?: number;
  /**
   * Whether connections are kept for further requests; `false` makes one for each.
   * @default true
   */
  keepAlive?: boolean;
  /**
   * Milliseconds of silence before TCP asks whether the peer is still there; `0` never asks.
   * @default 60000
   */
  keepAliveInitialDelay?: number;
  /**
   * Whether small writes go out at once (`TCP_NODELAY`).
   * @default true
   */
  noDelay?: boolean;
  /**
   * How names are looked up. The addresses of a name share the requests evenly, and one that does not answer is
   * left alone for a while. `false` asks the system for each connection and leaves the choice to it.
   * @default { "ttl": 10000 }
   */
  dns?: false | DnsOptions;
  /**
   * Whether buffers are used again: a socket reads into one that comes back when the client's socket has written it,
   * and the memory of a request body's chunk is freed when the upstream's socket has. Bodies from 32 KiB on cost less.
   *
   * Leave it off where code that was loaded before Fetchway (APM agents, body loggers, recorders) has wrapped methods of
   * Node's streams, sockets or messages, and keeps the chunks that it sees: they change or become empty. Code that wraps
   * or listens later is noticed and gets copies. Node's plain sockets only: elsewhere it has no effect.
   * @default false
   */
  reuseBuffers?: boolean;
  /**
   * Whether to speak HTTP/2 with upstreams: `https:` ones choose between it and HTTP/1.1 (ALPN), `http:` ones must know it.
   * Requests share a connection up to the upstream's limit; `maxSockets` and the queue take those beyond it.
   *
   * HTTP/1.1 costs less for each request: turn it on for gRPC, for trailers, or where connections are expensive. The target's
   * own `http2` wins over it.
   * @default false
   * @see https://www.rfc-editor.org/rfc/rfc9113
   */
  http2?: boolean;
  /** TLS options of upstreams that bring none of their own. */
  tls?: TlsOptions;
  /** Path of a unix domain socket to connect to, for upstreams that bring none of their own. */
  socketPath?: string;
}

/** How names are looked up, with the default in its place. */
export type FilledDnsOptions = DnsOptions & { ttl: number };

/** Pool options with every default in its place. */
export type FilledPoolOptions = Required<Omit<PoolOptions, "tls" | "socketPath" | "dns">> &
  Pick<PoolOptions, "tls" | "socketPath"> & { dns: false | FilledDnsOptions };

/** Every default of a pool. */
export const poolDefaults: Readonly<FilledPoolOptions & { dns: FilledDnsOptions }> = {
  maxSockets: 256,
  maxFreeSockets: 64,
  maxTotalFreeSockets: 1024,
  freeSocketTimeout: 4_000,
  timeout: 0,
  socketTTL: 0,
  connectTimeout: 10_000,
  maxQueued: 4096,
  queueTimeout: 0,
  keepAlive: true,
  keepAliveInitialDelay: 60_000,
  noDelay: true,
  dns: { ttl: 10_000 },
  reuseBuffers: false,
  http2: false,
};

/** Puts every default in its place. */
export function fillPoolOptions(options: PoolOptions): FilledPoolOptions {
  const given = Object.entries(options).filter(([, value]) => value !== undefined);
  const filled: FilledPoolOptions = { ...poolDefaults, ...Object.fromEntries(given) };
  if (options.dns) filled.dns = { ...poolDefaults.dns, ...options.dns };
  return filled;
}

/**
 * The error of a request that came after `close()`, or was cut off by `destroy()`. What is closed is
 * being replaced as a rule: a moment later there is another to ask.
 */
export function poolClosed(): ProxyError {
  return new ProxyError("destination_unavailable", {
    message: "the proxy has been closed",
    retryAfter: 1,
  });
}

/**
 * Waits for what is closing, and destroys what is left of it after a while.
 * @param timeout milliseconds; 0 for no limit
 * @throws TypeError for a timeout that is none
 */
export async function closeWithin(
  timeout: number,
  closing: () => Promise<unknown>,
  destroy: () => void,
): Promise<void> {
  const wrong = isMilliseconds(timeout);
  if (wrong) throw new TypeError(`fetchway: close(timeout): ${wrong}`);
  const timer = timeout > 0 ? setTimeout(destroy, timeout) : undefined;
  await closing();
  clearTimeout(timer);
}

/** Nothing that is as large as `Infinity` is ever counted to. */
function isLimitFrom(least: number): Check {
  return (value) =>
    value === Infinity || (Number.isSafeInteger(value) && (value as number) >= least)
      ? undefined
      : `use a whole number from ${least}, or Infinity for no limit`;
}

const isTls: Check = (value) =>
  isRecord(value) ? undefined : "use an object such as { ca, servername }";

const isDns: Check = (value) => {
  if (value === false) return undefined;
  const { ttl = 0, servers = [], ...rest } = (value ?? { rest: true }) as DnsOptions;
  const known = isRecord(value) && Object.keys(rest).length === 0;
  const good = known && isMilliseconds(ttl) === undefined && Array.isArray(servers);
  return good && servers.every((each) => typeof each === "string")
    ? undefined
    : "use false, or { ttl, servers }: milliseconds, and an array of addresses";
};

const POOL_CHECKS: Record<keyof PoolOptions, Check> = {
  maxSockets: isLimitFrom(1),
  maxFreeSockets: isLimitFrom(0),
  maxTotalFreeSockets: isLimitFrom(0),
  freeSocketTimeout: (value) =>
    value === 0
      ? "use whole milliseconds from 1; maxFreeSockets: 0 keeps none"
      : isMilliseconds(value),
  timeout: isMilliseconds,
  socketTTL: isMilliseconds,
  connectTimeout: isMilliseconds,
  maxQueued: isLimitFrom(0),
  queueTimeout: isMilliseconds,
  keepAlive: isBoolean,
  keepAliveInitialDelay: isMilliseconds,
  noDelay: isBoolean,
  dns: isDns,
  reuseBuffers: isBoolean,
  http2: isBoolean,
  tls: isTls,
  socketPath: (value) =>
    typeof value === "string" && value.startsWith("/")
      ? undefined
      : 'use a path such as "/run/app.sock"',
};

/**
 * Makes sure that a pool's options are there and of the right kind.
 * @throws TypeError that names the option and the fix
 */
export function checkPoolOptions(options: PoolOptions): void {
  check(options, POOL_CHECKS, (name) => explainToPool(name, optionNames));
}

/**
 * For clients whose connections are not the proxy's own: all that there is to set is set in vain.
 * The time to connect is the exception, for it is an option of requests as well.
 * @throws TypeError that names the option and the fix
 */
export function refusePoolOptions(options: PoolOptions, whose: string): void {
  checkPoolOptions(options);
  for (const [name, value] of Object.entries(options)) {
    if (value !== undefined && name !== "connectTimeout") {
      throw badOption(name, `${whose}; leave it out`);
    }
  }
}
