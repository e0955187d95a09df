import {
  choice,
  either,
  limitFrom,
  list,
  milliseconds,
  millisecondsFrom,
  object,
  off,
  record,
  SOCKET_PATH,
  text,
  toggle,
  whole,
} from "../schema/kinds.ts";
import { defaultsOf, fillIn, isRecord, type Schema } from "../schema/schema.ts";
import type { TlsOptions } from "../target/target.ts";

/** How host names are resolved to addresses. */
export interface DnsOptions {
  /**
   * Milliseconds for which addresses from the system's resolver are kept: 10 000 by default. The system does not report the
   * TTL of a record. With `0`, the name is looked up for each new connection.
   */
  ttl?: number;
  /**
   * Name servers to ask instead of the system, as `"address"` or `"address:port"`. Their answers contain a lifetime,
   * which replaces `ttl`. They do not know the names in `/etc/hosts`.
   */
  servers?: readonly string[];
}

const dnsSchema: Schema<DnsOptions, "ttl"> = {
  ttl: { kind: milliseconds, default: 10_000 },
  servers: { kind: list(text(/^/), "use an array of strings") },
};

/** `DnsOptions` with the default for `ttl` filled in. */
export type FilledDnsOptions = DnsOptions & { ttl: number };

/** Options of a pool of connections, for `createTransport` and for `createProxy`'s `pool`. */
export interface PoolOptions {
  /**
   * Maximum number of connections to one origin at the same time; further requests wait, and addresses of clients take
   * turns. A tunnel's connection counts until the upstream's 101. `Infinity` for no limit.
   *
   * On Node, Bun and Deno, the default is a quarter of the process's limit of open files (`ulimit -n`), and at most 4096;
   * `stats()` reports it as `maxSockets`. It is 256 where the limit cannot be read: on Windows, and on Deno without
   * `--allow-all`.
   * @default 256
   */
  maxSockets?: number;
  /**
   * Maximum number of idle connections kept to one origin: 64 carry 6,400 requests a second that take 10 ms each; surplus
   * connections, which occupy the upstream after a burst, are closed when they have not been needed for 100 ms. `0` keeps
   * none, `Infinity` keeps all.
   * @default 64
   */
  maxFreeSockets?: number;
  /**
   * Maximum number of idle connections kept to all origins together; above it, the connection that has been idle
   * longest is closed. `0` keeps none, `Infinity` sets no limit.
   *
   * Without a limit, clients that choose the origin decide how many file descriptors are open. `maxFreeSockets` limits each
   * origin as well.
   * @default 1024
   */
  maxTotalFreeSockets?: number;
  /**
   * Milliseconds that an idle connection is kept; the default is below the 5 s after which Node servers and others close it, so
   * that no request is sent on a connection that is closing.
   *
   * With a longer time than the upstream's own, some requests are sent on a connection that the upstream is closing: they are
   * sent again if they are idempotent, and get 502 otherwise. A shorter `Keep-Alive: timeout` of the upstream takes precedence.
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
   * Milliseconds after which a connection takes no further request, and closes when its current request is finished.
   * `0` for no limit.
   *
   * With a limit, new connections are opened from time to time, which reach instances that were added behind an address.
   * @default 0
   */
  socketTTL?: number;
  /**
   * Milliseconds to open a connection to any address of the upstream's name, then 504; `0` leaves the limit to the system.
   * @default 10000
   */
  connectTimeout?: number;
  /**
   * Maximum number of requests that wait for a connection to one origin; further requests get 503 with `Retry-After`.
   * `Infinity` for no limit.
   *
   * Addresses of clients take turns, so that one with many requests cannot keep the others waiting. If the queue is full, the
   * newest request of the address with the most waiting requests gets 503, not a request of an address with fewer.
   * @default 4096
   */
  maxQueued?: number;
  /**
   * Milliseconds that a request may wait for a connection, then 503 with `Retry-After`. With `0`, only the request's
   * `timeout` limits the wait, also with 503: a request that was not sent is not the upstream's fault.
   * @default 10000
   */
  queueTimeout?: number;
  /**
   * The bytes a second that a client must take of a response, or send of a body, while requests of other addresses wait for
   * a connection; `0` for no limit. A slower client gets 408, or its connection is closed if the response has begun.
   *
   * It applies only to addresses that have more than their share of the connections. Only the time in which a request waits
   * for its client counts: a slow upstream, a pause of an event stream and a tunnel do not. The system passes bytes on in
   * steps of at most 64 kB: a client near the limit may seem slower than it is for a few seconds.
   * @default 240
   */
  minRate?: number;
  /**
   * Milliseconds for which a client may be slower than `minRate`.
   * @default 5000
   */
  minRateGrace?: number;
  /**
   * Whether connections are kept for further requests; `false` opens one for each request.
   * @default true
   */
  keepAlive?: boolean;
  /**
   * Milliseconds of silence on a connection before TCP sends keep-alive probes, which detect that the peer is gone, and keep
   * load balancers from dropping the connection (some do after 4 minutes); `0` sends none.
   *
   * The probes matter for event streams and tunnels. With the defaults, an idle connection is closed before its first probe.
   * @default 60000
   */
  keepAliveInitialDelay?: number;
  /**
   * Whether small writes are sent immediately (`TCP_NODELAY`).
   * @default true
   */
  noDelay?: boolean;
  /**
   * How host names are resolved; `false` lets the system resolve the name and choose the address for each connection.
   *
   * The requests are spread evenly over the addresses of a name. An address that does not answer is avoided for a
   * while. While the pool is used, a name is looked up again in the background whenever its TTL ends; a connection takes
   * no further request when three lookups in a row have not found its address. With `false`, only `socketTTL` ends
   * connections to an old address.
   * @default { "ttl": 10000 }
   * @example { ttl: 5000, servers: ["10.0.0.2"] }
   */
  dns?: false | DnsOptions;
  /**
   * Whether to speak HTTP/2 with upstreams; by default, all requests are sent by HTTP/1.1. With `true`, an upstream with
   * `https:` chooses between HTTP/2 and HTTP/1.1 (ALPN), and an upstream with `http:` must speak HTTP/2.
   *
   * Requests share a connection up to the upstream's limit. Above it, further connections are opened, up to `maxSockets`,
   * and then requests wait. HTTP/1.1 costs less for each request: set this option for gRPC, for trailers, or where connections
   * are expensive. The target's own `http2` takes precedence. WebSockets use HTTP/2 if the upstream announces support
   * (RFC 8441), and HTTP/1.1 otherwise.
   * @default false
   * @see https://www.rfc-editor.org/rfc/rfc9113
   */
  http2?: boolean;
  /**
   * TLS options for upstreams whose target has none.
   * @example { ca: readFileSync("ca.pem", "utf8") }
   */
  tls?: TlsOptions;
  /**
   * The path of a Unix domain socket, or on Windows of a named pipe, to connect to, for upstreams whose target has none.
   * @example "/run/app.sock"
   */
  socketPath?: string;
  /**
   * Begins each connection, before TLS, with a header of the PROXY protocol that names the client: `"v1"` as a line of text,
   * `"v2"` in binary form. By default, no header is sent. An upstream that does not expect the header refuses every request.
   *
   * A connection is reused only for the same client address, so most requests of infrequent clients need a new connection.
   * HTTP/2 upstreams are refused, because an HTTP/2 connection carries the requests of all clients. If `trustProxy` trusts the
   * peer, the client address is the one that the peer's forwarding fields name. For health checks, mirrored requests and
   * clients without a known address, the header says that the connection is the proxy's own.
   * @example "v2"
   * @see https://www.haproxy.org/download/3.2/doc/proxy-protocol.txt
   */
  proxyProtocol?: "v1" | "v2";
}

