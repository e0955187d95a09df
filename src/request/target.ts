import { type FetchTarget, isApp, urlOf } from "./app.ts";
import { ProxyError } from "../error.ts";

/** TLS towards the upstream, where the runtime's client can (`capabilities.tls`). */
export interface TlsOptions {
  /** Certificate authorities to trust instead of the system's, PEM. */
  ca?: string | string[];
  /** Client certificate, PEM. */
  cert?: string;
  /** Private key of the client certificate, PEM. */
  key?: string;
  /** Name to ask for and to check the certificate against, instead of the URL's host. */
  servername?: string;
  /** `false` accepts any certificate: anyone on the path can then read and change everything. */
  rejectUnauthorized?: boolean;
}

/** An upstream that needs more than a URL. */
export interface TargetOptions {
  /** Where to: scheme, authority, and the base path and query that go in front of the request's. */
  url: string | URL;
  /** Path of a unix domain socket to connect to instead of the URL's authority. */
  socketPath?: string;
  /** TLS options of this upstream. */
  tls?: TlsOptions;
}

/**
 * Where to send requests: an `http:` or `https:` URL, `"unix:/path"`, an object with more to say, or an app in this
 * process, which is any object with a `fetch` method.
 */
export type TargetAddress = string | URL | TargetOptions | FetchTarget;

/** Where to send requests, or a function that decides it for each request. */
export type Target = TargetAddress | ((request: Request) => TargetAddress | Promise<TargetAddress>);

/** Whether a target says where to, and is no function that decides it. */
export function isAddress(target: Target): target is TargetAddress {
  return typeof target !== "function" || isApp(target);
}

/** A target, checked and taken apart once. */
export interface Upstream {
  /** Scheme and authority, as in `https://api.example:8443`. */
  readonly origin: string;
  /** Authority for `Host`. */
  readonly host: string;
  /** Host name without port or brackets. */
  readonly hostname: string;
  /** Whether the scheme is `https:`. */
  readonly secure: boolean;
  /** Base path without its trailing slash; `""` for none. */
  readonly basePath: string;
  /** Query without its `?`; `""` for none. */
  readonly query: string;
  /** Path of the unix domain socket to connect to instead. */
  readonly socketPath: string | undefined;
  /** TLS options of this upstream. */
  readonly tls: TlsOptions | undefined;
  /** The app in this process that answers instead of the network. */
  readonly app: FetchTarget | undefined;
}

/** Targets given as strings repeat with every request: parsed once, within bounds. */
const parsed = new Map<string, Upstream>();
const PARSED_LIMIT = 1000;
/** Apps are objects that stay the same as a rule. */
const parsedApps = new WeakMap<FetchTarget, Upstream>();

/**
 * Takes a target apart.
 * @throws TypeError that says what is wrong with the target and how to write it
 */
export function parseTarget(target: TargetAddress): Upstream {
  if (typeof target !== "string") return isApp(target) ? parseApp(target) : parseAddress(target);
  let upstream = parsed.get(target);
  if (upstream === undefined) {
    upstream = parseAddress(target);
    // The oldest goes; to clear all would be to parse one more than the limit over and over.
    if (parsed.size >= PARSED_LIMIT) parsed.delete(parsed.keys().next().value as string);
    parsed.set(target, upstream);
  }
  return upstream;
}

function parseApp(app: FetchTarget): Upstream {
  let upstream = parsedApps.get(app);
  if (upstream === undefined) {
    upstream = { ...parseUrl(urlOf(app), {}), app };
    parsedApps.set(app, upstream);
  }
  return upstream;
}

function parseAddress(target: string | URL | TargetOptions): Upstream {
  if (typeof target === "string" && target.startsWith("unix:")) {
    const socketPath = target.slice("unix:".length);
    if (!socketPath.startsWith("/")) throw badTarget(target, 'use "unix:/path/to/socket"');
    return parseAddress({ url: "http://localhost", socketPath });
  }
  if (target instanceof URL || typeof target === "string") return parseUrl(target, {});
  if (typeof target === "object" && target !== null && "url" in target) {
    if ("status" in target) {
      throw badTarget(target, "a Response is none; for an app, pass the app, not its `fetch`");
    }
    return parseUrl(target.url, target);
  }
  throw badTarget(
    target,
    "use a URL, or { url, socketPath?, tls? }, or an object with a `fetch` method",
  );
}

