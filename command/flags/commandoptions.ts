/** The options of the command itself, in the same form as those of a proxy. */
import {
  bytes,
  choice,
  either,
  limitFrom,
  milliseconds,
  quoteInput,
  ranges,
  text,
  toggle,
  whole,
  defaultsOf,
  type Kind,
  type Schema,
} from "#fetchway/options";
import type { Flags } from "./flagtable.ts";
import type { LogForm } from "../log/requestlog.ts";
import { headerValues, methods, queryValues } from "../serve/routecondition.ts";
import { origins } from "../serve/cors.ts";
import { parseAdminAddress } from "../status/adminaddress.ts";

/** The options about the server that the command starts. */
export interface ListenOptions {
  /**
   * The port to listen on; `0` takes a free one. It has no effect with a `host` that is a socket.
   * @default 3000
   */
  port?: number;
  /**
   * The address to listen on; `"0.0.0.0"` for all. On a machine without `127.0.0.1`, `::1` takes its place.
   *
   * `"unix:/path"` listens on a Unix domain socket instead of a port, and `unix:\\.\pipe\name` on a named pipe of Windows.
   *
   * The socket's file is removed when the command ends. A file that a killed process has left behind is replaced if no process
   * listens on it. Clients of a socket count as 127.0.0.1, so that `trustProxy: ["loopback"]` trusts a proxy in front;
   * `maxPerAddress` does not limit them.
   * @default "127.0.0.1"
   */
  host?: string;
  /**
   * The addresses and CIDR ranges of the trusted proxies that begin each connection with a header of the PROXY protocol. The
   * address in the header is the client's address for the log, the limits, the turns in queues, `trustProxy` and the forwarding
   * fields. Versions 1 and 2 are supported, on Node only. `"loopback"`, `"linklocal"` and `"uniquelocal"` name ranges.
   *
   * A connection of these proxies without a header gets 400, and a connection with a late header (`headersTimeout`) gets 408;
   * with TLS, both are closed. A header from any other peer gets 400. If a program at one of these addresses passes on the
   * bytes of clients without its own header, clients can forge their address.
   * @example ["10.0.0.0/8"]
   */
  proxyProtocol?: readonly string[];
  /**
   * The permissions of the file of the socket that `host` names, in octal digits. A user who may write to the file may
   * connect to the socket. By default, the permissions follow from the umask of the process, which usually allows only its
   * own user. This option is refused with a port, and has no effect on Windows.
   * @example "660"
   */
  socketMode?: string;
  /**
   * Milliseconds for running requests and tunnels to finish on SIGTERM or Ctrl+C. Requests and tunnels that still run after
   * that are cut off, and the exit code is 1 instead of 0.
   * @default 10000
   */
  stopTimeout?: number;
  /**
   * The number of worker processes that share the port; `"auto"` for one for each core. With `1`, this process serves by
   * itself. Only Node can have several: Bun and Deno refuse a number above 1, and treat `"auto"` as 1. On SIGHUP, and when
   * the config file or the certificate changes, the workers are replaced one after another.
   *
   * Each worker has its own connections, caches and upstream states: limits of the pool, such as `maxSockets`, apply to each
   * worker. `maxConnections` and `maxPerAddress` are divided among them.
   * @default 1
   */
  workers?: number | "auto";
  /**
   * Milliseconds without a heartbeat after which a worker counts as hung: another worker takes its place, and the hung one is
   * killed if it does not recover within `stopTimeout` plus 3 seconds. With `0`, no worker is replaced for this reason, so
   * that a debugger can pause a worker. Any other value below 2000 counts as 2000.
   *
   * A hook that computes for longer than this without a pause blocks all requests of its worker, so the worker is replaced.
   * @default 10000
   */
  workerTimeout?: number;
}

const portNumber = whole(0, "use a whole number from 0 to 65535; 0 takes a free port", 65_535);

function checkHost(host: unknown): string | undefined {
  if (typeof host !== "string" || /^unix:(?![/\\])/.test(host) || /^\s*$|:\/\//.test(host)) {
    return 'use an address such as "0.0.0.0", or a socket such as "unix:/run/fetchway.sock"';
  }
  if (/^(?:\.{0,2}\/|\\\\)/.test(host)) {
    return `for a socket, use ${quoteInput(`unix:${host.startsWith(".") ? "/path" : host}`)}`;
  }
  const [, address, port] = /^([^:]*|\[.*\]):(\d+)$/.exec(host) ?? [];
  return port && `use ${quoteInput(address || "0.0.0.0")}, and ${port} as the port`;
}

