/** The flags of the options of a proxy and its pool: the name of each option, with its line in the help. */
import type {
  ForwardingOptions,
  HeaderOptions,
  LimitOptions,
  ObservationOptions,
  PathOptions,
  PoolOptions,
  RepeatOptions,
  RewriteOptions,
} from "#fetchway";
import type { Flags } from "./flagtable.ts";

export const forwardingFlags: Flags<ForwardingOptions> = {
  heading: "Forwarding",
  flags: {
    xfwd: "send X-Forwarded-*, nothing, or Forwarded",
    trustProxy: {
      value: "<addresses>",
      help: "your own proxies, such as 10.0.0.0/8, or true for all",
    },
    via: { value: "<name>", help: "append this pseudonym to Via" },
  },
};

export const headerFlags: Flags<HeaderOptions> = {
  heading: "Headers",
  flags: {
    headers: { name: "header", help: 'set a field of the upstream request; "name:" deletes it' },
    filterHeaders: "fields to drop from the request",
    forwardHeaders: "fields to forward although dropped by default",
    changeOrigin: "send the target's Host, not the client's",
    host: { name: "host-header", value: "<name>", help: "send this Host" },
    upgrades: "protocols of Upgrade to tunnel",
    trace: "forward TRACE, without secrets",
  },
};

export const limitFlags: Flags<LimitOptions> = {
  heading: "Limits",
  flags: {
    timeout: "until response headers; 0 for no limit",
    connectTimeout: "to connect to the upstream",
    idleTimeout: "between two chunks of a response body",
    bodyLimit: "largest request body, such as 512k or 10mb; over it 413",
    dropGetBody: "drop the body of a GET or HEAD",
    tunnelTimeout: "until a silent tunnel is closed",
    tunnelCloseTimeout: "after one side of a tunnel has closed",
  },
};

/** The option `log` has no flag: `--log` sets the command's own log. */
export const observationFlags: Flags<Omit<ObservationOptions, "log">> = {
  heading: "Observation",
  flags: {
    route: { name: "route-name", value: "<name>", help: "the name of the route in the log" },
    serverTiming: "report the upstream's times to browsers in Server-Timing",
    startTrace: "set traceparent where the client sends none",
  },
};

export const pathFlags: Flags<PathOptions> = {
  heading: "Paths",
  flags: {
    stripPrefix: {
      value: "</path>",
      help: "remove this prefix before the target's path is prepended",
    },
    pathRewrite: "rewrite the path; from is a regular expression",
  },
};

/** The proxy and its pool both have an option `connectTimeout`. Only the option of the proxy has a flag. */
export const poolFlags: Flags<Omit<PoolOptions, "connectTimeout">> = {
  heading: "Connections",
  flags: {
    maxSockets: { help: "connections to the target", fallback: "by ulimit -n" },
    maxFreeSockets: "idle connections that are kept",
    maxTotalFreeSockets: "idle connections kept in all",
    freeSocketTimeout: "how long an idle connection is kept",
    timeout: { name: "socket-timeout", help: "how long a connection in use may be silent" },
    socketTTL: { name: "socket-ttl", help: "how long a connection lives; 0 for no limit" },
    maxQueued: "waiting requests; beyond it 503",
    queueTimeout: "how long a request may wait",
    minRate: "bytes a second of a client while others wait",
    minRateGrace: "how long a client may be slower",
    keepAlive: "keep connections for further requests",
    keepAliveInitialDelay: "silence before TCP probes the peer",
    noDelay: "send small writes immediately",
    dns: "cache addresses of names, use all in turn",
    http2: "speak HTTP/2 with the target",
    socketPath: { value: "</path>", help: "connect to this unix socket" },
    proxyProtocol: {
      name: "send-proxy-protocol",
      help: "name the client to the target, as HAProxy does",
    },
  },
};

export const repeatFlags: Flags<RepeatOptions> = {
  heading: "Redirects and retries",
  flags: {
    followRedirects: "follow up to this many redirects; true for 5",
    redirectTargets: { value: "<where>", help: "allowed: same-origin, or any" },
    replayLimit: "bytes of a body kept to resend it",
    attemptTimeout: "to the response of an attempt, before the next one",
    retry: "resend what a stale connection lost",
    wait: "hold requests while the target restarts",
  },
};

export const rewriteFlags: Flags<RewriteOptions> = {
  heading: "Rewriting",
  flags: {
    cookieDomainRewrite: {
      name: "cookie-domain",
      help: "rewrite cookies' domain; * is any other, =to is all",
    },
    cookiePathRewrite: { name: "cookie-path", help: "rewrite cookies' path, in the same way" },
    cookieSecure: "keep the attribute Secure of cookies",
    locationRewrite: "rewrite the beginning of URLs in Location",
  },
};
