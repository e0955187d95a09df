import { getHeader, toHeaderList } from "../fields/headers.ts";
import type { BodySource } from "../body/source.ts";
import { StreamBody } from "../body/stream.ts";
import { UnframedBody } from "../body/unframed.ts";
import type { HeaderList, OriginalFields } from "../transport.ts";
import type { Client, Listener } from "../exchange/scope.ts";
import type { ProxyError } from "../error.ts";

/**
 * What the server under the handler passes beside the request: Deno's `info`,
 * Bun's `server`, a Worker's `env`, Hono's `c.env`.
 */
export type Context = unknown;

/** A request as the core sees it; a runtime may read it cheaper than through `Request`. */
export interface Incoming extends Client {
  readonly method: string;
  /** Path and query in origin-form, with the bytes they came in. */
  readonly path: string;
  /** Authority of the request's URL: it stands in where there is no `Host` field (HTTP/2). */
  readonly authority: string;
  /** The authority that the request target names, where the server shows it apart from `Host`. */
  readonly named?: string | undefined;
  /** Why the request cannot be forwarded, although the server has let it through. */
  readonly fault?: ProxyError | undefined;
  readonly secure: boolean;
  readonly headers: HeaderList;
  /** Where `headers` is less than what came in. */
  readonly original?: OriginalFields;
  /** IP address of the peer, where it is known. */
  readonly address: string | undefined;
  readonly body: BodySource | null;
  /**
   * Resolves when the requests in front of it on its connection are finished, as far as their order counts
   * (RFC 9112 §9.3.2); undefined where it may be sent at once. Asked once, as soon as the request is here.
   */
  turn?(): Promise<void> | undefined;
  /** HTTP version it came in; `1.1` where the server under the handler does not tell. */
  version(): string;
  /** The request as a `Request`, for hooks; made when first asked for. */
  request(): Request;
}

/** Where an absolute URL's authority ends; at 0 if there is a path alone, as in Bun where `Host` is no authority. */
export function authorityEnd(url: string): number {
  if (url.startsWith("/")) return 0;
  for (let end = url.indexOf("//") + 2; end < url.length; end++) {
    const code = url.charCodeAt(end);
    if (code === 0x2f /* / */ || code === 0x3f /* ? */ || code === 0x23 /* # */) return end;
  }
  return url.length;
}

/** Path and query of an absolute URL, without parsing it: parsing changes bytes. */
export function pathOf(url: string): string {
  const start = authorityEnd(url);
  const hash = url.indexOf("#", start);
  const path = hash < 0 ? url.slice(start) : url.slice(start, hash);
  return path.startsWith("/") ? path : `/${path}`;
}

/**
 * Makes sure that a call was given a web `Request`, of whatever class.
 * @param call how it is called, for the message
 * @throws TypeError that says what to pass instead of an event or a context of a framework
 */
export function assertRequest(request: unknown, call: string): void {
  // One lookup for each request: neither frameworks' events nor Node's messages can be cloned.
  if (typeof request === "object" && request !== null && "clone" in request) return;
  const fix = findRequest(request);
  throw new TypeError(`fetchway: ${call}${fix === undefined ? "" : `; ${fix}`}`);
}

/** Tells how the web `Request` is reached from what a framework hands to its handlers. */
function findRequest(given: unknown): string | undefined {
  const { req, request, raw, node, httpVersion } = (given ?? {}) as Record<string, unknown>;
  const inner = req as { raw?: unknown; httpVersion?: unknown } | undefined;
  if (isRequest(req)) return "pass event.req";
  if (isRequest(inner?.raw) || isRequest(raw)) return "pass c.req.raw";
  if (isRequest(request)) return "pass its `request`";
  const messages = [{ httpVersion }, inner, raw, (node as { req?: unknown } | undefined)?.req];
  return messages.some((message) => (message as typeof inner)?.httpVersion !== undefined)
    ? "for a request of node:http, Express or Fastify use createProxy({ target }).nodeHandler(req, res)"
    : undefined;
}

function isRequest(value: unknown): boolean {
  return typeof value === "object" && value !== null && "clone" in value && "headers" in value;
}

/**
 * Makes sure that the request's body can still be sent.
 * @throws TypeError if it was read already: it would hang or be sent empty
 */
export function assertBodyUnread(request: Request): void {
  if (request.bodyUsed) {
    throw new TypeError(
      "fetchway: the request's body has already been read; proxy before reading it, " +
        "read request.clone() instead, or pass new Request(request.url, { method, headers, body }) without the old content-length",
    );
  }
}

/** Reads a request through the standard interface only. */
export class WebIncoming implements Incoming {
  readonly method: string;
  readonly path: string;
  readonly authority: string;
  readonly secure: boolean;
  readonly headers: HeaderList;
  readonly address: string | undefined;
  readonly body: BodySource | null;
  readonly #request: Request;
  readonly #version: string;

  /**
   * @param headers the request's fields, where they are not those that iteration shows
   * @param body undefined for the request's own
   */
  constructor(
    request: Request,
    address: string | undefined,
    version = "1.1",
    headers: HeaderList = toHeaderList(request.headers),
    body?: BodySource | null,
  ) {
    assertBodyUnread(request);
    const { url, method } = request;
    this.#request = request;
    this.#version = version;
    this.method = method;
    this.path = pathOf(url);
    this.authority = url.slice(url.indexOf("//") + 2, authorityEnd(url));
    this.secure = url.startsWith("https:");
    this.headers = headers;
    this.address = address;
    this.body = body === undefined ? this.#readBody() : body;
  }

  #readBody(): BodySource | null {
    // A web Request has no body with these methods; asking costs a stream on some servers.
    const stream = this.method === "GET" || this.method === "HEAD" ? null : this.#request.body;
    if (stream === null) return null;
    const length = getHeader(this.headers, "content-length");
    if (length !== undefined) return new StreamBody(stream, Number(length));
    const isChunked = getHeader(this.headers, "transfer-encoding") !== undefined;
    return isChunked ? new StreamBody(stream) : new UnframedBody(stream);
  }

  version(): string {
    return this.#version;
  }

  request(): Request {
    return this.#request;
  }

  listen(listener: Listener): void {
    const { signal } = this.#request;
    if (signal.aborted) listener.handleEvent();
    else signal.addEventListener("abort", listener);
  }

  unlisten(listener: Listener): void {
    this.#request.signal.removeEventListener("abort", listener);
  }
}