export const listenSchema: Schema<
  ListenOptions,
  Exclude<keyof ListenOptions, "socketMode" | "proxyProtocol">
> = {
  port: { kind: portNumber, default: 3000 },
  host: {
    kind: { name: "text", check: checkHost },
    default: "127.0.0.1",
  },
  proxyProtocol: {
    kind: either('use an array of addresses and CIDR ranges such as ["10.0.0.0/8"]', ranges),
  },
  socketMode: { kind: text(/^0?[0-7]{3}$/, 'use three octal digits such as "660"') },
  stopTimeout: {
    kind: whole(0, "use whole milliseconds", 2 ** 31 - 1, "milliseconds"),
    default: 10_000,
  },
  workers: {
    kind: either(
      "use a whole number from 1 to 1024, or auto for one for each core",
      whole(1, "", 1024),
      choice("auto"),
    ),
    default: 1,
  },
  workerTimeout: { kind: milliseconds, default: 10_000 },
};

export const listenFlags: Flags<ListenOptions> = {
  heading: "Listening",
  flags: {
    port: { short: "p", help: "port to listen on; 0 takes a free one" },
    host: { value: "<address>", help: "address, 0.0.0.0 for all, or unix:/path" },
    proxyProtocol: {
      value: "<addresses>",
      help: "proxies that name the client of each connection",
    },
    socketMode: { value: "<660>", help: "permissions of the socket of --host" },
    stopTimeout: "for requests to finish on SIGTERM or Ctrl+C",
    workers: { help: "processes that share the port (Node only)" },
    workerTimeout: "until a worker that hangs is replaced",
  },
};

/** The options about TLS, on both sides, and about browsers. */
export interface SecurityOptions {
  /**
   * The file of the certificate in PEM, with its chain. With it, the server speaks HTTPS, and HTTP/2 if the runtime can. The
   * file is reloaded when it changes, and on SIGHUP, if the runtime can. It needs `key`. In a config file, the path is
   * relative to the folder of that file.
   */
  cert?: string;
  /**
   * The file of the private key of `cert`, in PEM and not encrypted. In a config file, the path is relative to the folder of
   * that file.
   */
  key?: string;
  /**
   * The port of a second listener on the same `host`, for clients that come without TLS. It needs `cert`, and answers every
   * request with 308: the client repeats it, with its method and body, at `https:` on the same host name and on `port`.
   *
   * Nothing is exempt, not even `/.well-known/acme-challenge`. A request without a usable `Host` gets 400. `trustProxy` has no
   * effect. The limits for clients apply to both listeners together.
   * @example 80
   */
  redirectHttp?: number;
  /**
   * The file of the certificate authorities in PEM that upstreams' certificates are checked against, instead of the runtime's.
   * In a config file, the path is relative to the folder of that file. The option `tls` of a target or a pool takes precedence.
   */
  ca?: string;
  /**
   * Whether to accept any certificate of an upstream. Anyone on the network path can then read and change everything. The
   * option `tls` of a target or a pool takes precedence.
   * @default false
   */
  insecure?: boolean;
  /**
   * Whether pages of all origins may read responses (CORS), without cookies. It is meant for development: every page that
   * the user visits can then read what the server answers to requests without cookies.
   *
   * Preflights are answered without the upstream. If a response of the upstream has `Access-Control-Allow-Origin`, its fields
   * stay as they are.
   * @default false
   */
  cors?: boolean;
  /**
   * The origins whose pages may read responses (CORS), with cookies. Without this option, `cors` allows all origins, without
   * cookies. With it, `cors` is not needed.
   * @example ["http://localhost:5173"]
   */
  corsOrigin?: readonly string[];
}

const file = text(/./, 'use a file in PEM such as "cert.pem"');

const securitySchema: Schema<SecurityOptions, "insecure" | "cors"> = {
  cert: { kind: file },
  key: { kind: file },
  redirectHttp: { kind: portNumber },
  ca: { kind: file },
  insecure: { kind: toggle, default: false },
  cors: { kind: toggle, default: false },
  corsOrigin: { kind: origins },
};

