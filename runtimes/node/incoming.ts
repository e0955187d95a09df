import type { IncomingMessage, ServerResponse } from "node:http";
import type { ServerHttp2Stream } from "node:http2";
import type { Socket } from "node:net";
import type { Listener } from "../../src/exchange/scope.ts";
import type { ProxyError } from "../../src/error.ts";
import { type Context, type Incoming, WebIncoming } from "../../src/request/incoming.ts";
import { authorityEnd, pathOf } from "../../src/request/target.ts";
import type { BodySource } from "../../src/body/source.ts";
import type { HeaderList } from "../../src/transport.ts";
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
import { alreadyRead, bodyOf, http2BodyOf, type NodeSide, nodeSideOf } from "./side.ts";
import { IncomingBody, resumeAfter } from "./upload.ts";

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

  get message(): IncomingMessage {
    return this.req;
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
  readonly body: BodySource | null;
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
    this.headers = visibleHeaders(request, req);
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
  readonly body: BodySource | null;
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

/** A web `Request` of which Node's request says only where it came from. */
class PeerIncoming extends WebIncoming {
  readonly named: string | undefined;
  readonly fault: ProxyError | undefined;
  readonly #peer: IncomingMessage | undefined;

  constructor(
    request: Request,
    peer: IncomingMessage | undefined,
    headers?: HeaderList,
    body?: BodySource | null,
  ) {
    super(request, peer && addressOf(peer), peer?.httpVersion, headers, body);
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
  const fields = side && toFields(visibleHeaders(request, side.req));
  return new PeerIncoming(request, peer?.socket && peer, fields, http2BodyOf(request, side));
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
