import type { PoolOptions } from "../../src/options/pool.ts";
import type { Entry, Expressible } from "./entry.ts";
import {
  asNumberFrom,
  asObjectOrFalse,
  asSwitch,
  asText,
  limit,
  limitOrNone,
  milliseconds,
} from "./read.ts";

/** The flags of a pool's options; `connectTimeout` is the proxy's, too. */
export const poolFlags: Record<Exclude<Expressible<PoolOptions>, "connectTimeout">, Entry> = {
  maxSockets: {
    group: "Connections",
    value: "<number>",
    help: "connections to the target at the same time",
    read: limit,
  },
  maxFreeSockets: {
    group: "Connections",
    value: "<number>",
    help: "idle connections that are kept",
    read: limitOrNone,
  },
  maxTotalFreeSockets: {
    group: "Connections",
    value: "<number>",
    help: "idle connections kept in all",
    read: limitOrNone,
  },
  freeSocketTimeout: {
    group: "Connections",
    value: "<ms>",
    help: "how long an idle connection is kept",
    read: asNumberFrom(1, 2 ** 31 - 1, "use whole milliseconds, 1 or more"),
  },
  timeout: {
    group: "Connections",
    name: "socket-timeout",
    value: "<ms>",
    help: "how long a connection in use may be silent",
    read: milliseconds,
  },
  socketTTL: {
    group: "Connections",
    name: "socket-ttl",
    value: "<ms>",
    help: "how long a connection lives; 0 for no limit",
    read: milliseconds,
  },
  maxQueued: {
    group: "Connections",
    value: "<number>",
    help: "waiting requests; beyond it 503",
    read: limitOrNone,
  },
  queueTimeout: {
    group: "Connections",
    value: "<ms>",
    help: "how long a request may wait for a connection",
    read: milliseconds,
  },
  keepAlive: {
    group: "Connections",
    negatable: true,
    help: "keep connections for further requests",
    read: asSwitch,
  },
  keepAliveInitialDelay: {
    group: "Connections",
    value: "<ms>",
    help: "silence before TCP asks for life",
    read: milliseconds,
  },
  noDelay: {
    group: "Connections",
    negatable: true,
    help: "send small writes at once",
    read: asSwitch,
  },
  dns: {
    group: "Connections",
    negatable: true,
    help: "keep addresses of names, use them in turn",
    read: asObjectOrFalse,
  },
  reuseBuffers: {
    group: "Connections",
    negatable: true,
    help: "use buffers again; the default where nothing is preloaded",
    read: asSwitch,
  },
  http2: {
    group: "Connections",
    negatable: true,
    help: "speak HTTP/2 with the target",
    read: asSwitch,
  },
  socketPath: {
    group: "Connections",
    value: "</path>",
    help: "connect to this unix socket",
    read: asText,
  },
};