export const securityFlags: Flags<SecurityOptions> = {
  heading: "TLS and browsers",
  flags: {
    cert: { value: "<file>", help: "serve HTTPS and HTTP/2; reloaded when it changes" },
    key: { value: "<file>", help: "the private key of --cert" },
    redirectHttp: {
      value: "<port>",
      help: "with --cert: send http: clients of this port to https:",
    },
    ca: { value: "<file>", help: "trust these certificates of upstreams, not the runtime's" },
    insecure: "accept any certificate of an upstream",
    cors: {
      help: "let pages of all origins read responses, without cookies",
      instead: "for one origin, use --cors-origin",
    },
    corsOrigin: { value: "<a,b>", help: "let pages of these origins read responses, with cookies" },
  },
};

/**
 * The limits for clients. They exist only on Node. Except for `maxPerAddress`, each has the name that it has in Node, or
 * otherwise its name in nginx without the prefix `client_`. None of them ends a request that makes progress or that waits for
 * its upstream.
 */
export interface ClientLimits {
  /**
   * Milliseconds until the header section of a request is complete; a client that takes longer gets 408. The handshake of a
   * TLS connection has the same limit. `0` for no limit.
   * @default 60000
   */
  headersTimeout?: number;
  /**
   * Milliseconds to wait for each chunk of a request's body; a client that takes longer gets 408, or over HTTP/2, a reset of
   * the stream. `0` for no limit. Only time in which the proxy waits for the client counts: not while the upstream does not
   * read, nor after it has begun to respond.
   * @default 60000
   */
  bodyTimeout?: number;
  /**
   * Milliseconds for which a client may read nothing while bytes wait for it; after that, its connection or HTTP/2 stream is
   * reset. `0` for no limit. It also applies to tunnels.
   * @default 60000
   */
  sendTimeout?: number;
  /**
   * Milliseconds that a connection without a request is kept. `0` for no limit. Behind a load balancer, set it longer than the
   * load balancer's idle timeout: otherwise, the load balancer may send a request on a connection that is being closed.
   * @default 75000
   */
  keepAliveTimeout?: number;
  /**
   * The maximum size of a request's header section, in bytes. A request with a larger one gets 431.
   * @default 16384
   */
  maxHeaderSize?: number;
  /**
   * The maximum number of fields in a request's header section. A request with more fields gets 431, or over HTTP/2, a reset of
   * the stream.
   * @default 256
   */
  maxHeadersCount?: number;
  /**
   * The maximum number of client connections at the same time. Beyond it, the connection that has been idle longest is closed
   * for a new one; if none is idle, the first request of the new connection gets 503 with `Retry-After`. `Infinity` for no
   * limit.
   *
   * A WebSocket over HTTP/2 counts as one more connection; beyond the limit, it gets 503.
   *
   * `"auto"` is 16384, or about two thirds of the limit of open files (`ulimit -n`), if that is less: a quarter is for
   * upstreams, and the rest for the process itself and for the connections that get 503. With `"auto"`, clients are also
   * refused while the process is overloaded, on Linux without workers.
   * @default "auto"
   */
  maxConnections?: number | "auto";
  /**
   * The maximum number of connections of one client address at the same time. Beyond it, an idle connection of the address is
   * closed for a new one; if none is idle, the new connection is reset. The IPv6 addresses of one /64 network count as one
   * address. Addresses that `trustProxy` names have no limit. `Infinity` for no limit.
   *
   * A WebSocket over HTTP/2 counts as one more connection; beyond the limit, it gets 503.
   * @default 2048
   */
  maxPerAddress?: number;
}

export const clientLimitSchema: Schema<ClientLimits, keyof ClientLimits> = {
  headersTimeout: { kind: milliseconds, default: 60_000 },
  bodyTimeout: { kind: milliseconds, default: 60_000 },
  sendTimeout: { kind: milliseconds, default: 60_000 },
  keepAliveTimeout: { kind: milliseconds, default: 75_000 },
  maxHeaderSize: { kind: bytes, default: 16_384 },
  maxHeadersCount: { kind: whole(1, "use a whole number from 1", 10_000), default: 256 },
  maxConnections: {
    kind: either(
      "use a whole number from 1, Infinity, or auto for what ulimit -n allows",
      limitFrom(1),
      choice("auto"),
    ),
    default: "auto",
  },
  maxPerAddress: { kind: limitFrom(1), default: 2048 },
};

