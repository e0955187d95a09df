import type { IncomingMessage, ServerResponse } from "node:http";
import type { Http2ServerRequest, ServerHttp2Stream } from "node:http2";
import type { Socket } from "node:net";
import type { TLSSocket } from "node:tls";
import type { Listener } from "../../src/deadline.ts";
import { getHeader, toHeaderList } from "../../src/headers.ts";
import {
  assertBodyUnread,
  type Context,
  type Incoming,
  pathOf,
  authorityEnd,
  WebIncoming,
} from "../../src/incoming.ts";
import type { Body, HeaderList } from "../../src/transport.ts";
import { RequestBody } from "../http/body.ts";
import { headersUntouched, messageHeaders } from "./headers.ts";
import { toRequest } from "./request.ts";
import { holdBack, IncomingBody } from "./upload.ts";

/** What servers show of themselves on their requests and contexts. */
interface NodePair {
  req?: IncomingMessage;
  res?: ServerResponse;
  /** srvx: a limit that only its own body stream applies. */
  maxRequestBodySize?: number;
}

/** Node's own request and response under a web `Request`. */
export interface NodeSide {
  readonly req: IncomingMessage;
  /** The response to write to, where the server takes a body that writes itself (srvx). */
  readonly res: ServerResponse | undefined;
  /** Whether the body may be taken from `req`, past the `Request`. */
  readonly ownBody: boolean;
}

/** Finds Node's request under a web one: srvx and h3 show it, @hono/node-server keeps it by a symbol. */
export function nodeSideOf(request: Request): NodeSide | undefined {
  const pair = (request as { runtime?: { node?: NodePair } }).runtime?.node;
  if (pair?.req !== undefined) {
    return { req: pair.req, res: pair.res, ownBody: pair.maxRequestBodySize === undefined };
  }
  let req: IncomingMessage | undefined;
  let ownBody = true;
  for (const symbol of Object.getOwnPropertySymbols(request)) {
    if (symbol.description === "incomingKey") {
      req = (request as unknown as Record<symbol, IncomingMessage>)[symbol];
    } else if (symbol.description === "requestCache") ownBody = false;
  }
  return req && { req, res: undefined, ownBody };
}

/** Whether an HTTP/1 message has content (RFC 9112 §6.3). */
function hasBody({ rawHeaders }: IncomingMessage): boolean {
  return (
    getHeader(rawHeaders, "transfer-encoding") !== undefined ||
    Number(getHeader(rawHeaders, "content-length") ?? 0) > 0
  );
}

/** What a request came on: it is over when its client leaves. */
type Line = Socket | ServerHttp2Stream;

/**
 * Who listens for the end of connections: one listener on each, however many requests it carries.
 *
 * Arrays, not sets: whenever a set has turned over its entries V8 gives it another table, which the one
 * before refers to, and so each that grew old keeps what came after it from the young collector.
 */
const watched: WeakMap<Line, Listener[]> = new WeakMap();

function watch(line: Line): Listener[] {
  const listeners: Listener[] = [];
  watched.set(line, listeners);
  line.on("close", () => {
    for (const listener of listeners.slice()) listener.handleEvent();
  });
  return listeners;
}

const MAPPED_IPV4 = "::ffff:";

/** The peer's address; an IPv4 one as such, although a dual-stack socket maps it. */
function addressOf(req: IncomingMessage): string | undefined {
  const address = req.socket.remoteAddress;
  return address?.startsWith(MAPPED_IPV4) && address.includes(".")
    ? address.slice(MAPPED_IPV4.length)
    : address;
}

function isSecure(req: IncomingMessage): boolean {
  return (req.socket as TLSSocket).encrypted;
}

/** A request of Node's server, read from the raw message as far as nothing was changed on the way. */
abstract class NodeIncoming {
  readonly secure: boolean;
  readonly address: string | undefined;
  protected readonly req: IncomingMessage;

  constructor(req: IncomingMessage) {
    this.req = req;
    this.secure = isSecure(req);
    this.address = addressOf(req);
  }

  version(): string {
    return this.req.httpVersion;
  }

  protected get line(): Line {
    return this.req.socket;
  }

  listen(listener: Listener): void {
    const { line } = this;
    (watched.get(line) ?? watch(line)).push(listener);
    if (line.destroyed || line.closed) listener.handleEvent();
  }

  unlisten(listener: Listener): void {
    const listeners = watched.get(this.line) ?? [];
    const at = listeners.indexOf(listener);
    if (at < 0) return;
    const last = listeners.pop() as Listener;
    if (at < listeners.length) listeners[at] = last;
  }
}

