/** Explains an error of a request: what happened, at which upstream, and what to do about it. */
import { type ErrorPlace, placeOf, ProxyError, type ProxyErrorCode } from "../error.ts";
import { escapeControls } from "./printable.ts";

/** The explanation of an error in its parts. No text in it contains a control character or a credential. */
export interface Diagnosis {
  /** The error type of RFC 9209, or `client_too_slow`, which RFC 9209 does not define. */
  readonly code: ProxyErrorCode | "client_too_slow";
  /** What happened, with the address of the upstream. */
  readonly cause: string;
  /** What the operator can do; undefined where the cause says it, or there is nothing to do. */
  readonly fix: string | undefined;
}

/**
 * Translates the name of an option in the library, such as `pool.maxSockets`, into the name that the reader knows, such as a
 * flag of the command.
 */
export type NameOption = (option: string) => string;

/** The inputs of a diagnosis. */
interface FailureFacts {
  /** The name of the upstream for the texts, from `locate`. */
  readonly at: string;
  /** The host name of the upstream, without the port. */
  readonly host: string;
  /** The upstream or the upstreams of the request; undefined if they are not known. */
  readonly place: ErrorPlace | undefined;
  /** The message of the `ProxyError`; undefined if the message is only the error's code. */
  readonly message: string | undefined;
  /** The exception that caused the error. */
  readonly thrown: Thrown;
  /** The status of the response for this error. */
  readonly status: number;
  readonly name: NameOption;
}

/** The properties of system errors and of TLS errors that the texts use. */
interface Thrown {
  readonly name?: string;
  readonly message?: string;
  readonly stack?: string;
  readonly code?: unknown;
  readonly cause?: unknown;
  readonly address?: string;
  readonly port?: number;
  readonly hostname?: string;
  readonly reason?: string;
}

type Text = (facts: FailureFacts) => readonly [cause: string, fix?: string | undefined];

/** The maximum number of upstreams that a text names. */
const MAX_NAMED = 8;
/** The maximum number of exceptions that `findCoded` examines in a chain of causes. */
const MAX_CAUSES = 4;

const IS_PLAIN = "does it speak plain HTTP? then begin the target with http://";

function trust({ name }: FailureFacts): string {
  return `trust it by ${name("tls: { ca } of the target")}, or accept any by ${name("tls: { rejectUnauthorized: false }")}`;
}

function redial({ name }: FailureFacts): string {
  return `is the target right? does a firewall drop packets? see ${name("connectTimeout")}`;
}

const unknownAuthority: Text = (facts) => [
  `the certificate of ${facts.at} is from an authority that is not trusted here`,
  trust(facts),
];
const selfSigned: Text = (facts) => [`${facts.at} has a self-signed certificate`, trust(facts)];
function isLoop({ name }: FailureFacts): string {
  return `or does the target lead back to this proxy? (${name("via")} detects it)`;
}
const tooManyFiles: Text = (facts) => [
  "this process has too many open files",
  `raise the limit by ulimit -n, or lower ${facts.name("pool.maxSockets")}; ${isLoop(facts)}`,
];
const noRoute: Text = ({ at }) => [
  `there is no network route to ${at}`,
  "is the address right? is the network up?",
];
const refused: Text = ({ at }) => [at, "is it running?"];

/** The texts for the codes of system errors and of TLS errors. They take precedence over `BY_ERROR_TYPE`. */
const BY_CAUSE: Readonly<Record<string, Text>> = {
  ECONNREFUSED: refused,
  // Bun's `fetch` throws errors with this code.
  ConnectionRefused: refused,
  ENOENT: ({ at }) => [`there is no socket ${at}`, "is the upstream running? is the path right?"],
  EACCES: ({ at }) => [`no permission to connect to ${at}`, "run as a user that has it"],
  ECONNRESET: ({ at }) => [`${at} reset the connection`, "see its log"],
  EMFILE: tooManyFiles,
  ENFILE: tooManyFiles,
  EADDRNOTAVAIL: ({ at, name }) => [
    `this machine has no free port left for a connection to ${at}`,
    `is ${name("pool.keepAlive")} on? lower ${name("pool.maxSockets")}`,
  ],
  EHOSTUNREACH: noRoute,
  ENETUNREACH: noRoute,
  ETIMEDOUT: (facts) => [`${facts.at} does not answer`, redial(facts)],
  ENOTFOUND: ({ host }) => [`cannot find host ${host}`, "is the name right?"],
  EAI_AGAIN: ({ host }) => [
    `no name server answers the query for ${host}`,
    "is the network up? is the name server of this machine right?",
  ],
  EAI_FAIL: ({ host }) => [`the name server refuses to look up ${host}`, "is the name right?"],
  DEPTH_ZERO_SELF_SIGNED_CERT: selfSigned,
  SELF_SIGNED_CERT_IN_CHAIN: unknownAuthority,
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: unknownAuthority,
  UNABLE_TO_GET_ISSUER_CERT: unknownAuthority,
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: unknownAuthority,
  CERT_HAS_EXPIRED: ({ at, name }) => [
    `the certificate of ${at} has expired`,
    `renew it, or accept any by ${name("tls: { rejectUnauthorized: false }")}`,
  ],
  CERT_NOT_YET_VALID: ({ at }) => [
    `the certificate of ${at} is not valid yet`,
    "is the clock of this machine right?",
  ],
  ERR_TLS_CERT_ALTNAME_INVALID: ({ at, thrown, name }) => [
    `the certificate of ${at} is for another name${toClause(/altnames: (.*)/.exec(thrown.reason ?? "")?.[1])}`,
    `use a name of the certificate in the target, or accept any by ${name("tls: { rejectUnauthorized: false }")}`,
  ],
  ERR_SSL_WRONG_VERSION_NUMBER: ({ at }) => [
    `${at} does not speak TLS`,
    "begin the target with http:// instead of https://",
  ],
};