export const clientLimitFlags: Flags<ClientLimits> = {
  heading: "Limits for clients",
  flags: {
    headersTimeout: "to send a header section; 0 for no limit",
    bodyTimeout: "between two chunks of a request body",
    sendTimeout: "how long a client may read nothing",
    keepAliveTimeout: "how long an idle client is kept",
    maxHeaderSize: "bytes of a header section; over it 431",
    maxHeadersCount: "fields of a header section; over it 431",
    maxConnections: "clients; over it, idle ones are closed",
    maxPerAddress: "clients of one address",
  },
};

/** The options about the reports of the server: its log, its counters and its status page. */
export interface ReportOptions {
  /**
   * Whether the counters of the connections are printed when the command ends.
   * @default false
   */
  stats?: boolean;
  /**
   * The form of the log: `"pretty"` for people, Apache's `"common"` or `"combined"`, `"json"`, or `"off"`; `"auto"` is pretty
   * on a terminal, and common elsewhere. Every form prints failures on stderr, except `"json"`, which prints everything on
   * stdout, messages of the command included.
   * @default "auto"
   */
  log?: LogForm | "auto";
  /**
   * The port, or host and port, of the status page; without a host, on the loopback interface. Anyone who can connect to the
   * page can read the last requests, without their queries, so use no address that others can reach.
   */
  admin?: number | string;
}

const LOG_FORMS = ["auto", "pretty", "common", "combined", "json", "off"] as const;
const logForm: Kind<LogForm | "auto"> = {
  choices: LOG_FORMS,
  check: (value) =>
    (LOG_FORMS as readonly unknown[]).includes(value)
      ? undefined
      : `use ${LOG_FORMS.slice(0, -1).join(", ")} or ${LOG_FORMS.at(-1)}`,
};
const adminAddress: Kind<number | string> = {
  name: "text",
  check: (value) =>
    (typeof value === "number" || typeof value === "string") && parseAdminAddress(value)
      ? undefined
      : 'use a port such as 9100, or host and port such as "10.0.0.1:9100"',
};

export const reportSchema: Schema<ReportOptions, Exclude<keyof ReportOptions, "admin">> = {
  stats: { kind: toggle, default: false },
  log: { kind: logForm, default: "auto" },
  admin: { kind: adminAddress },
};

export const reportFlags: Flags<ReportOptions> = {
  heading: "Reports",
  flags: {
    log: {
      value: "<form>",
      help: "pretty, common, combined, json, off or auto",
    },
    admin: { value: "<port>", help: "a status page, with metrics and health checks" },
    stats: "print connection counters at the end; SIGUSR1 always does",
  },
};

/** The options about the recording of requests and their responses. */
export interface RecordOptions {
  /**
   * The file to which requests to upstreams and their responses are written, in the format HAR 1.2. Browsers can open it, and
   * `fetchway replay` sends its requests again. It replaces a file of the same name, and only its owner may read it. In a
   * config file, the path is relative to the folder of that file.
   *
   * Bodies are recorded unchanged, including any secrets in them.
   * @example "traffic.har"
   */
  record?: string;
  /**
   * Whether the recording includes secrets: the values of cookies, of fields such as `Authorization`, and of query parameters
   * such as `key` and `token`. By default, they are replaced with `REDACTED`.
   * @default false
   */
  recordSecrets?: boolean;
  /**
   * The maximum number of bytes of a body that are recorded. For a longer body, the beginning and the digest are recorded. Each
   * running request uses up to twice this memory.
   * @default 65536
   */
  recordMaxBody?: number;
  /**
   * The maximum number of recorded requests. When it is reached, recording ends, and a line on stderr says so.
   * @default 10000
   */
  recordMaxEntries?: number;
  /**
   * The maximum size of the recording in bytes. When it is reached, recording ends, and a line on stderr says so.
   * @default 104857600
   */
  recordMaxBytes?: number;
}

