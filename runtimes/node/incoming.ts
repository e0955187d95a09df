import type { IncomingMessage, ServerResponse } from "node:http";
import type { ServerHttp2Stream } from "node:http2";
import type { Socket } from "node:net";
import type { TLSSocket } from "node:tls";
import type { Listener } from "../../src/deadline.ts";
import { getHeader, toHeaderList } from "../../src/headers.ts";
import {
  type Context,
  type Incoming,
  pathOf,
  authorityEnd,
  WebIncoming,
} from "../../src/incoming.ts";
import type { Body, HeaderList } from "../../src/transport.ts";
import { toRequestBody } from "../http/unframed.ts";
import { headersUntouched, messageHeaders } from "./headers.ts";
import { toRequest } from "./request.ts";
import { alreadyRead, bodyOf, hasBody, http2BodyOf, type NodeSide, nodeSideOf } from "./side.ts";
import { IncomingBody, isHttp2, resumeAfter } from "./upload.ts";

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

  get message(): IncomingMessage {
    return this.req;
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

  constructor(request: Request, side: NodeSide) {
    const { req, res } = side;
    super(req);
    const { url, method } = request;
    this.#request = request;
    this.res = res;
    this.method = method;
    this.path = wirePath(pathOf(url), url, req);
    this.authority = url.slice(url.indexOf("//") + 2, authorityEnd(url));
    this.headers = headersUntouched(request, req) ? req.rawHeaders : toHeaderList(request.headers);
    const bodyless = method === "GET" || method === "HEAD" || !hasBody(req);
    this.body = bodyless ? null : bodyOf(request, side);
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
    if (!bodyless && req.readableDidRead) throw alreadyRead();
    const isFlowing = req.readableFlowing === true;
    this.body = bodyless ? null : new IncomingBody(req);
    if (this.body !== null && isFlowing) resumeAfter(res, req);
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
  const incoming = new WebIncoming(request, address, peer?.httpVersion, http2BodyOf(request, side));
  const { body, headers } = incoming;
  if (body instanceof ReadableStream) incoming.body = toRequestBody(body, headers);
  return incoming;
}

/** Node's request under a web one. */
export function messageOf(incoming: Incoming): IncomingMessage | undefined {
  return incoming instanceof HostedIncoming ? incoming.message : undefined;
}

/** The Node response that a reply to this request can be written to, if the server takes it so. */
export function responseOf(incoming: Incoming): ServerResponse | undefined {
  return incoming instanceof HostedIncoming || incoming instanceof MessageIncoming
    ? incoming.res
    : undefined;
}
