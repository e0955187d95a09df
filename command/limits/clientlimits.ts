/** Resolves the limits for clients, and applies them to Node's server. */
import type { ServerOptions as Http2ServerOptions } from "node:http2";
import type { ProxyOptions } from "#fetchway";
import { limitOfOpenFiles } from "#fetchway/node";
import { createTrust, type Trust } from "#fetchway/requests";
import type { ServerOptions } from "srvx";
import { type ClientLimits, clientLimitSchema } from "../flags/commandoptions.ts";
import { maxTurnedAway } from "./clientconnections.ts";
import { intervalOf } from "./clienttimeouts.ts";

/** The limits as configured, or their defaults. */
export type ClientLimitSettings = Required<ClientLimits>;

/** The limits as numbers, as they apply to this process. */
export interface ResolvedClientLimits extends ClientLimitSettings {
  readonly maxConnections: number;
  /** The limit of open files, if `maxConnections` was computed from it. */
  readonly openFiles?: number | undefined;
}

/** The highest default of `maxConnections`. */
const MAX_CONNECTIONS = 16_384;
/**
 * The limit of open files divided by this number is reserved for connections to upstreams, as in the default of `maxSockets`,
 * but at most `MAX_UPSTREAM`.
 */
const UPSTREAM_SHARE = 4;
const MAX_UPSTREAM = 4096;
/** The number of open files that are reserved for the process itself, not counting its listening sockets. */
const OWN_FILES = 48;
/** The minimum and the maximum number of listening sockets. */
const MIN_LISTENERS = 4;
const MAX_LISTENERS = 128;
/** The limit of open files divided by this number is the number of listening sockets, within that minimum and maximum. */
const LISTENER_SHARE = 64;

/** The number of HTTP/2 requests that a client may have running on one connection, as in nginx. */
const MAX_STREAMS = 128;
/** The maximum number of pseudo-header fields in an HTTP/2 request: those of RFC 9113 §8.3.1, and `:protocol`. */
const PSEUDO_FIELDS = 5;
/**
 * Makes TCP probe a client after a minute of silence. Without probes, the WebSocket of a client that vanished would stay open
 * forever.
 */
export const PROBES = { keepAlive: true, keepAliveInitialDelay: 60_000 } as const;

/** Returns the HTTP/1.1 limits of a Node server. Each of these limits is both an option and a property of the server. */
function http1Limits(limits: ResolvedClientLimits): object {
  const { headersTimeout, keepAliveTimeout, maxHeaderSize } = limits;
  return {
    // Node's limit for a whole request would end an upload whose chunks still arrive. `bodyTimeout` replaces it.
    requestTimeout: 0,
    headersTimeout,
    // Node checks for late header sections only at this interval.
    connectionsCheckingInterval: intervalOf(limits),
    keepAliveTimeout,
    maxHeaderSize,
    // `listen` itself refuses a request without Host, so that the refusal is reported.
    requireHostHeader: false,
  };
}

/** Returns the options that limit the clients of a Node server, for HTTP/1.1 and HTTP/2. */
export function nodeLimits(
  limits: ResolvedClientLimits,
): NonNullable<ServerOptions["node"]> & Http2ServerOptions {
  const { headersTimeout, maxHeaderSize, maxHeadersCount } = limits;
  return {
    ...http1Limits(limits),
    ...PROBES,
    // Node takes 0 for 120 seconds. A longer time than this one would overflow its timers.
    handshakeTimeout: headersTimeout || 2 ** 31 - 1,
    maxHeaderListPairs: maxHeadersCount + PSEUDO_FIELDS,
    settings: {
      maxConcurrentStreams: MAX_STREAMS,
      maxHeaderListSize: maxHeaderSize,
      enableConnectProtocol: true,
    },
  };
}

/**
 * Returns the limits of one worker. New connections go to the workers in turn, so each worker gets an equal share of
 * `maxConnections` and `maxPerAddress`. The limit of open files applies to each worker separately.
 */