export const recordSchema: Schema<RecordOptions, Exclude<keyof RecordOptions, "record">> = {
  record: { kind: text(/./, 'use a file such as "traffic.har"') },
  recordSecrets: { kind: toggle, default: false },
  recordMaxBody: { kind: bytes, default: 65_536 },
  recordMaxEntries: { kind: limitFrom(1), default: 10_000 },
  recordMaxBytes: { kind: bytes, default: 104_857_600 },
};

export const recordFlags: Flags<RecordOptions> = {
  heading: "Recording",
  flags: {
    record: { value: "<file>", help: "write requests and responses to a .har file" },
    recordSecrets: "keep cookies, credentials and keys in it",
    recordMaxBody: "bytes of each body that are recorded",
    recordMaxEntries: "requests that are recorded",
    recordMaxBytes: "size of the recording",
  },
};

/** Every option of the server that the command starts: the key `server` of a config file, and flags. */
export interface ServerOptions
  extends ListenOptions, SecurityOptions, ClientLimits, ReportOptions, RecordOptions {}

/** The options of the server without a default. */
type Unset =
  | "socketMode"
  | "proxyProtocol"
  | "cert"
  | "key"
  | "redirectHttp"
  | "ca"
  | "corsOrigin"
  | "admin"
  | "record";

export const serverSchema: Schema<ServerOptions, Exclude<keyof ServerOptions, Unset>> = {
  ...listenSchema,
  ...securitySchema,
  ...clientLimitSchema,
  ...reportSchema,
  ...recordSchema,
};

/** The options that exist only as flags: where requests go, and what the command does instead of serving. */
interface LineOptions {
  route?: readonly string[];
  whenMethod?: readonly string[];
  whenHeader?: Readonly<Record<string, string>>;
  whenQuery?: Readonly<Record<string, string>>;
  config?: string;
  demo?: boolean;
  inspect?: string;
  inspectHeader?: readonly string[];
  help?: boolean | "all";
  version?: boolean;
}

/** A list of texts, one for each use of the flag. */
const list: Kind<readonly string[]> = {
  name: "list",
  check: (value) =>
    Array.isArray(value) && value.every((each) => typeof each === "string")
      ? undefined
      : "use an array of strings",
};

export const lineSchema: Schema<LineOptions, "demo" | "help" | "version"> = {
  route: { kind: list },
  whenMethod: { kind: methods },
  whenHeader: { kind: headerValues },
  whenQuery: { kind: queryValues },
  config: { kind: text(/./, 'use a file such as "fetchway.config.mjs"') },
  demo: { kind: toggle, default: false },
  inspect: { kind: text(/./, 'use a request such as "GET http://shop.example/api"') },
  inspectHeader: { kind: list },
  help: {
    kind: either("use --help, or --help all", toggle, choice("all")),
    default: false,
  },
  version: { kind: toggle, default: false },
};

export const routeFlags: Flags<
  Pick<
    LineOptions,
    | "route"
    | "whenMethod"
    | "whenHeader"
    | "whenQuery"
    | "config"
    | "demo"
    | "inspect"
    | "inspectHeader"
  >
> = {
  heading: "Routes",
  flags: {
    route: {
      value: "<host/path>=<target>",
      help: "another target for a path; its flags may follow",
    },
    whenMethod: "in --route: only requests with one of these methods",
    whenHeader: "in --route: only requests with this field; * is any text",
    whenQuery: {
      value: '"name=value"',
      help: "in --route: only with this parameter of the query",
    },
    config: { value: "<file>", help: "read routes and options from a .mjs, .ts or .json file" },
    demo: "start a small upstream, where no target is given",
    inspect: {
      value: "<request>",
      help: "show what a request would become, and why; send nothing",
    },
    inspectHeader: {
      short: "H",
      value: '"name: value"',
      help: "a field of the request of --inspect",
    },
  },
};

export const otherFlags: Flags<Pick<LineOptions, "help" | "version">> = {
  heading: "Other",
  flags: {
    help: { short: "h", optional: ["all"], help: "show the usual flags, or all" },
    version: { short: "v", help: "show the version" },
  },
};

/** The options of the server, with defaults for those that were not given. */
export type ServerSettings = Readonly<
  Required<Omit<ServerOptions, Unset>> & Pick<ServerOptions, Unset>
>;

export const serverDefaults: ServerSettings = defaultsOf(serverSchema);

/** The options of the command line itself that were given. */
export type LineSettings = Readonly<LineOptions>;
