import { badRequest, ProxyError } from "../error.ts";
import { cannotSetHost, quoteInput } from "../misuse.ts";
import { object, SOCKET_PATH, text, toggle } from "../schema/kinds.ts";
import { findWrong, isRecord, type Schema } from "../schema/schema.ts";
import { isIPAddress } from "./address.ts";
import { type FetchTarget, isApp, urlOf } from "./app.ts";
import { copyOptions, isPlain, isUnchanged } from "./sameoptions.ts";

/**
 * TLS options for connections to an upstream, where the transport has the capability `tls`. On Node, Bun and Deno, the other
 * options of `tls.connect` are passed on as well, and any other name is refused.
 */
export interface TlsOptions {
  /** The certificate authorities to trust instead of the runtime's, in PEM. */
  ca?: string | string[];
  /** The client certificate, in PEM. */
  cert?: string;
  /** The private key of the client certificate, in PEM. */
  key?: string;
  /** The server name to request and to check the certificate against, instead of the URL's host. */
  servername?: string;
  /** Whether to refuse an invalid certificate. `false` lets anyone on the network path read and change everything. */
  rejectUnauthorized?: boolean;
}

/** A target that needs more than a URL. */
export interface TargetOptions {
  /**
   * The URL of the target: the scheme, the authority, and a base path and query to prepend to those of each request.
   */
  url: string | URL;
  /** The path of a Unix domain socket, or on Windows of a named pipe, to connect to instead of the URL's authority. */
  socketPath?: string;
  /**
   * The IP address to connect to instead of looking up the URL's host, which stays in `Host` and as the server name in TLS.
   * Only Fetchway's own HTTP clients on Node, Bun and Deno connect to an address of your choice.
   * @example "10.0.0.7"
   */
  address?: string;
  /** The TLS options for connections to this target. */
  tls?: TlsOptions;
  /**
   * Whether to speak HTTP/2 with this target. By default, the option `http2` of the pool decides. With `true`, a target with
   * `https:` chooses between HTTP/2 and HTTP/1.1 (ALPN), and a target with `http:` must speak HTTP/2.
   */
  http2?: boolean;
}

/**
 * Where to send requests: an `http:` or `https:` URL, `"unix:/path"` (on Windows `unix:\\.\pipe\name`), an object with a
 * URL and more options, or an app in this process, which is any object with a `fetch` method.
 *
 * The server must understand HTTP/1.1, in which a request body of unknown length is sent in chunks, or, with the option
 * `http2`, HTTP/2.
 * @see https://www.rfc-editor.org/rfc/rfc9112#section-6.1
 */
export type TargetAddress = string | URL | TargetOptions | FetchTarget;

/** A parsed and checked target. */
export interface Upstream {
  /** The scheme and the authority, such as `https://api.example:8443`. */
  readonly origin: string;
  /** The authority for `Host`. */
  readonly host: string;
  /** The host name without port and brackets. */
  readonly hostname: string;
  /** Whether the scheme is `https:`. */
  readonly secure: boolean;
  /** The base path without its trailing slash; `""` for none. */
  readonly basePath: string;
  /** The query without its `?`; `""` for none. */
  readonly query: string;
  /** The path of the Unix domain socket to connect to instead of the host; undefined for none. */
  readonly socketPath: string | undefined;
  /** The IP address to connect to instead of looking up `hostname`; undefined for a lookup. */
  readonly address: string | undefined;
  /** The TLS options for connections to this upstream; undefined for the defaults. */
  readonly tls: TlsOptions | undefined;
  /** Whether to speak HTTP/2 with this upstream; undefined to use the transport's own option. */
  readonly http2: boolean | undefined;
  /** The app in this process that responds instead of a server; undefined for a server. */
  readonly app: FetchTarget | undefined;
}

const targetSchema: Schema<TargetOptions> = {
  // `parseUrl` checks the URL, because a target may also be a URL alone.
  url: { kind: object(() => true, "") },
  socketPath: { kind: text(/[^]/, 'use a path such as "/run/app.sock"') },
  address: { kind: object(isIPAddress, 'use an IP address such as "10.0.0.7"') },
  tls: { kind: object(isRecord, "use an object such as { ca, servername }") },
  http2: { kind: toggle },
};

/** The result of parsing a target, with a copy of the target at that time. */
type Parsed = readonly [copy: unknown, Upstream];

