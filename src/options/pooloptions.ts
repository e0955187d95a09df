import type { TlsOptions } from "../request/target.ts";
import {
  either,
  limitFrom,
  milliseconds,
  millisecondsFrom,
  object,
  off,
  record,
  text,
  texts,
  toggle,
} from "./kinds.ts";
import { defaultsOf, fillIn, type Flags, isRecord, type Schema } from "./schema.ts";

/** How names are looked up. */
export interface DnsOptions {
  /** Milliseconds that an answer of the system is kept, since it has no lifetime of its own: 10 000 by default. */
  ttl?: number;
  /**
   * Name servers to ask instead of the system, as `"address"` or `"address:port"`. Their answers have a lifetime. They do not
   * know the names in `/etc/hosts`.
   */
  servers?: readonly string[];
}

const dnsSchema: Schema<DnsOptions, "ttl"> = {
  ttl: { kind: milliseconds, default: 10_000 },
  servers: { kind: texts },
};

/** How names are looked up, with the default in its place. */
export type FilledDnsOptions = DnsOptions & { ttl: number };

/** Options of a pool of connections, for `createTransport` and for `createProxy`'s `pool`. */
export interface PoolOptions {
  /**
   * Connections to one origin at the same time; requests beyond it wait, in the order in which they came. `Infinity` for no
   * limit.
   * @default 256
   */
  maxSockets?: number;
  /**
   * Idle connections kept to one origin; further ones are closed when they have not been needed for 100 ms. `0` keeps none,
   * `Infinity` all.
   * @default 64
   */
  maxFreeSockets?: number;
  /**
   * Idle connections kept to all origins together; beyond it the one that has been idle longest is closed. `0` keeps none,
   * `Infinity` sets no limit.
   *
   * Without a limit, clients that choose the origin decide how many file descriptors are open. `maxFreeSockets` limits each
   * origin as well.
   * @default 1024
   */
  maxTotalFreeSockets?: number;
  /**
   * Milliseconds that an idle connection is kept.
   *
   * The default is below the 5 s of usual upstreams, so that the proxy closes the connection first. A shorter
   * `Keep-Alive: timeout` of the upstream takes precedence.
   * @default 4000
   */
  freeSocketTimeout?: number;
  /**
   * Milliseconds that a connection in use may be silent, then it is closed and its request fails. `0` for no limit: the
   * request's own `timeout` and `idleTimeout` apply.
   * @default 0
   */
  timeout?: number;
  /**
   * Milliseconds that a connection lives; then it takes no further request, and closes after the current one. `0` for no
   * limit.
   *
   * With a limit, traffic spreads anew over addresses and instances.
   * @default 0
   */
  socketTTL?: number;
  /**
   * Milliseconds to connect; `0` leaves the limit to the system.
   * @default 10000
   */
  connectTimeout?: number;
  /**
   * Requests that may wait for a connection to one origin; further ones get 503 with `Retry-After`. `Infinity` for no limit.
   * @default 4096
   */
  maxQueued?: number;
  /**
   * Milliseconds that a request may wait for a connection, then 503 with `Retry-After`. `0` for no limit but the request's
   * `timeout`.
   * @default 0
   */
  queueTimeout?: number;
  /**
   * Whether connections are kept for further requests; `false` opens one for each request.
   * @default true
   */
  keepAlive?: boolean;
  /**
   * Milliseconds of silence before TCP asks whether the peer is still there; `0` never asks.
   * @default 60000
   */
  keepAliveInitialDelay?: number;
  /**
   * Whether small writes are sent at once (`TCP_NODELAY`).
   * @default true
   */
  noDelay?: boolean;
  /**
   * How names are looked up; `false` asks the system for each connection and leaves the choice of the address to it.
   *
   * The addresses of a name share the requests evenly. An address that does not answer is avoided for a while.
   * @default { "ttl": 10000 }
   */
  dns?: false | DnsOptions;
  /**
   * Whether buffers are used again: a socket reads into one that comes back when the client's socket has written it, and
   * the memory of a request body's chunk is freed when the upstream's socket has written it.
   *
   * Bodies from 32 KiB on cost less. Leave it off where code that was loaded before Fetchway (APM agents, body loggers,
   * recorders) has wrapped methods of Node's streams, sockets or messages, and keeps the chunks that it sees: these change
   * or become empty. Code that wraps or listens later is noticed and gets copies. It has an effect on Node's plain sockets
   * only.
   * @default false
   */
  reuseBuffers?: boolean;
  /** TLS options for upstreams whose target has none. */
  tls?: TlsOptions;
  /** The path of a Unix domain socket to connect to, for upstreams whose target has none. */
  socketPath?: string;
}

