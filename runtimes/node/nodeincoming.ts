import type { IncomingMessage, ServerResponse } from "node:http";
import type { ServerHttp2Stream } from "node:http2";
import type { Socket } from "node:net";
import type { TLSSocket } from "node:tls";
import type { BodySource } from "../../src/body/source.ts";
import { badRequest, type ProxyError } from "../../src/error.ts";
import { getHeader, type HeaderList } from "../../src/fields/headers.ts";
import type { Context } from "../../src/options/forwardingoptions.ts";
import { clientAddressOf, clientKeyOf, type ClientRules } from "../../src/request/clientkey.ts";
import { bodyWasRead, type Incoming, WebIncoming } from "../../src/request/incoming.ts";
import { findMount } from "../../src/request/mount.ts";
import { authorityEnd, authorityOf, pathOf } from "../../src/target/target.ts";
import type { Listener } from "../../src/transport/scope.ts";
import { endWhenLost } from "../sockets/http2/lostsessions.ts";
import { toHookRequest } from "./hookrequest.ts";
import { alreadyRead, IncomingBody, isHttp2, resumeAfter } from "./incomingbody.ts";
import { writeInterim } from "./interim.ts";
import { honoSideOf } from "./internals/hono.ts";
import { CURRENT, type Served } from "./internals/pipelining.ts";
import { messageHeaders, visibleHeaders } from "./internals/rawfields.ts";
import { streamedBodyOf } from "./internals/serverstream.ts";
import { type NodeSide, srvxSideOf } from "./internals/srvx.ts";
import { findUpgrade, joinUpgrade, unanswered } from "./routed.ts";
import { understandsChunks } from "./trailerframing.ts";
import { turnOf } from "./turns.ts";

/** The connection of a request, or the request's HTTP/2 stream. Either closes when the client disconnects. */
type ClientStream = Socket | ServerHttp2Stream;

/**
 * For each connection, the listeners for its end. The connection itself gets one `close` listener, for all of its requests.
 *
 * The listeners are in arrays, not sets: when the entries of a set have changed often enough, V8 gives the set a new table, to
 * which the old table refers. Once a table has moved to the old generation, it keeps all later tables in memory.
 */
const watched: WeakMap<ClientStream, Listener[]> = new WeakMap();

function watchConnection(connection: ClientStream): Listener[] {
  const listeners: Listener[] = [];
  watched.set(connection, listeners);
  if ("session" in connection) endWhenLost(connection.session);
  connection.on("close", () => {
    for (const listener of listeners.slice()) listener.handleEvent();
  });
  return listeners;
}

function listenTo(connection: ClientStream, listener: Listener): void {
  (watched.get(connection) ?? watchConnection(connection)).push(listener);
  if (connection.destroyed || connection.closed) listener.handleEvent();
}

function unlistenTo(connection: ClientStream, listener: Listener): void {
  const listeners = watched.get(connection) ?? [];
  const at = listeners.indexOf(listener);
  if (at < 0) return;
  const last = listeners.pop() as Listener;
  if (at < listeners.length) listeners[at] = last;
}

/** A request of Node's server. It is read from Node's own request, except where other code has changed it. */
abstract class NodeIncoming implements Incoming {
  abstract readonly method: string;
  abstract readonly path: string;
  abstract readonly authority: string;
  abstract readonly headers: HeaderList;
  abstract readonly body: BodySource | null;
  readonly secure: boolean;
  readonly address: string | undefined;
  readonly named: string | undefined;
  readonly fault: ProxyError | undefined;
  running: Incoming["running"];
  /** Node's response, if the server lets the proxy write to it. */
  abstract readonly res: ServerResponse | undefined;
  /** Node's own request. */
  readonly message: IncomingMessage;
  readonly #rules: ClientRules;
  readonly #context: Context;

  constructor(req: IncomingMessage, rules: ClientRules, context: Context) {
    this.message = req;
    this.#rules = rules;
    this.#context = context;
    this.secure = (req.socket as TLSSocket).encrypted;
    this.address = peerAddress(req);
    // Nearly every request arrives over HTTP/1 and has a target in origin-form. Such a request needs no further checks.
    const isPlain = req.httpVersionMajor === 1 && req.url?.charCodeAt(0) === 0x2f; /* / */
    this.named = isPlain ? undefined : namedAuthority(req);
    this.fault = isPlain ? undefined : versionFault(req);
  }

