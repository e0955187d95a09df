import { badRequest, methodNotAllowed, ProxyError } from "../error.ts";
import {
  getHeader,
  isName,
  type NameSet,
  removeHeader,
  trimOws,
  withoutNames,
  type HeaderList,
  withoutNominated,
} from "../fields/headers.ts";
import type { Context } from "../options/forwardingoptions.ts";
import type { ProxyOptions } from "../options/proxyoptions.ts";
import { joinTarget, type Upstream } from "../target/target.ts";
import type { UpstreamRequest } from "../transport/message.ts";
import { dropUntrusted } from "./chain.ts";
import { agreeOnHost, isAuthority, NAME_AND_PORT } from "./host.ts";
import type { Incoming } from "./incoming.ts";
import { countForwards, withoutSecrets } from "./maxforwards.ts";
import { startTrace } from "./tracecontext.ts";
import type { Trust } from "./trust.ts";
import { readUpgrade } from "./upgrade.ts";

/** The checked and compiled options that decide how upstream requests are made. */
export interface RequestRules {
  readonly options: ProxyOptions;
  /** The fields that are dropped from the request of an untrusted peer. */
  readonly dropped: NameSet;
  /** The fields that are dropped from the request of a trusted peer. */
  readonly droppedIfTrusted: NameSet;
  /** The fields that are forwarded although they are in `dropped` or `droppedIfTrusted`. */
  readonly kept: NameSet | undefined;
  /**
   * The fields to remove after this proxy has added its own, because an option drops or replaces them; undefined if
   * none.
   */
  readonly overridden: NameSet | undefined;
  /** The fields of the option `headers`, which are added after the forwarding fields and `Via`. */
  readonly added: HeaderList;
  /** Which fields describe the client to the upstream. */
  readonly forwarded: ForwardedStyle;
  /** The name of this proxy in `Forwarded`; undefined to write none. */
  readonly by: string | undefined;
  /** Returns whether an address is trusted; undefined if no peer is trusted. */
  readonly trusts: Trust | undefined;
  readonly clientAddress: ProxyOptions["clientAddress"];
  /** Whether the upstream gets the client's `Host`. */
  readonly keepHost: boolean;
  /** The protocols that are tunnelled, in lower case. */
  readonly upgrades: readonly string[];
  /** How a server of this runtime hands over upgrades, for an error message. */
  readonly upgradeHint: string | undefined;
  /** Whether redirects are followed. */
  readonly follows: boolean;
}

/**
 * Makes the request to the upstream from the incoming request.
 *
 * Fields are dropped first and added afterwards, so that a client can neither set, change nor remove the fields that this
 * proxy adds (CVE-2021-33197).
 *
 * @param path the path and query to request, relative to the upstream's base path
 * @throws ProxyError 400, 405 or 501 for a request that must not be forwarded, 502 for one that has passed this proxy before
 */