function parseUrl(from: string | URL, more: Partial<TargetOptions>): Upstream {
  let url: URL;
  try {
    url = new URL(from);
  } catch {
    throw badTarget(from, 'use an absolute URL such as "http://127.0.0.1:4000"');
  }
  if (url.username !== "" || url.password !== "") {
    throw new TypeError(
      "fetchway: a target must not hold credentials; set `headers: { authorization }` instead",
    );
  }
  if (url.protocol !== "http:" && url.protocol !== "https:") {
    throw badTarget(from, "its scheme must be http: or https:");
  }
  if (url.hash !== "") throw badTarget(from, "leave out the fragment, it is never sent");
  return {
    origin: url.origin,
    host: url.host,
    hostname: url.hostname.replace(/^\[|\]$/g, ""),
    secure: url.protocol === "https:",
    basePath: url.pathname.endsWith("/") ? url.pathname.slice(0, -1) : url.pathname,
    query: url.search.slice(1),
    socketPath: more.socketPath,
    tls: more.tls,
    app: undefined,
  };
}

function badTarget(target: unknown, fix: string): TypeError {
  return new TypeError(`fetchway: bad target ${show(target)}: ${fix}`);
}

function show(target: unknown): string {
  if (typeof target !== "string" && !(target instanceof URL)) return typeof target;
  // What stands before an @ may be secret.
  return String(target).includes("@") ? "(not shown: it has an @)" : JSON.stringify(String(target));
}

/**
 * Makes sure that a runtime's client can do what an upstream needs.
 * @param hostOption the option that asks for another `Host` than the target's, if any
 * @throws TypeError that says what it cannot
 */
export function assertReachable(
  upstream: Upstream,
  client: { name: string; capabilities: { unixSocket: boolean; tls: boolean } },
  hostOption?: string,
): void {
  if (upstream.app !== undefined && hostOption !== undefined) {
    throw new TypeError(
      `fetchway: bad option \`${hostOption}\`: a target in process has the authority of its URL; ` +
        "leave the option out, and set the target's `url`, as in { fetch, url }",
    );
  }
  if (upstream.socketPath !== undefined && !client.capabilities.unixSocket) {
    throw new TypeError(`fetchway: the ${client.name} client cannot reach unix sockets; use a URL`);
  }
  if (upstream.tls !== undefined && !client.capabilities.tls) {
    throw new TypeError(
      `fetchway: the ${client.name} client has no TLS options; leave out \`tls\``,
    );
  }
}

/** A request line can hold no space, control character or fragment (RFC 9112 §3). */
// oxlint-disable-next-line no-control-regex
const UNSENDABLE = /[\u0000-\u0020#\u007f]|[^\u0000-\u00ff]/;

/**
 * Makes sure that a path can be a request's target in origin-form.
 * @throws ProxyError 400
 */
export function assertSendable(path: string): void {
  if (path.charCodeAt(0) !== 0x2f /* / */ || UNSENDABLE.test(path)) {
    throw new ProxyError("http_request_error", { message: "the request path cannot be forwarded" });
  }
}

/**
 * Puts base path and query of the target in front of the request's.
 *
 * The authority always comes from the target: the request's path is never
 * parsed as a URL, so `//evil`, `/\evil` and their like stay paths. Path and
 * query keep their bytes.
 *
 * @param path origin-form path and query of the request
 * @throws ProxyError 400 where the path cannot be sent, or could leave the base path
 */
export function joinTarget(upstream: Upstream, path: string): string {
  assertSendable(path);
  if (upstream.basePath === "" && upstream.query === "") return path;
  const mark = path.indexOf("?");
  const pathname = mark < 0 ? path : path.slice(0, mark);
  const query = mark < 0 ? "" : path.slice(mark + 1);
  if (upstream.basePath !== "") guardEscape(pathname);
  if (upstream.query === "") return upstream.basePath + path;
  return `${upstream.basePath}${pathname}?${upstream.query}${query === "" ? "" : `&${query}`}`;
}

/** What upstreams read as `..`: by itself, with a path parameter (`..;x`), or before what they cut off. */
const PARENT = /(?:^|[/\\])\.\.(?:[/\\;?#]|$)/;
const ENCODED = /%(?:2[35ef]|3[bf]|5c)/gi;
/** More layers of percent-encoding than any honest client uses. */
const LAYERS = 8;

/**
 * Refuses a path that some upstream could read as leaving the base path.
 *
 * Which decoding the upstream applies is unknown, so every layer is looked at:
 * `..`, `%2e%2e`, `%252e%252e`, `..%5c` (CVE-2026-44373).
 *
 * @throws ProxyError 400
 */
export function guardEscape(pathname: string): void {
  let reading = pathname;
  for (let layer = 0; layer < LAYERS; layer++) {
    if (PARENT.test(reading)) break;
    const decoded = reading.replace(ENCODED, decodeURIComponent);
    if (decoded === reading) return;
    reading = decoded;
  }
  throw new ProxyError("http_request_error", {
    message: "the request path could leave the target's base path",
  });
}