/** What URL parsers resolve or cut off: the router then saw another path than the one on the wire. */
const RESOLVED = /[\\#]|\/(?:\.|%2e){1,2}(?:[/?]|$)/i;

/**
 * The path of a request's URL with the bytes it came in, if the server only
 * escaped some of them: as UTF-8, what were other bytes before.
 */
function wirePath(path: string, url: string, { url: wire = "" }: IncomingMessage): string {
  if (path === wire || !wire.startsWith("/") || RESOLVED.test(wire)) return path;
  const base = url.slice(0, authorityEnd(url));
  return URL.parse(base + wire)?.href === url ? wire : path;
}

/** A web `Request` with Node's request under it. */
class HostedIncoming extends NodeIncoming implements Incoming {
  readonly method: string;
  readonly path: string;
  readonly authority: string;
  readonly headers: HeaderList;
  readonly body: Body | null;
  readonly res: ServerResponse | undefined;
  readonly #request: Request;

  constructor(request: Request, { req, res, ownBody }: NodeSide) {
    super(req);
    const { url, method } = request;
    this.#request = request;
    this.res = res;
    this.method = method;
    this.path = wirePath(pathOf(url), url, req);
    this.authority = url.slice(url.indexOf("//") + 2, authorityEnd(url));
    this.headers = headersUntouched(request, req) ? req.rawHeaders : toHeaderList(request.headers);
    if (method === "GET" || method === "HEAD" || !hasBody(req)) this.body = null;
    else {
      assertBodyUnread(request);
      const unread = ownBody && req.readableFlowing === null && !req.readableDidRead;
      this.body = unread ? new IncomingBody(req) : request.body;
    }
  }

  request(): Request {
    return this.#request;
  }
}

/** A request of `node:http`, Express or Fastify, without any web object. */
export class MessageIncoming extends NodeIncoming implements Incoming {
  readonly method: string;
  readonly path: string;
  readonly authority: string;
  readonly headers: HeaderList;
  readonly body: Body | null;
  readonly res: ServerResponse;
  #request: Request | undefined;

  constructor(req: IncomingMessage, res: ServerResponse) {
    super(req);
    const url = req.url ?? "/";
    this.res = res;
    this.method = req.method ?? "GET";
    // Absolute-form names an authority too: the target's counts (RFC 9112 §3.2.2).
    this.path = url.startsWith("/") || !url.includes("://") ? url : pathOf(url);
    this.authority = getHeader(req.rawHeaders, ":authority") ?? "";
    this.headers = isHttp2(req) ? withoutPseudo(req.rawHeaders) : messageHeaders(req);
    // As in every web request; an upstream may take such a body for the next request.
    const bodyless = this.method === "GET" || this.method === "HEAD" || !messageHasBody(req);
    this.body = bodyless ? null : new IncomingBody(req);
    if (this.body !== null && req.readableFlowing) holdBack(req, res);
    if (this.body !== null && req.readableDidRead) {
      throw new TypeError(
        "fetchway: the request's body has already been read; put the proxy before body parsers such as express.json()",
      );
    }
  }

  request(): Request {
    const host = this.req.headers.host || this.authority || "localhost";
    this.#request ??= toRequest(this.secure ? "https" : "http", host, this);
    return this.#request;
  }

  protected override get line(): Line {
    const req: object = this.req;
    return isHttp2(req) ? req.stream : super.line;
  }
}

/** Not by its version: of that the client says what it likes, and Node's parser takes 0.9 and 2.0 too. */
function isHttp2(req: object): req is Http2ServerRequest {
  return "stream" in req;
}

function messageHasBody(req: IncomingMessage): boolean {
  return isHttp2(req) ? !req.stream.endAfterHeaders : hasBody(req);
}

/** HTTP/2's `:method` and its like are no fields (RFC 9113 §8.3). */
function withoutPseudo(raw: HeaderList): HeaderList {
  return raw.filter((_, i) => (raw[i - (i % 2)] as string)[0] !== ":");
}

/** Reads a web request, by Node's own where there is one under it. */
export function readRequest(request: Request, context: Context): Incoming {
  const side = nodeSideOf(request);
  if (side?.req.httpVersionMajor === 1) return new HostedIncoming(request, side);
  // Hono's mount() makes a new Request, but passes its environment.
  const peer = side?.req ?? (context as { incoming?: IncomingMessage } | undefined)?.incoming;
  const address = peer?.socket === undefined ? undefined : addressOf(peer);
  const incoming = new WebIncoming(request, address, peer?.httpVersion);
  if (incoming.body instanceof ReadableStream) incoming.body = new RequestBody(incoming.body);
  return incoming;
}

/** The Node response that a reply to this request can be written to, if the server takes it so. */
export function responseOf(incoming: Incoming): ServerResponse | undefined {
  return incoming instanceof HostedIncoming || incoming instanceof MessageIncoming
    ? incoming.res
    : undefined;
}
