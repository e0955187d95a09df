/** The options of the command itself, in the same form as those of a proxy. */
import { bytes, limitFrom, milliseconds, text, toggle, whole } from "../../src/options/kinds.ts";
import { defaultsOf, type Flags, type Schema } from "../../src/options/schema.ts";
import { origins } from "./cors.ts";

/** The options about the server that the command starts. */
interface ListenOptions {
  port?: number;
  host?: string;
  stopTimeout?: number;
}

export const listenSchema: Schema<ListenOptions, keyof ListenOptions> = {
  port: {
    kind: whole(0, "use a whole number from 0 to 65535; 0 takes a free port", 65_535),
    default: 3000,
  },
  host: { kind: text(/./, 'use an address such as "0.0.0.0"'), default: "127.0.0.1" },
  stopTimeout: {
    kind: whole(0, "use whole milliseconds", 2 ** 31 - 1, "milliseconds"),
    default: 10_000,
  },
};

export const listenFlags: Flags<ListenOptions> = {
  heading: "Listening",
  flags: {
    port: { short: "p", help: "port to listen on; 0 takes a free one" },
    host: { value: "<address>", help: "address to listen on; 0.0.0.0 for all" },
    stopTimeout: "for requests to finish on SIGTERM or Ctrl+C",
  },
};

/** The options about TLS, on both sides, and about browsers. */
interface SecurityOptions {
  cert?: string;
  key?: string;
  ca?: string;
  insecure?: boolean;
  cors?: boolean;
  corsOrigin?: readonly string[];
}

const file = text(/./, "use the path of a file in PEM");

export const securitySchema: Schema<SecurityOptions, "insecure" | "cors"> = {
  cert: { kind: file },
  key: { kind: file },
  ca: { kind: file },
  insecure: { kind: toggle, default: false },
  cors: { kind: toggle, default: false },
  corsOrigin: { kind: origins },
};

export const securityFlags: Flags<SecurityOptions> = {
  heading: "TLS and browsers",
  flags: {
    cert: {
      value: "<file>",
      help: "serve HTTPS and HTTP/2 with this certificate; SIGHUP reads it again",
    },
    key: { value: "<file>", help: "the private key of --cert" },
    ca: { value: "<file>", help: "trust these certificates of upstreams, instead of the system's" },
    insecure: "accept any certificate of an upstream",
    cors: "let pages of all origins read responses, without cookies",
    corsOrigin: { value: "<a,b>", help: "let pages of these origins read responses, with cookies" },
  },
};

/**
 * The limits for clients. They are named as in Node where Node has them, and as in nginx where it has them, without its
 * prefix `client_`.
 */
export interface ClientLimits {
  headersTimeout?: number;
  bodyTimeout?: number;
  sendTimeout?: number;
  keepAliveTimeout?: number;
  maxHeaderSize?: number;
  maxHeadersCount?: number;
  maxConnections?: number;
  maxConnectionsPerAddress?: number;
}

export const clientLimitSchema: Schema<ClientLimits, keyof ClientLimits> = {
  headersTimeout: { kind: milliseconds, default: 60_000 },
  bodyTimeout: { kind: milliseconds, default: 60_000 },
  sendTimeout: { kind: milliseconds, default: 60_000 },
  keepAliveTimeout: { kind: milliseconds, default: 75_000 },
  maxHeaderSize: { kind: bytes, default: 16_384 },
  maxHeadersCount: { kind: whole(1, "use a whole number from 1", 10_000), default: 256 },
  maxConnections: { kind: limitFrom(1), default: 16_384 },
  maxConnectionsPerAddress: { kind: limitFrom(1), default: 2048 },
};

export const clientLimitFlags: Flags<ClientLimits> = {
  heading: "Limits for clients",
  flags: {
    headersTimeout: "until a request's header section is complete; 0 for no limit",
    bodyTimeout: "between two chunks of a request's body",
    sendTimeout: "until a client that does not read is closed",
    keepAliveTimeout: "how long an idle connection is kept",
    maxHeaderSize: "bytes of a request's header section; over it 431",
    maxHeadersCount: "fields of a request's header section; over it 431",
    maxConnections: "connections of clients; beyond it the longest idle one is closed",
    maxConnectionsPerAddress: "of one address, unless --trust-proxy names it",
  },
};

/** The options about what the command does beside forwarding. */
interface OtherOptions {
  demo?: boolean;
  stats?: boolean;
  help?: boolean;
  version?: boolean;
}

export const otherSchema: Schema<OtherOptions, keyof OtherOptions> = {
  demo: { kind: toggle, default: false },
  stats: { kind: toggle, default: false },
  help: { kind: toggle, default: false },
  version: { kind: toggle, default: false },
};

export const otherFlags: Flags<OtherOptions> = {
  heading: "Other",
  flags: {
    demo: "start a small upstream, where no target is given",
    stats: "print connection counters at the end; SIGUSR1 always does",
    help: { short: "h", help: "show this" },
    version: { short: "v", help: "show the version" },
  },
};

/** The options of the command, with defaults for those that were not given. */
export type Command = Required<
  ListenOptions & Omit<SecurityOptions, Unset> & ClientLimits & OtherOptions
> &
  Pick<SecurityOptions, Unset>;
/** The options without a default. */
type Unset = "cert" | "key" | "ca" | "corsOrigin";

export const commandDefaults: Readonly<Command> = {
  ...defaultsOf(listenSchema),
  ...defaultsOf(securitySchema),
  ...defaultsOf(clientLimitSchema),
  ...defaultsOf(otherSchema),
};