export function shareLimits(
  limits: ClientLimitSettings,
  workers = 1,
  openFiles: number | undefined = limitOfOpenFiles(),
): ResolvedClientLimits {
  const { maxConnections, maxPerAddress } = limits;
  const isAuto = maxConnections === "auto";
  const share = Math.ceil((isAuto ? MAX_CONNECTIONS : maxConnections) / workers);
  const possible = isAuto && openFiles !== undefined ? connectionsFor(openFiles) : Infinity;
  return {
    ...limits,
    maxConnections: Math.min(share, possible),
    maxPerAddress: Math.ceil(maxPerAddress / workers),
    ...(possible < share && { openFiles }),
  };
}

/** Returns how many sockets may listen on one port: a 64th of the limit of open files, within a minimum and a maximum. */
export function countListeners(openFiles: number = limitOfOpenFiles() ?? Infinity): number {
  return Math.max(MIN_LISTENERS, Math.min(MAX_LISTENERS, Math.floor(openFiles / LISTENER_SHARE)));
}

/** Returns how many client connections are possible with a limit of open files. */
function connectionsFor(openFiles: number): number {
  const upstreams = Math.min(MAX_UPSTREAM, Math.floor(openFiles / UPSTREAM_SHARE));
  const left = openFiles - upstreams - countListeners(openFiles) - OWN_FILES;
  return Math.max(1, left - maxTurnedAway(left));
}

/**
 * Sets the limits that a Node server does not take from its options. Call it before the server listens.
 *
 * - In Node 22.12 and 24.0, an HTTP/2 server, which is used with TLS, ignores its options for HTTP/1.1, so Node's default
 *   limits would apply.
 * - The server silently drops fields beyond its own limit. That limit is therefore set to one more than `maxHeadersCount`, so
 *   that `isTooLarge` notices a surplus field.
 */
export function setNodeLimits(server: object, limits: ResolvedClientLimits): void {
  Object.assign(server, http1Limits(limits), { maxHeadersCount: limits.maxHeadersCount + 1 });
}

/** Whether a request's header section exceeds one of the limits that Node's server does not enforce itself. */
export function isTooLarge(
  req: { readonly rawHeaders: readonly string[]; readonly stream?: unknown },
  { maxHeadersCount, maxHeaderSize }: ResolvedClientLimits,
): boolean {
  const { rawHeaders } = req;
  if (req.stream === undefined) return rawHeaders.length > 2 * maxHeadersCount;
  // Node itself limits the number of HTTP/2 fields, but it limits their size only after the client has acknowledged the
  // settings.
  let size = 0;
  for (const text of rawHeaders) size += text.length;
  return size > maxHeaderSize;
}

/** Whether an HTTP/1.1 request lacks the field `Host` (RFC 9112 §3.2). */
export function lacksHost(req: {
  readonly httpVersion: string;
  readonly headers: { readonly host?: string | undefined };
}): boolean {
  return req.httpVersion === "1.1" && req.headers.host === undefined;
}

/**
 * Returns the addresses that are exempt from `maxPerAddress`: those of trusted proxies, whose connections carry the requests of
 * many clients.
 */
export function readExempt(trustProxy: ProxyOptions["trustProxy"] = false): Trust {
  return createTrust(trustProxy);
}

/** The names of the options that only Node's server has, because other servers do not show the connections of clients. */
export const NODE_ONLY: readonly string[] = ["proxyProtocol", ...Object.keys(clientLimitSchema)];

/**
 * Finds configured options that the server of this runtime does not have.
 * @param names the names of the options that were given
 * @param describe returns how the user has written an option
 */
export function findMissingLimits(
  names: readonly string[],
  describe: (name: string) => string,
): string[] {
  const runtime = ["Bun", "Deno"].find((name) => name in globalThis);
  if (runtime === undefined) return [];
  return names
    .filter((name) => NODE_ONLY.includes(name))
    .map((name) => `${describe(name)}: ${runtime}'s server has no such option; run this on Node`);
}