export function toUpstreamRequest(
  incoming: Incoming,
  upstream: Upstream,
  path: string,
  rules: RequestRules,
  context: Context,
): UpstreamRequest {
  const { options } = rules;
  const { method } = incoming;
  const isTrace = method === "TRACE";
  // Refuse CONNECT, because a gateway opens no tunnels (RFC 9110 §9.3.6), and TRACE unless `trace` is set, because the
  // response to TRACE shows the client the fields that the proxy has added.
  if (method === "CONNECT" || (isTrace && options.trace !== true)) throw methodNotAllowed(method);
  const address = rules.clientAddress
    ? rules.clientAddress(incoming.request(), context)
    : incoming.address;
  const trusts = rules.trusts?.(incoming.address ?? address) ? rules.trusts : undefined;
  const head = cleanRequestHeaders(
    incoming.headers,
    trusts ? rules.droppedIfTrusted : rules.dropped,
    rules.kept,
    incoming,
  );
  const upgrade =
    head.upgrade === undefined
      ? undefined
      : readUpgrade(incoming, head.upgrade, rules.upgrades, rules.upgradeHint);
  if (upgrade !== undefined) incoming.prepareUpgrade?.(head.headers);
  const host =
    incoming.named === undefined
      ? (head.host ?? incoming.authority)
      : agreeOnHost(incoming.named, head.host, incoming.secure);

  let { headers } = head;
  if (usesMaxForwards(method)) countForwards(headers);
  if (trusts) dropUntrusted(headers, trusts);
  if (isTrace) headers = withoutSecrets(headers);
  else {
    addForwarded(headers, rules.forwarded, trusts !== undefined || rules.kept !== undefined, {
      address,
      host,
      secure: incoming.secure,
      by: rules.by,
    });
  }
  if (options.via) addVia(headers, options.via, incoming.version());
  if (rules.overridden !== undefined) headers = withoutNames(headers, rules.overridden);
  if (!isTrace) {
    for (let i = 0; i < rules.added.length; i++) headers.push(rules.added[i] as string);
    if (options.startTrace) startTrace(headers);
  }

  // `Content-Length: 0` means no body. Without a body, the client's length is not passed on (RFC 9112 §6.3).
  let body = head.contentLength === 0 ? null : incoming.body;
  const isGet = method === "GET" || method === "HEAD";
  // TRACE has no content (RFC 9110 §9.3.8).
  if (body !== null && (isTrace || (isGet && options.dropGetBody))) {
    body.cancel();
    body = null;
  }
  if (isGet && body === null && incoming.hidesGetBody && !options.dropGetBody) {
    if (head.isChunked || (head.contentLength ?? 0) > 0) throw hiddenBody(method);
  }
  let trailer: string | undefined;
  if (body !== null) {
    // The fields that a client must not set in the header section are dropped from the trailer section as well. Over HTTP/2, a
    // body with a length may have trailer fields, too.
    body.restrictTrailers?.(trusts ? rules.droppedIfTrusted : rules.dropped, head.connection);
    if (head.contentLength === undefined && head.trailer !== undefined) {
      trailer = body.announceTrailers?.(head.trailer);
    }
  }
  return {
    upstream,
    method,
    path: joinTarget(isTrace ? { ...upstream, query: "" } : upstream, path, method),
    headers,
    host: options.host ?? (rules.keepHost ? host : undefined),
    body,
    contentLength: body === null ? undefined : head.contentLength,
    upgrade,
    acceptsTrailers: head.acceptsTrailers && incoming.carriesTrailers === true,
    trailer,
    headersBeforeHooks: rules.follows ? [...headers] : undefined,
    hints: incoming.hints,
  };
}

/** Whether `Max-Forwards` has a meaning for a method (RFC 9110 §7.6.2). */
export function usesMaxForwards(method: string): boolean {
  return method === "OPTIONS" || method === "TRACE";
}

/** The header fields of a request that may be forwarded, and the values of fields that the proxy itself evaluates. */
export interface OutgoingHead {
  /** The fields that may be forwarded. */
  readonly headers: HeaderList;
  readonly host: string | undefined;
  readonly contentLength: number | undefined;
  readonly upgrade: string | undefined;
  /** Whether the client accepts trailer fields. */
  readonly acceptsTrailers: boolean;
  readonly trailer: string | undefined;
  readonly connection: string | undefined;
  /** Whether the body has the chunked coding. */
  readonly isChunked: boolean;
}

/**
 * Drops the fields of a request that must not be forwarded: those in `dropped`, and those that `Connection` nominates.
 *
 * @param kept names of fields that stay although they are in `dropped`
 * @param source the request that the fields belong to; its HTTP version is read only if there is a transfer coding
 * @throws ProxyError 400 for a repeated or malformed `Host` or `Content-Length`, and for a transfer coding in a request of
 * HTTP/1.0; 501 for a transfer coding other than `chunked`
 */