/** The options without a default. */
type Unset = "tls" | "socketPath" | "proxyProtocol";

/** The options that have a default. */
export type PoolPreset = Exclude<keyof PoolOptions, Unset>;

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
  queueTimeout: { kind: milliseconds, default: 10_000 },
  minRate: { kind: whole(0, "use a whole number from 0; 0 sets no limit"), default: 240 },
  minRateGrace: {
    kind: millisecondsFrom(1, "use whole milliseconds from 1; minRate: 0 sets no limit"),
    default: 5_000,
  },
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
  http2: { kind: toggle, default: false, aliases: ["allowH2"] },
  tls: { kind: object(isRecord, "use an object such as { ca, servername }") },
  socketPath: { kind: text(SOCKET_PATH, 'use a path such as "/run/app.sock"') },
  proxyProtocol: { kind: either('use "v1" or "v2"', choice("v1", "v2")) },
};

/** Pool options with every default filled in. */
export type FilledPoolOptions = Required<Omit<PoolOptions, Unset | "dns">> &
  Pick<PoolOptions, Unset> & { dns: false | FilledDnsOptions };

/** The defaults of a pool. */
export const poolDefaults: Readonly<FilledPoolOptions & { dns: FilledDnsOptions }> =
  // The annotation lets a bundle for Workers, which have no pool, leave this out.
  /* @__PURE__ */ defaultsOf(poolSchema) as FilledPoolOptions & { dns: FilledDnsOptions };

/** Returns the pool options with every default filled in. */
export function fillPoolOptions(options: PoolOptions): FilledPoolOptions {
  const filled = fillIn<FilledPoolOptions>(poolDefaults, options);
  if (options.dns) filled.dns = fillIn(poolDefaults.dns, options.dns);
  return filled;
}