/** Returns the name of the option whose time limit has passed, as the message of the error shows it. */
function limitNamedBy(message = ""): string {
  if (message.startsWith("an attempt")) return "attemptTimeout";
  return message.startsWith("no first byte") ? "firstByteTimeout" : "timeout";
}

/** The hint for a request body of which no further chunk arrives. */
const BODY_STOPPED = "does the client still send it, or has a body parser read it";

/** The texts for the error types of RFC 9209. */
const BY_ERROR_TYPE: Readonly<Record<ProxyErrorCode, Text>> = {
  dns_timeout: ({ host }) => [
    `no name server answered in time for ${host}`,
    "is the network up? is the name server of this machine right?",
  ],
  dns_error: ({ host }) => [`cannot find host ${host}`, "is the name right?"],
  destination_unavailable: ({ message = "the upstream cannot be used now", place }) => {
    const states = place?.states?.();
    if (states === undefined) return [message];
    const out = states.filter(
      ({ state, reason }) => state !== "up" && state !== "starting" && reason !== undefined,
    );
    const named = states.slice(0, MAX_NAMED).map((upstream) => {
      const { name, state, reason } = upstream;
      return `${name} is ${state}${out.includes(upstream) ? ` (${reason})` : ""}`;
    });
    const more = states.length - named.length;
    if (more > 0) named.push(`and ${more} more`);
    if (named.length === 0) return [`${message}: there is none`, "does its host name resolve?"];
    const failures = out.length > 0 ? "the last failure of each" : "the failures before this one";
    return [`${message}: ${named.join(", ")}`, `see ${failures}, and their logs`];
  },
  destination_ip_prohibited: ({ at, thrown }) => {
    const [flag = "--allow-net"] = /--allow-[\w-]+/.exec(thrown.message ?? "") ?? [];
    const fix = `is ${flag} of the runtime missing? does a firewall forbid it?`;
    return [`this process may not connect to ${at}`, fix];
  },
  destination_ip_unroutable: noRoute,
  connection_refused: refused,
  connection_terminated: (facts) => {
    const { at, message, place, thrown } = facts;
    // The upstream is an app in this process, and `thrown` is the exception of the app.
    if (place?.app !== undefined) {
      return [`${message ?? "the target's fetch failed"}${placeInCode(thrown)}`];
    }
    const fix = `see its log${orTls(facts)}`;
    if (message?.startsWith("the upstream")) return [message, fix];
    // Messages that are not from this library, such as those of workerd, do not name the upstream.
    if (message !== undefined) return [`${at}: ${message}`, `is it running? ${fix}`];
    // A runtime's `fetch` throws a TypeError for every failure of the network. Some of these errors have the reason as their
    // `cause`.
    if (thrown instanceof TypeError) {
      const { message: reason } = Object(thrown.cause) as Thrown;
      return [`the request to ${at} failed${toClause(reason)}`, `is it running? ${fix}`];
    }
    return [`${at} closed the connection without an answer`, fix];
  },
  connection_timeout: (facts) => [
    facts.message === undefined
      ? `no connection to ${facts.at} in time`
      : `${facts.message} from ${facts.at}`,
    redial(facts),
  ],
  connection_read_timeout: ({ at, message = "", name }) => [
    `${at} fell silent${/^(?:the tunnel did not end|no further chunk)/.test(message) ? toClause(message) : ""}`,
    message.includes("tunnel")
      ? `does it still read? see ${name("tunnelCloseTimeout")}`
      : `see its log; the limits are ${name("idleTimeout")} and ${name("pool.timeout")}`,
  ],
  connection_limit_reached: (facts) => {
    const { at, message = "too many requests wait", name } = facts;
    const limit = message.includes("maxRequests") ? "maxRequests, " : "";
    return message.includes("every upstream")
      ? [
          message,
          `raise ${limit}maxQueue or queueTimeout of balance, or find out why they are slow`,
        ]
      : [
          `${at}: ${message}`,
          `raise ${name("pool.maxSockets")}, ${name("pool.maxQueued")} or ${name("pool.queueTimeout")}, or find out why it is slow; ${isLoop(facts)}`,
        ];
  },
  tls_protocol_error: ({ at, thrown }) => [
    `no TLS with ${at}${toClause(thrown.reason ?? thrown.message)}`,
    IS_PLAIN,
  ],
  tls_certificate_error: (facts) => [
    `the certificate of ${facts.at} cannot be trusted${toClause(facts.thrown.reason ?? facts.thrown.message)}`,
    trust(facts),
  ],
  tls_alert_received: ({ at, thrown }) => [
    `${at} refused TLS${toClause(thrown.reason ?? thrown.message)}`,
    "does it need a client certificate, or another server name?",
  ],
  http_request_error: ({ message = "the request cannot be forwarded", status, name }) => [
    message,
    message.startsWith("the request body has")
      ? "does a body parser, or a limit of the framework, cut it?"
      : status === 413
        ? `raise ${name("bodyLimit")} to let it pass`
        : undefined,
  ],
  http_response_incomplete: ({ at, message }) => [
    `${at} closed the connection in the middle of the response${message?.includes("broke off") ? "" : toClause(message)}`,
    "see its log",
  ],
  http_response_header_section_size: ({ at, message }) => [
    message === undefined ? `${at} sent too long a header section` : `${at}: ${message}`,
    "shorten its header fields, such as cookies",
  ],
  http_response_transfer_coding: ({ at, message }) => [
    `${at} sent a body whose coding cannot be forwarded${toClause(message)}`,
    "make it send a chunked body, or a Content-Length",
  ],
  http_response_timeout: ({ at, message, name }) => [
    `${at} does not answer${toClause(message)}`,
    `${message?.includes("request body") ? BODY_STOPPED : "see its log"}; the limit is ${name(limitNamedBy(message))}`,
  ],
  http_protocol_error: (facts) => {
    const { at, message = "", name } = facts;
    if (message.includes("does not speak HTTP/2")) {
      return [`${at} does not speak HTTP/2`, `leave out ${name("http2")}`];
    }
    if (message.includes("speaks HTTP/2 only")) {
      return [`${at} speaks HTTP/2 only`, `set ${name("http2")}`];
    }
    if (message.includes("speaks TLS")) {
      return [`${at} speaks TLS`, "begin the target with https:// instead of http://"];
    }
    const what = `${at} broke the rules of HTTP${toClause(facts.message)}`;
    return [what, `is it an HTTP server?${orTls(facts).replace(";", "")}`];
  },
  proxy_internal_error: explainException,
  proxy_loop_detected: ({ message }) => [
    message ?? "the request came back to this proxy",
    "is the target this proxy itself?",
  ],
};