export function cleanRequestHeaders(
  raw: HeaderList,
  dropped: NameSet,
  kept?: NameSet,
  source?: Pick<Incoming, "version">,
): OutgoingHead {
  const headers: HeaderList = [];
  let host: string | undefined;
  let contentLength: number | undefined;
  let connection: string | undefined;
  let upgrade: string | undefined;
  let acceptsTrailers = false;
  let trailer: string | undefined;
  let isChunked = false;
  for (let i = 0; i < raw.length; i += 2) {
    const name = raw[i] as string;
    const value = raw[i + 1] as string;
    if (!dropped.has(name)) {
      headers.push(name, value);
      continue;
    }
    switch (name.length) {
      case 2:
        if (!isName(name, "te")) break;
        // The value is a list (RFC 9110 §10.1.4).
        if (/(?:^|,)[\t ]*trailers[\t ]*(?:$|[,;])/i.test(value)) acceptsTrailers = true;
        break;
      case 4:
        if (!isName(name, "host")) break;
        // Two `Host` fields name two hosts (RFC 9112 §3.2). A malformed value would change the URL that is made from it
        // (CVE-2026-33131).
        if (host !== undefined || !(NAME_AND_PORT.test(value) || isAuthority(value)))
          throw badRequest("Host");
        host = value;
        continue;
      case 7:
        if (isName(name, "trailer")) {
          trailer = trailer === undefined ? value : `${trailer},${value}`;
          continue;
        }
        if (!isName(name, "upgrade")) break;
        upgrade = upgrade === undefined ? value : `${upgrade},${value}`;
        continue;
      case 10:
        if (!isName(name, "connection")) break;
        connection = connection === undefined ? value : `${connection},${value}`;
        continue;
      case 14:
        if (!isName(name, "content-length")) break;
        if (contentLength !== undefined || !/^\d{1,15}$/.test(value)) {
          throw badRequest("Content-Length");
        }
        contentLength = Number(value);
        continue;
      case 17:
        if (!isName(name, "transfer-encoding")) break;
        // Servers decode only `chunked`. A body with another coding would reach the upstream still encoded, but without
        // the field that names the coding (RFC 9112 §6.1).
        if (value.toLowerCase() !== "chunked") throw badRequest("Transfer-Encoding", 501);
        // HTTP/1.0 has no transfer codings, so another recipient may have read a different message framing (RFC 9112
        // §6.1).
        if (source?.version() === "1.0") throw badRequest("Transfer-Encoding");
        isChunked = true;
        break;
    }
    if (kept?.has(name)) headers.push(name, value);
  }
  return {
    headers: withoutNominated(headers, connection),
    host,
    contentLength,
    upgrade,
    acceptsTrailers,
    trailer,
    connection,
    isChunked,
  };
}

/** Returns the error for a GET or HEAD whose body the server hides. Without its body, the request could mean something else. */
function hiddenBody(method: string): ProxyError {
  return new ProxyError("http_request_error", {
    status: 501,
    message: `this server does not show the body of a ${method}: send it by POST or QUERY, or set \`dropGetBody\``,
  });
}

// ── the fields that describe the client and this proxy to the upstream ──

/** What this proxy knows about the connection that a request came on. */
export interface ClientFacts {
  /** The IP address of the client; undefined if the server does not show it. */
  readonly address: string | undefined;
  /** Whether the scheme is `https`. */
  readonly secure: boolean;
  /** The client's `Host`, or the authority of the requested URL. */
  readonly host: string | undefined;
  /** The name of this proxy. */
  readonly by?: string | undefined;
}

/** Which fields describe the client to the upstream. */
export type ForwardedStyle = "x-forwarded" | "forwarded" | "none";

/**
 * Adds the forwarding fields to a list, in place.
 *
 * @param inbound whether `headers` may hold forwarding fields already, because the peer is trusted or an option forwards
 * them: this proxy then appends to `Forwarded` or `X-Forwarded-For`, and keeps the other fields
 * @see https://www.rfc-editor.org/rfc/rfc7239
 */
