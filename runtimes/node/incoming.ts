import type { IncomingMessage, ServerResponse } from "node:http";
import type { ServerHttp2Stream } from "node:http2";
import type { Socket } from "node:net";
import type { Listener } from "../../src/deadline.ts";
import type { ProxyError } from "../../src/error.ts";
import {
  assertBodyUnread,
  type Context,
  type Incoming,
  pathOf,
  authorityEnd,
  WebIncoming,
} from "../../src/incoming.ts";
import type { Body, HeaderList } from "../../src/transport.ts";
import { toRequestBody } from "../http/unframed.ts";
import { messageHeaders, visibleHeaders } from "./headers.ts";
import {
  addressOf,
  hasBody,
  isHttp2,
  isSecure,
  messageHasBody,
  namedAuthority,
  versionFault,
  wirePath,
  toFields,
} from "./message.ts";
import { turnOf } from "./pipeline.ts";
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
  // Servers do not document this: only what looks like a message of Node's is taken for one.
  if (pair?.req?.rawHeaders !== undefined) {
    return { req: pair.req, res: pair.res, ownBody: pair.maxRequestBodySize === undefined };
  }
  let req: IncomingMessage | undefined;
  let ownBody = true;
  for (const symbol of Object.getOwnPropertySymbols(request)) {
    if (symbol.description === "incomingKey") {
      req = (request as unknown as Record<symbol, IncomingMessage>)[symbol];
    } else if (symbol.description === "requestCache") ownBody = false;
  }
  return req?.rawHeaders && { req, res: undefined, ownBody };
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

/** A request of Node's server, read from the raw message as far as nothing was changed on the way. */
abstract class NodeIncoming {
  readonly secure: boolean;
  readonly address: string | undefined;
  readonly named: string | undefined;
  readonly fault: ProxyError | undefined;
  protected readonly req: IncomingMessage;

  constructor(req: IncomingMessage) {
    this.req = req;
    this.secure = isSecure(req);
    this.address = addressOf(req);
    // Nearly every request is of HTTP/1 and has a target in origin-form.
    const isPlain = req.httpVersionMajor === 1 && req.url?.charCodeAt(0) === 0x2f; /* / */
    this.named = isPlain ? undefined : namedAuthority(req);
    this.fault = isPlain ? undefined : versionFault(req);
  }

  version(): string {
    return this.req.httpVersion;
  }

  turn(): Promise<void> | undefined {
    return turnOf(this.req);
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
    this.headers = visibleHeaders(request, req);
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
    this.authority = this.named ?? "";
    // Absolute-form (RFC 9112 §3.2.2) names an authority in front of the path.
    this.path = url.startsWith("/") || !url.includes("://") ? url : pathOf(url);
    this.headers = isHttp2(req) ? toFields(messageHeaders(req)) : messageHeaders(req);
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

/** A web `Request` of which Node's request says only where it came from. */
class PeerIncoming extends WebIncoming {
  readonly named: string | undefined;
  readonly fault: ProxyError | undefined;
  readonly #peer: IncomingMessage | undefined;

  constructor(request: Request, peer: IncomingMessage | undefined, headers?: HeaderList) {
    super(request, peer && addressOf(peer), peer?.httpVersion, headers);
    this.named = peer && namedAuthority(peer);
    this.fault = peer && versionFault(peer);
    this.#peer = peer;
  }

  turn(): Promise<void> | undefined {
    return this.#peer && turnOf(this.#peer);
  }
}

/** Reads a web request, by Node's own where there is one under it. */
export function readRequest(request: Request, context: Context): Incoming {
  const side = nodeSideOf(request);
  if (side?.req.httpVersionMajor === 1 || (side && !isHttp2(side.req))) {
    return new HostedIncoming(request, side);
  }
  // Hono's mount() makes a new Request, but passes its environment.
  const peer = side?.req ?? (context as { incoming?: IncomingMessage } | undefined)?.incoming;
  const headers = side && toFields(visibleHeaders(request, side.req));
  const incoming = new PeerIncoming(request, peer?.socket && peer, headers);
  const { body } = incoming;
  if (body instanceof ReadableStream) incoming.body = toRequestBody(body, incoming.headers);
  return incoming;
}

/** The Node response that a reply to this request can be written to, if the server takes it so. */
export function responseOf(incoming: Incoming): ServerResponse | undefined {
  return incoming instanceof HostedIncoming || incoming instanceof MessageIncoming
    ? incoming.res
    : undefined;
}