/**
 * The texts for system errors that a hook, or an app in this process, has thrown. `BY_CAUSE` does not apply to them, because
 * they may concern files and connections of the app instead of the connection to the upstream.
 */
const BY_APPS_CAUSE: Readonly<Record<string, Text>> = {
  EMFILE: tooManyFiles,
  ENFILE: tooManyFiles,
};

/**
 * Explains an error: what happened, at which upstream, and what to do.
 * @param error a `ProxyError`, or the exception of a hook
 * @param nameOption returns the names of options for the texts; by default, they are named as in `pool.maxSockets`
 */
export function diagnoseError(
  error: unknown,
  nameOption: NameOption = (option) => option,
): Diagnosis {
  const isOurs = error instanceof ProxyError;
  const code = isOurs ? error.code : "proxy_internal_error";
  const place = isOurs ? placeOf(error) : undefined;
  const isApps = code === "proxy_internal_error" || place?.app !== undefined;
  const cause = isOurs ? error.cause : error;
  const thrown = isApps ? (Object(cause) as Thrown) : findCoded(cause);
  // An error that was created without a message has its code as the message.
  const message =
    isOurs && error.message !== code ? error.message.replace("the upstream's", "its") : undefined;
  const facts: FailureFacts = {
    ...locate(place, thrown),
    place,
    message,
    thrown,
    status: isOurs ? error.status : 500,
    name: nameOption,
  };
  // The text of the error names `minRate` if the client was slow. A server's own 408, for a request that arrives too slowly,
  // does not.
  if (message !== undefined && facts.status === 408 && message.includes("(minRate")) {
    const fix = message.includes("of balance")
      ? "the limit is minRate of balance; maxRequests of balance lets more requests run"
      : `the limit is ${nameOption("pool.minRate")}; ${nameOption("pool.maxSockets")} lets more requests run`;
    return { code: "client_too_slow", cause: toSafe(message), fix };
  }
  const text = (isApps ? BY_APPS_CAUSE : BY_CAUSE)[String(thrown.code)] ?? BY_ERROR_TYPE[code];
  const [what, fix] = text(facts);
  // The message of an error does not name the upstream, because the app may show it to the client.
  const named = what.replace(/^the upstream\b/, facts.at);
  return { code, cause: toSafe(named), fix };
}