export function addForwarded(
  headers: HeaderList,
  style: ForwardedStyle,
  inbound: boolean,
  client: ClientFacts,
): void {
  if (style === "none") return;
  const proto = client.secure ? "https" : "http";
  // The zone names a network interface, which is meaningless on other machines (RFC 4007 §11.2).
  const address = client.address && partBefore("%", client.address);
  if (style === "forwarded") {
    append(headers, "Forwarded", toElement(client, address, proto), inbound);
    return;
  }
  if (address !== undefined) append(headers, "X-Forwarded-For", address, inbound);
  const scheme = setUnlessThere(headers, "X-Forwarded-Proto", proto, inbound);
  if (client.host === undefined) return;
  const host = setUnlessThere(headers, "X-Forwarded-Host", client.host, inbound);
  const port = portOf(host) ?? (scheme === "https" ? "443" : "80");
  setUnlessThere(headers, "X-Forwarded-Port", port, inbound);
}

const WITH_PORT = /:\d+$/;

/** Returns the port of an authority; undefined without one. A capture group would allocate an array for each request. */
function portOf(authority: string): string | undefined {
  return WITH_PORT.test(authority) ? authority.slice(authority.lastIndexOf(":") + 1) : undefined;
}

/** Returns a text up to a separator; all of it without one. */
function partBefore(separator: string, text: string): string {
  const end = text.indexOf(separator);
  return end < 0 ? text : text.slice(0, end);
}

/** Adds `value` to the end of a list field; all lines of the field become one. */
function append(headers: HeaderList, name: string, value: string, inbound: boolean): void {
  const before = inbound ? removeHeader(headers, name) : undefined;
  headers.push(name, before === undefined ? value : `${before}, ${value}`);
}

/**
 * Adds a field, unless an earlier proxy has set it, because the first proxy on the way knows the scheme, the host and
 * the port that the client has requested.
 * @returns the value of the field; the first value if it is a list
 */
function setUnlessThere(
  headers: HeaderList,
  name: string,
  value: string,
  inbound: boolean,
): string {
  const there = inbound ? getHeader(headers, name) : undefined;
  if (there !== undefined) return trimOws(partBefore(",", there));
  headers.push(name, value);
  return value;
}

/** Makes the element of `Forwarded` that describes this request (RFC 7239 §4). */
function toElement({ by, host }: ClientFacts, address = "unknown", proto: string): string {
  // Brackets enclose an IPv6 address, and quotes enclose any value that is not a token (RFC 7239 §6).
  const node = isIPv6(address) ? `"[${address}]"` : quote(address);
  // An identifier that is not an address begins with an underscore (RFC 7239 §6.3).
  const self = by === undefined ? "" : `;by=_${by}`;
  return `for=${node}${self}${host === undefined ? "" : `;host=${quote(host)}`};proto=${proto}`;
}

function isIPv6(address: string): boolean {
  return address.includes(":") && /^[\da-f:.]+$/i.test(address);
}

function quote(value: string): string {
  return /^[\w!#$%&'*+.^`|~-]+$/.test(value) ? value : `"${value.replace(/[\\"]/g, "\\$&")}"`;
}

/**
 * Appends this proxy to `Via`, in place.
 * @param version the HTTP version of the incoming request
 * @throws ProxyError 502 if `Via` already names this proxy: the request is in a loop
 * @see https://www.rfc-editor.org/rfc/rfc9110#section-7.6.3
 */
export function addVia(headers: HeaderList, pseudonym: string, version: string): void {
  const passed = removeHeader(headers, "via");
  if (passed?.split(",").map(readPseudonym).includes(pseudonym.toLowerCase())) {
    throw new ProxyError("proxy_loop_detected", {
      message: `the request has passed ${pseudonym} before`,
    });
  }
  const own = `${version} ${pseudonym}`;
  headers.push("Via", passed === undefined ? own : `${passed}, ${own}`);
}

/** Returns the name in an entry of `Via`, such as `1.1 name (comment)`, in lower case. */
function readPseudonym(entry: string): string | undefined {
  return trimOws(entry)
    .split(/[ \t(]+/)[1]
    ?.toLowerCase();
}