  version(): string {
    return this.message.httpVersion;
  }

  abstract request(): Request;

  get clientKey(): string | undefined {
    return clientKeyOf(this, this.#rules, this.#context);
  }

  get clientAddress(): string | undefined {
    return clientAddressOf(this, this.#rules, this.#context);
  }

  get carriesTrailers(): boolean {
    return understandsChunks(this.message);
  }

  turn(): Promise<void> | undefined {
    const { message, res } = this;
    // Nearly always, this request has the current response of its connection, and need not wait.
    return (message.socket as Served)[CURRENT] === res ? undefined : turnOf(message);
  }

  protected abstract get connection(): ClientStream;

  listen(listener: Listener): void {
    listenTo(this.connection, listener);
  }

  inform(status: number, headers: HeaderList): void {
    writeInterim(this.message, this.res, status, headers);
  }

  unlisten(listener: Listener): void {
    unlistenTo(this.connection, listener);
  }
}

/** A web `Request` whose server shows Node's request. Most members are read from Node's request. */
class HostedIncoming extends NodeIncoming implements Incoming {
  readonly method: string;
  readonly path: string;
  readonly authority: string;
  readonly headers: HeaderList;
  readonly body: BodySource | null;
  readonly res: ServerResponse | undefined;
  readonly #request: Request;

  constructor(request: Request, side: NodeSide, rules: ClientRules, context: Context) {
    const { req, res } = side;
    super(req, rules, context);
    const { url, method } = request;
    this.#request = request;
    this.res = res;
    this.method = method;
    this.path = wirePath(pathOf(url), url, req);
    this.authority = authorityOf(url);
    const fields = visibleHeaders(request, req);
    const isHttp1 = req.httpVersionMajor === 1;
    this.headers = isHttp1 ? fields : toHttp1Fields(fields);
    const hasContent = isHttp1 ? hasBody(req) : messageHasBody(req);
    this.body = hasContent ? bodyOf(request, side) : null;
  }

  get mount(): string {
    return findMount(this.message.url ?? "", this.path);
  }

  request(): Request {
    return this.#request;
  }

  protected override get connection(): ClientStream {
    return connectionOf(this.message);
  }
}

/** The members that a framework sets on a request when it has cut the mount path off the request's `url`. */
interface MountedMessage {
  /** The part of the path that was cut off; Express sets it. */
  readonly baseUrl?: unknown;
  /** The `url` as it was received; Express, Connect, Polka and h3 1 set it. */
  readonly originalUrl?: unknown;
}

/** A request of `node:http`, `node:http2`, Express or Fastify, without any web object. */
export class MessageIncoming extends NodeIncoming implements Incoming {
  readonly method: string;
  readonly path: string;
  readonly authority: string;
  readonly headers: HeaderList;
  readonly body: BodySource | null;
  readonly res: ServerResponse;
  #request: Request | undefined;

  constructor(req: IncomingMessage, res: ServerResponse, rules: ClientRules, context: Context) {
    super(req, rules, context);
    const url = req.url ?? "/";
    this.res = res;
    this.method = req.method ?? "GET";
    this.authority = this.named ?? "";
    // Absolute-form (RFC 9112 §3.2.2) has an authority in front of the path.
    const isAbsolute = !url.startsWith("/") && url.includes("://");
    this.path = isAbsolute ? (asteriskOf(req) ?? pathOf(url)) : url;
    this.headers = isHttp2(req) ? toHttp1Fields(messageHeaders(req)) : messageHeaders(req);
    const bodyless = !messageHasBody(req);
    if (!bodyless && req.readableDidRead) throw alreadyRead();
    const isFlowing = req.readableFlowing === true;
    this.body = bodyless ? null : new IncomingBody(req);
    if (this.body !== null && isFlowing) resumeAfter(res, req);
  }

  get mount(): string {
    const { baseUrl, originalUrl } = this.message as MountedMessage;
    // Middleware may have restored the path that Express has cut off.
    if (originalUrl === this.message.url) return "";
    if (typeof baseUrl === "string") return baseUrl;
    return typeof originalUrl === "string" ? findMount(originalUrl, this.path) : "";
  }

  request(): Request {
    const host = this.message.headers.host || this.authority || "localhost";
    this.#request ??= toHookRequest(this.secure ? "https" : "http", host, this);
    return this.#request;
  }

  protected override get connection(): ClientStream {
    return connectionOf(this.message);
  }
}

/** A web `Request`. Node's request, if it is known, shows what the web request lacks, such as the client's address. */
class PeerIncoming extends WebIncoming {
  readonly named: string | undefined;
  readonly fault: ProxyError | undefined;
  readonly #peer: IncomingMessage | undefined;
  readonly #rules: ClientRules;
  readonly #context: Context;
  /** Whether the caller passed `body`. It is then read from Node's request, which shows even the body of a GET. */
  readonly #showsBody: boolean;

  constructor(
    request: Request,
    peer: IncomingMessage | undefined,
    rules: ClientRules,
    context: Context,
    headers?: HeaderList,
    body?: BodySource | null,
  ) {
    super(request, peer && peerAddress(peer), peer?.httpVersion, headers, body);
    this.named = peer && namedAuthority(peer);
    this.fault = peer && versionFault(peer);
    this.#peer = peer;
    this.#rules = rules;
    this.#context = context;
    this.#showsBody = body !== undefined;
  }

  get clientKey(): string | undefined {
    return clientKeyOf(this, this.#rules, this.#context);
  }

  get clientAddress(): string | undefined {
    return clientAddressOf(this, this.#rules, this.#context);
  }

  override get hidesGetBody(): boolean {
    return !this.#showsBody;
  }

  override get mount(): string {
    return this.#peer === undefined ? super.mount : findMount(this.#peer.url ?? "", this.path);
  }

  turn(): Promise<void> | undefined {
    return this.#peer && turnOf(this.#peer);
  }

  inform(status: number, headers: HeaderList): void {
    if (this.#peer !== undefined) writeInterim(this.#peer, undefined, status, headers);
  }
}

/**
 * A web `Request` that an app built while it handled a request of a Node server. The response goes to the client that sent
 * the request of the Node server, so that client's disconnect aborts the exchange.
 */
class RebuiltIncoming extends PeerIncoming {
  readonly #connection: ClientStream;

  constructor(request: Request, peer: IncomingMessage, rules: ClientRules, context: Context) {
    super(request, peer, rules, context);
    this.#connection = connectionOf(peer);
  }

  /** Also listens to the connection, because the app may not have given its web request the signal of the client's request. */
  override listen(listener: Listener): void {
    super.listen(listener);
    listenTo(this.#connection, listener);
  }

  override unlisten(listener: Listener): void {
    super.unlisten(listener);
    unlistenTo(this.#connection, listener);
  }
}

/** Returns the connection or HTTP/2 stream that closes when the client of a message disconnects. */
function connectionOf(message: IncomingMessage): ClientStream {
  return message.httpVersionMajor !== 1 && isHttp2(message) ? message.stream : message.socket;
}

/** Whether a proxy is forwarding this request now. While it does so, it listens for the end of the client's connection. */
export function isProxied(message: IncomingMessage): boolean {
  return (watched.get(connectionOf(message)) ?? []).length > 0;
}

/** Returns Node's request and response under a web request, if the server shows them. */
export function nodeSideOf(request: Request): NodeSide | undefined {
  return srvxSideOf(request) ?? honoSideOf(request);
}

/** Reads a web request, and Node's request if the server shows it. */
export function readRequest(request: Request, context: Context, rules: ClientRules): Incoming {
  const side = nodeSideOf(request);
  if (unanswered.size > 0) {
    const upgrade = findUpgrade(side?.req ?? messageIn(context), request);
    if (upgrade !== undefined) {
      const isOwn = side !== undefined && !side.isRebuilt;
      const incoming = isOwn
        ? new HostedIncoming(request, side, rules, context)
        : new RebuiltIncoming(request, upgrade.message, rules, context);
      return joinUpgrade(incoming, upgrade);
    }
  }
  if (side?.isRebuilt === true) return new RebuiltIncoming(request, side.req, rules, context);
  if (
    side?.req.httpVersionMajor === 1 ||
    (side && (side.res !== undefined || !isHttp2(side.req)))
  ) {
    return new HostedIncoming(request, side, rules, context);
  }
  // On HTTP/2, a server that does not show Node's response accepts only web responses.
  const peer = side?.req ?? messageIn(context);
  const fields = side && toHttp1Fields(visibleHeaders(request, side.req));
  const body = http2BodyOf(request, side);
  return new PeerIncoming(request, peer, rules, context, fields, body);
}

/** Returns Node's request: the member `incoming` of the environment that Hono's `mount()` passes as the second argument. */
function messageIn(context: Context): IncomingMessage | undefined {
  const message = (context as { incoming?: IncomingMessage } | undefined)?.incoming;
  return message?.socket && message;
}

/** Reads a request of `node:http`, `node:http2`, Express or Fastify. */
export function readMessage(
  req: IncomingMessage,
  res: ServerResponse,
  rules: ClientRules,
  context: Context,
): Incoming {
  const incoming = new MessageIncoming(req, res, rules, context);
  const upgrade = unanswered.size > 0 ? unanswered.get(req.rawHeaders) : undefined;
  return upgrade === undefined ? incoming : joinUpgrade(incoming, upgrade);
}

/** Returns Node's request under a web request that was read from it (`HostedIncoming`); undefined for any other request. */
export function messageOf(incoming: Incoming): IncomingMessage | undefined {
  return incoming instanceof HostedIncoming ? incoming.message : undefined;
}

/** Returns Node's response, if the server lets the proxy write to it. */
export function responseOf(incoming: Incoming): ServerResponse | undefined {
  return incoming instanceof NodeIncoming ? incoming.res : undefined;
}

/**
 * Returns the error for a request whose HTTP version does not fit its connection; undefined if it fits.
 *
 * Node's HTTP/1 parser accepts `HTTP/2.0` and `HTTP/0.9` in a request line, and takes a line without a version for HTTP/0.9. A
 * server that cannot answer in a request's major version responds with 505 (RFC 9110 §15.6.6).
 */
function versionFault(req: IncomingMessage): ProxyError | undefined {
  return req.httpVersionMajor === 1 || isHttp2(req) ? undefined : badRequest("HTTP version", 505);
}

/** Returns the authority of a target in absolute-form (RFC 9112 §3.2.2), or the value of `:authority` (RFC 9113 §8.3.1). */
function namedAuthority(req: IncomingMessage): string | undefined {
  const { url = "" } = req;
  if (isHttp2(req)) return getHeader(req.rawHeaders, ":authority");
  if (url.startsWith("/") || !url.includes("://")) return undefined;
  return authorityOf(url);
}

const MAPPED_IPV4 = "::ffff:";

/** Returns the peer's address. A dual-stack socket shows IPv4 addresses mapped to IPv6: these are returned as IPv4. */
function peerAddress(req: IncomingMessage): string | undefined {
  const address = req.socket.remoteAddress;
  return address?.startsWith(MAPPED_IPV4) && address.includes(".")
    ? address.slice(MAPPED_IPV4.length)
    : address;
}

/** Parts of a path that URL parsers resolve or cut off, so that a router has seen a path other than the received one. */
const RESOLVED = /[\\#]|\/(?:\.|%2e){1,2}(?:[/?]|$)/i;

/**
 * Returns the path as it was received, if the request's URL differs from it only by escaped bytes; else the path of the URL.
 * The escaped path may be wrong: escaping treats bytes above 0x7f as UTF-8, although they may be of another encoding.
 */
function wirePath(path: string, url: string, req: IncomingMessage): string {
  const { url: wire = "" } = req;
  if (path === wire) return path;
  if (!wire.startsWith("/")) return (isUnchanged(path, wire) ? asteriskOf(req) : undefined) ?? path;
  if (RESOLVED.test(wire)) return path;
  const base = url.slice(0, authorityEnd(url));
  return URL.parse(base + wire)?.href === url ? wire : path;
}

/**
 * Whether the path of a web request is still the path that the server has derived from a request target that is not in
 * origin-form.
 */
function isUnchanged(path: string, requestTarget: string): boolean {
  return path === (requestTarget === "*" ? "/*" : pathOf(requestTarget));
}

/**
 * Returns `*` for an OPTIONS request about the server as a whole: in asterisk-form, or in absolute-form without a path,
 * which the last proxy sends in asterisk-form (RFC 9112 §3.2.4).
 */
function asteriskOf({ method, url = "" }: IncomingMessage): string | undefined {
  if (method !== "OPTIONS") return undefined;
  const isWhole = url === "*" || (url.includes("://") && authorityEnd(url) === url.length);
  return isWhole ? "*" : undefined;
}

/** Whether an HTTP/1 message has content (RFC 9112 §6.3). */
export function hasBody({ rawHeaders }: IncomingMessage): boolean {
  return (
    getHeader(rawHeaders, "transfer-encoding") !== undefined ||
    Number(getHeader(rawHeaders, "content-length") ?? 0) > 0
  );
}

/** Whether an HTTP/1.1 or HTTP/2 request has a body. The bytes after a CONNECT are not a body (RFC 9110 §9.3.6). */
function messageHasBody(req: IncomingMessage): boolean {
  if (!isHttp2(req)) return hasBody(req);
  return !req.stream.endAfterHeaders && req.headers[":protocol"] === undefined;
}

/**
 * Returns the body of a web request: from Node's request if no other code reads it, and the server does not limit it, else from
 * the server's web stream.
 * @throws TypeError if other code has read from the body: the upstream would take the rest for the whole body
 */
function bodyOf(request: Request, side: NodeSide): BodySource | null {
  const { req, ownBody, isFresh } = side;
  if (hasNoWebBody(request.method)) return hiddenBodyOf(request, side);
  if (request.bodyUsed) throw bodyWasRead();
  if (ownBody && !req.readableDidRead && (isFresh || req.readableFlowing === null)) {
    return new IncomingBody(req);
  }
  const length = getHeader(req.rawHeaders, "content-length");
  return streamedBodyOf(request, side, length === undefined ? undefined : Number(length));
}

/** Whether a web request with this method has no body, whatever the client has sent. */
function hasNoWebBody(method: string): boolean {
  return method === "GET" || method === "HEAD";
}

/** Returns the body that a GET or HEAD has on the wire; null for a web request that the app has built from another one. */
function hiddenBodyOf({ method }: Request, { req, isRebuilt }: NodeSide): BodySource | null {
  if (isRebuilt || req.method !== method) return null;
  if (req.readableDidRead) throw alreadyRead();
  return new IncomingBody(req);
}

/**
 * Returns the body of a web request over HTTP/2; undefined for other requests. The body is read from Node's request rather than
 * from the web stream. If the client resets the HTTP/2 stream with NO_ERROR, the web stream ends as if the body were complete.
 */
function http2BodyOf(request: Request, side: NodeSide | undefined): BodySource | null | undefined {
  if (side === undefined || !isHttp2(side.req)) return undefined;
  if (side.req.stream.endAfterHeaders) return null;
  return bodyOf(request, side);
}

/**
 * Returns the fields of an HTTP/2 request in the form of HTTP/1: without pseudo-header fields such as `:method`
 * (RFC 9113 §8.3), and with all Cookie fields joined to one (RFC 9113 §8.2.3).
 */
export function toHttp1Fields(raw: HeaderList): HeaderList {
  const fields: HeaderList = [];
  let cookieAt = -1;
  for (let i = 0; i < raw.length; i += 2) {
    const name = raw[i] as string;
    const value = raw[i + 1] as string;
    if (name.startsWith(":")) continue;
    if (name.toLowerCase() !== "cookie") fields.push(name, value);
    else if (cookieAt >= 0) fields[cookieAt] += `; ${value}`;
    else cookieAt = fields.push(name, value) - 1;
  }
  return fields;
}