/** Parsed targets; see `parseOnce` for the keys. Most requests have the same few targets. */
const parsed = new Map<string, Parsed>();
/** The maximum number of entries in `parsed`. */
const MAX_PARSED = 1000;
const parsedApps = new WeakMap<object, Upstream>();

/**
 * Parses a target. Equal targets get the same upstream, by which a transport finds their connections.
 * @throws TypeError that names the fault of the target and the correct form
 */
export function parseTarget(given: TargetAddress): Upstream {
  const target = given instanceof URL ? given.href : given;
  if (typeof target === "string") return parseOnce(target, target);
  if (isPlain(target) && !isApp(target)) {
    return parseOnce(
      `${String(target.url)} ${String(target.socketPath ?? target.address)}`,
      target,
    );
  }
  let upstream = parsedApps.get(target);
  if (upstream === undefined) {
    upstream = parseUncached(target);
    parsedApps.set(target, upstream);
  }
  return upstream;
}

/**
 * Parses a target, or returns the result of an earlier call with an equal target.
 * @param key a text made from the target; targets with the same key replace each other in `parsed`
 */
function parseOnce(key: string, target: string | TargetOptions): Upstream {
  const known = parsed.get(key);
  if (known !== undefined && (target === known[0] || isUnchanged(target, known[0]))) {
    return known[1];
  }
  const options = typeof target === "string" ? target : (copyOptions(target) as TargetOptions);
  const fresh = parseUncached(options);
  // Evict only the entry that was added first. If it is still in use, it is parsed again, once per 1000 new targets.
  if (parsed.size >= MAX_PARSED) parsed.delete(parsed.keys().next().value as string);
  parsed.set(key, [options, fresh]);
  return fresh;
}

function parseUncached(target: TargetAddress): Upstream {
  if (isApp(target)) return { ...parseUrl(urlOf(target), {}), app: target };
  if (typeof target === "string" && target.startsWith("unix:")) {
    const socketPath = target.slice("unix:".length);
    if (!SOCKET_PATH.test(socketPath)) throw badTarget(target, 'use "unix:/path/to/socket"');
    return parseUncached({ url: "http://localhost", socketPath });
  }
  if (typeof target !== "object" || target === null || target instanceof URL) {
    return parseUrl(target, {});
  }
  if (!("url" in target)) {
    const fix = Array.isArray(target)
      ? "write `balance([…])`, from fetchway/upstreams"
      : "target" in target
        ? "pass the URL; options are the third argument"
        : "write the URL, { url, socketPath?, tls?, http2? }, or an object with a `fetch` method";
    throw badTarget(target, fix);
  }
  if ("status" in target) {
    throw badTarget(
      target,
      "a Response is not a target; pass the app, not the result of its `fetch`",
    );
  }
  const upstream = parseUrl(target.url, target);
  const [name, wrong] = findWrong(target, targetSchema) ?? [];
  if (name !== undefined) throw badTarget(target.url, `${name}: ${wrong}`);
  return upstream;
}

/**
 * Matches the beginning of a URL. It excludes `http://unix:/path`, which nginx reads as a socket, and URL parsers as a host.
 */
const HTTP = /^\s*https?:\/\/(?!unix:\/)/i;
/** Matches a URL without its scheme, such as `localhost:4000`, or only a port. */
const WITHOUT_SCHEME = /^(?!https?:|.*(?:\/\/|@))[^/]*?[.:\d]/;