/** Renders a diagnosis as one line. */
export function renderDiagnosis({ code, cause, fix }: Diagnosis): string {
  return `${code}: ${cause}${fix === undefined ? "" : ` (${fix})`}`;
}

/** Makes a text safe for a log. The messages of exceptions may quote a URL with credentials. */
function toSafe(text: string): string {
  return escapeControls(text.replaceAll(/\/\/[^\s/]*@/g, "//…@"));
}

/**
 * Returns the first exception with a code in a chain of causes; if none has a code, the first exception. The `fetch` of a
 * runtime wraps the error of the socket in its own error.
 */
function findCoded(cause: unknown): Thrown {
  let each = Object(cause) as Thrown;
  for (let i = 0; i < MAX_CAUSES; i++) {
    if (typeof each.code === "string") return each;
    each = Object(each.cause) as Thrown;
  }
  return Object(cause) as Thrown;
}

/** Returns the hint for a plain connection whose upstream may expect TLS. */
function orTls({ place }: FailureFacts): string {
  const isPlain = place?.origin?.startsWith("https:") !== true && place?.socketPath === undefined;
  return isPlain ? "; does it expect https://?" : "";
}

/** Names an upstream: host and port, or the path of its socket; and the address if the address is fixed or has failed. */
function locate(place: ErrorPlace | undefined, thrown: Thrown): { at: string; host: string } {
  const { hostname } = thrown;
  const errors: readonly unknown[] = thrown instanceof AggregateError ? thrown.errors : [thrown];
  // The members may be of any type, because a hook may have thrown the error.
  const failed = errors
    .map((each) => Object(each) as Thrown)
    .filter(({ address }) => address !== undefined);
  const dialed = failed.map(({ address = "", port }) => joinAddress(address, port));
  const { origin, socketPath, address, app } = place ?? {};
  const named = socketPath ?? origin?.replace(/^https?:\/\//, "");
  if (app !== undefined) return { at: `the app ${named}`, host: `${named}` };
  const at = named ?? dialed[0] ?? hostname ?? "the upstream";
  const host = hostname ?? at.replace(/:\d+$/, "");
  if (socketPath !== undefined || dialed.includes(at)) return { at, host };
  // A host name may have several addresses, such as 127.0.0.1 and `::1` for `localhost`, so name those that failed.
  const addresses = failed.length > 0 ? failed.map((each) => each.address) : (address ?? []);
  const others = [addresses].flat().filter((each) => each !== host && `[${each}]` !== host);
  return { at: others.length > 0 ? `${at} at ${others.join(" and ")}` : at, host };
}

function joinAddress(address: string, port: number | undefined): string {
  if (port === undefined) return address;
  return `${address.includes(":") ? `[${address}]` : address}:${port}`;
}

function toClause(detail: string | undefined): string {
  return detail === undefined ? "" : `: ${detail.trim()}`;
}

/** Renders an exception, which is usually thrown by a hook, with the place in the code where it was thrown. */
function explainException({ message, thrown }: FailureFacts): readonly [string] {
  if (!(thrown instanceof Error)) return [message ?? "something other than an Error was thrown"];
  return [`${thrown.name}: ${thrown.message}${placeInCode(thrown)}`];
}

/** Renders the place in the code where an exception was thrown: the first line of its stack. */
function placeInCode({ stack = "" }: Thrown): string {
  const [, place] = /^ {1,16}at (.*)$/m.exec(stack) ?? [];
  return place === undefined ? "" : `, thrown at ${place.replace(/file:\/\/|\?read=\d+/g, "")}`;
}