/** The options that have a default. */
export type PoolPreset = Exclude<keyof PoolOptions, "tls" | "socketPath">;

export const poolSchema: Schema<PoolOptions, PoolPreset> = {
  maxSockets: { kind: limitFrom(1), default: 256, aliases: ["connections"] },
  maxFreeSockets: { kind: limitFrom(0), default: 64 },
  maxTotalFreeSockets: { kind: limitFrom(0), default: 1024 },
  freeSocketTimeout: {
    kind: millisecondsFrom(1, "use whole milliseconds from 1; maxFreeSockets: 0 keeps none"),
    default: 4_000,
    aliases: ["freeSocketKeepAliveTimeout", "keepAliveTimeout"],
  },
  timeout: { kind: milliseconds, default: 0 },
  socketTTL: { kind: milliseconds, default: 0, aliases: ["socketActiveTTL", "clientTtl"] },
  connectTimeout: { kind: milliseconds, default: 10_000 },
  maxQueued: { kind: limitFrom(0), default: 4096 },
  queueTimeout: { kind: milliseconds, default: 0 },
  keepAlive: { kind: toggle, default: true },
  keepAliveInitialDelay: { kind: milliseconds, default: 60_000, aliases: ["keepAliveMsecs"] },
  noDelay: { kind: toggle, default: true },
  dns: {
    kind: either(
      "use false, or { ttl, servers }: milliseconds, and an array of addresses",
      off,
      record(dnsSchema),
    ),
    default: defaultsOf(dnsSchema),
    aliases: ["lookup"],
  },
  reuseBuffers: { kind: toggle, default: false },
  tls: { kind: object(isRecord, "use an object such as { ca, servername }") },
  socketPath: { kind: text(/^\//, 'use a path such as "/run/app.sock"') },
};

/** The command has one flag for both options named `connectTimeout`, which is the proxy's. */
export const poolFlags: Flags<Omit<PoolOptions, "connectTimeout">> = {
  heading: "Connections",
  flags: {
    maxSockets: "connections to the target at the same time",
    maxFreeSockets: "idle connections that are kept",
    maxTotalFreeSockets: "idle connections kept in all",
    freeSocketTimeout: "how long an idle connection is kept",
    timeout: { name: "socket-timeout", help: "how long a connection in use may be silent" },
    socketTTL: { name: "socket-ttl", help: "how long a connection lives; 0 for no limit" },
    maxQueued: "waiting requests; beyond it 503",
    queueTimeout: "how long a request may wait for a connection",
    keepAlive: "keep connections for further requests",
    keepAliveInitialDelay: "silence before TCP asks for life",
    noDelay: "send small writes at once",
    dns: "keep addresses of names, use them in turn",
    reuseBuffers: "use buffers again; the default where nothing is preloaded",
    socketPath: { value: "</path>", help: "connect to this unix socket" },
  },
};

/** Pool options with every default in its place. */
export type FilledPoolOptions = Required<Omit<PoolOptions, "tls" | "socketPath" | "dns">> &
  Pick<PoolOptions, "tls" | "socketPath"> & { dns: false | FilledDnsOptions };

/** The defaults of a pool. */
export const poolDefaults: Readonly<FilledPoolOptions & { dns: FilledDnsOptions }> =
  // A bundle for Workers, which have no pool, leaves this out.
  /* @__PURE__ */ defaultsOf(poolSchema) as FilledPoolOptions & { dns: FilledDnsOptions };

/** Puts every default in its place. */
export function fillPoolOptions(options: PoolOptions): FilledPoolOptions {
  const filled = fillIn<FilledPoolOptions>(poolDefaults, options);
  if (options.dns) filled.dns = fillIn(poolDefaults.dns, options.dns);
  return filled;
}