/** Says what to write instead of a target that is not a URL with the scheme `http:` or `https:`. */
function suggestUrl(given: unknown): string {
  const written = String(given).replace(/^ws:\/\//i, "");
  if (given === undefined) return "is its variable set? did a function return it?";
  const meant = `http://${written.replace(/^:?(?=\d+$)/, "localhost:")}`;
  if (WITHOUT_SCHEME.test(written) && URL.canParse(meant)) return `write ${quoteInput(meant)}`;
  const port = /\d{5}$/.test(written) ? "; ports end at 65535" : "";
  return `use a URL such as "http://localhost:4000", also for WebSockets, or "unix:/path"${port}`;
}

function parseUrl(from: string | URL, more: Partial<TargetOptions>): Upstream {
  const url = URL.parse(from);
  if (url === null || !HTTP.test(String(from))) throw badTarget(from, suggestUrl(from));
  if (url.username !== "" || url.password !== "") {
    throw new TypeError(
      "fetchway: a target must not hold credentials; set `headers: { authorization }` instead",
    );
  }
  const { address, socketPath } = more;
  if (address !== undefined && socketPath !== undefined) {
    throw badTarget(from, "set `address` or `socketPath`, not both");
  }
  if (url.hash !== "") throw badTarget(from, "leave out the fragment, it is never sent");
  return {
    origin: url.origin,
    host: url.host,
    hostname: url.hostname.replace(/^\[|\]$/g, ""),
    secure: url.protocol === "https:",
    basePath: url.pathname.endsWith("/") ? url.pathname.slice(0, -1) : url.pathname,
    query: url.search.slice(1),
    socketPath,
    address,
    tls: more.tls,
    http2: more.http2,
    app: undefined,
  };
}

export function badTarget(target: unknown, fix: string): TypeError {
  return new TypeError(`fetchway: bad target ${describeTarget(target)}: ${fix}`);
}

/** Returns a text that describes a target in a message. */
function describeTarget(target: unknown): string {
  const isObject = typeof target === "object" && target !== null && !(target instanceof URL);
  return isObject ? "object" : quoteInput(target);
}

/** The part of a transport that decides which targets it can reach. */
interface Reaching {
  readonly name: string;
  readonly capabilities: {
    readonly unixSocket: boolean;
    readonly tls: boolean;
    readonly address?: boolean;
    readonly http2?: boolean;
  };
  checkTarget?(upstream: Upstream): void;
}

/** Parses a target, and makes sure that the transport can reach it. */
export type Reach = (target: TargetAddress) => Upstream;

/** Makes the `Reach` of a transport; the parameters are those of `assertReachable`. */
export function createReach(transport: Reaching, hostOption: string | undefined): Reach {
  return (target) => {
    const upstream = parseTarget(target);
    assertReachable(upstream, transport, hostOption);
    return upstream;
  };
}

/**
 * Makes sure that a transport can send requests to an upstream.
 * @param hostOption the option that asks for a `Host` other than the target's, if one is set
 * @throws TypeError that says what the transport cannot do
 */
export function assertReachable(
  upstream: Upstream,
  transport: Reaching,
  hostOption?: string,
): void {
  if (upstream.app !== undefined && hostOption !== undefined) {
    throw cannotSetHost(hostOption, "in-process");
  }
  const obstacle = findObstacle(upstream, transport.capabilities);
  if (obstacle !== undefined) {
    throw new TypeError(`fetchway: the ${transport.name} client ${obstacle}`);
  }
  if ((upstream.tls ?? upstream.socketPath ?? upstream.http2) !== undefined) {
    transport.checkTarget?.(upstream);
  }
}

function findObstacle(upstream: Upstream, can: Reaching["capabilities"]): string | undefined {
  if (upstream.socketPath !== undefined && !can.unixSocket) {
    return "cannot reach unix sockets; use a URL";
  }
  if (upstream.tls !== undefined && !can.tls) return "has no TLS options; leave out `tls`";
  if (upstream.address !== undefined && !can.address) {
    return "looks up names itself; leave out `address`";
  }
  if (upstream.http2 === true && !can.http2) {
    return "chooses the HTTP version itself; leave out `http2`";
  }
  return undefined;
}

// ── the request's path, to which the target's base path is prepended ──

/**
 * Returns the index at which the authority of an absolute URL ends.
 *
 * The index is 0 if `url` is only a path: on Bun, the URL of a request is a path if `Host` is not an authority.
 */
export function authorityEnd(url: string): number {
  if (url.startsWith("/")) return 0;
  for (let end = url.indexOf("//") + 2; end < url.length; end++) {
    const code = url.charCodeAt(end);
    if (code === 0x2f /* / */ || code === 0x3f /* ? */ || code === 0x23 /* # */) return end;
  }
  return url.length;
}

/** Returns the authority of an absolute URL; `""` for a path. It does not parse the URL, because a parser changes bytes. */
export function authorityOf(url: string): string {
  return url.slice(url.indexOf("//") + 2, authorityEnd(url));
}

/** Returns the path and query of an absolute URL. It does not parse the URL, because a parser changes bytes. */
export function pathOf(url: string): string {
  const start = authorityEnd(url);
  const hash = url.indexOf("#", start);
  const path = hash < 0 ? url.slice(start) : url.slice(start, hash);
  return withSlash(path);
}

/**
 * Matches a character that a request line cannot contain: a space, a control character, a character above U+00FF, or
 * the `#` of a fragment (RFC 9112 §3).
 */
// oxlint-disable-next-line no-control-regex
const NOT_IN_TARGET = /[\u0000-\u0020#\u007f]|[^\u0000-\u00ff]/;

/**
 * Makes sure that a path can be sent as a request target in origin-form.
 * @throws ProxyError 400
 */
export function assertSendable(path: string): void {
  if (path.charCodeAt(0) !== 0x2f /* / */ || NOT_IN_TARGET.test(path)) {
    throw badRequest("path");
  }
}

/** Adds the slash at the beginning of a path, which a rule such as `{ "^/api": "" }` removes. */
export function withSlash(path: string): string {
  return path.startsWith("/") ? path : `/${path}`;
}

/**
 * Whether a request target is in asterisk-form, with which OPTIONS asks about a server as a whole (RFC 9112 §3.2.4).
 */
export function isAsterisk(path: string, method: string | undefined): boolean {
  return path === "*" && method === "OPTIONS";
}

/** Returns the request target of `OPTIONS *`. With a base path, the request asks about that part of the server only. */
function joinAsterisk({ basePath, query }: Upstream): string {
  if (basePath === "" && query === "") return "*";
  return query === "" ? basePath : `${basePath || "/"}?${query}`;
}

/**
 * Prepends the base path of the upstream to the request's path, and the query of the upstream to the request's query.
 *
 * The authority always comes from the target. The request's path is never parsed as a URL, so that `//evil` and
 * `/\evil` stay paths. The path and the query keep their bytes.
 *
 * @param path the path and query of the request in origin-form, or `*`
 * @throws ProxyError 400 for a path that cannot be sent, or that could leave the base path
 */
export function joinTarget(upstream: Upstream, path: string, method?: string): string {
  if (isAsterisk(path, method)) return joinAsterisk(upstream);
  assertSendable(path);
  if (upstream.basePath === "" && upstream.query === "") return path;
  const mark = path.indexOf("?");
  const pathname = mark < 0 ? path : path.slice(0, mark);
  const query = mark < 0 ? "" : path.slice(mark + 1);
  if (upstream.basePath !== "") guardEscape(pathname);
  if (upstream.query === "") return upstream.basePath + path;
  return `${upstream.basePath}${pathname}?${upstream.query}${query === "" ? "" : `&${query}`}`;
}

/**
 * Matches a segment that upstreams read as `..`: alone, with a path parameter (`..;x`), or followed by a character at which
 * some upstreams end the path: `?`, `#` or NUL. Tabs and line breaks may be among the dots, because URL parsers remove them.
 */
// oxlint-disable-next-line no-control-regex
const PARENT = /(?:^|[/\\])[\t\n\r]*\.[\t\n\r]*\.[\t\n\r]*(?:[/\\;?#\u0000]|$)/;
/** The maximum number of layers of percent-encoding; no legitimate client uses more. */
const MAX_LAYERS = 8;

/**
 * Returns a path, followed by the results of decoding its percent-encoding once, twice and so on, until nothing is left to
 * decode, because an upstream may read any of these paths. Every octet is decoded, because `%25%32%65` becomes `%2e`; the
 * results are octets, not UTF-8.
 * @returns undefined for more than eight layers
 */
export function decodeLayers(path: string): string[] | undefined {
  const layers = [path];
  for (let reading = path; layers.length <= MAX_LAYERS + 1; layers.push(reading)) {
    const decoded = reading.includes("%")
      ? reading.replace(/%([\da-f]{2})/gi, (_, code: string) =>
          String.fromCharCode(Number.parseInt(code, 16)),
        )
      : reading;
    if (decoded === reading) return layers;
    reading = decoded;
  }
  return undefined;
}

/**
 * Refuses a path that an upstream could read as one outside the base path.
 *
 * The upstream may decode the path any number of times, so the function checks every layer of percent-encoding: `..`,
 * `%2e%2e`, `%252e%252e`, `..%5c` (CVE-2026-44373).
 *
 * @throws ProxyError 400
 */
export function guardEscape(pathname: string): void {
  if (decodeLayers(pathname)?.some((reading) => PARENT.test(reading)) === false) return;
  throw new ProxyError("http_request_error", {
    message: "the request path could leave the target's base path",
  });
}
