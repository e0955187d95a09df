import type { IncomingMessage, ServerResponse } from "node:http";
import type { Http2ServerResponse } from "node:http2";
import type { Socket } from "node:net";
import type { Release } from "../../src/body/memory.ts";
import { type BodySource, pipe, type Sink, type WholeOptions } from "../../src/body/source.ts";
import { StreamBody } from "../../src/body/stream.ts";
import {
  getHeader,
  type HeaderList,
  showHeaders,
  takeHeaders,
  toHeaderList,
} from "../../src/fields/headers.ts";
import { namesOf } from "../../src/fields/trailers.ts";
import type { Incoming } from "../../src/request/incoming.ts";
import type { UpstreamRequest, UpstreamResponse } from "../../src/transport/message.ts";
import type { Tunnel } from "../../src/transport/tunnel.ts";
import { checkAnswer } from "../../src/websocket/handshake.ts";
import { LARGE } from "./chunkmemory.ts";
import { breakOff, breakOffRequest } from "./internals/breakoff.ts";
import { sendFromSrvx, sendHeadWithBody, toFields, writeForServer } from "./internals/hono.ts";
import { responseOn } from "./internals/pipelining.ts";
import {
  acceptsOwnResponses,
  findNatives,
  type SrvxBody,
  type SrvxParts,
  SrvxResponse,
} from "./internals/srvx.ts";
import { countUntaken } from "./internals/untaken.ts";
import { isUnwrappedResponse } from "./internals/wrapped.ts";
import { toLazyStream } from "./lazystream.ts";
import { messageOf, responseOf } from "./nodeincoming.ts";
import { unanswered } from "./routed.ts";
import { announceTrailers, sendTrailers, sendTrailersOf } from "./trailerframing.ts";

/** The head of a response to send. */
export interface Head {
  readonly status: number;
  readonly statusText: string;
  readonly headers: HeaderList;
  /** The names of the trailer fields to announce. */
  readonly trailer?: string | undefined;
}

/** The parts of a response to send. */
export interface Parts extends Head {
  readonly body: BodySource | null;
  /** The tunnel of a 101. */
  readonly tunnel?: Tunnel | undefined;
}

/** The bytes may be borrowed, because Node's response only reads them. */
const BORROWED: WholeOptions = { memory: "borrowed" };

/** Writes a body to Node's response. */
class PipedBody implements Sink, SrvxBody {
  readonly #body: BodySource;
  readonly #head: Head;
  #res!: ServerResponse;
  #onDrain: (() => void) | undefined;
  #isListening = false;

  /** @param head the head, which is written before the body */
  constructor(body: BodySource, head: Head) {
    this.#body = body;
    this.#head = head;
  }

  /** Called by srvx, normally after it has written the head. */
  pipe(res: ServerResponse): void {
    if (!res.headersSent) writeHeadTo(res, this.#head);
    this.send(res);
  }

  /** Sends the body after the head, and ends the response. */
  send(res: ServerResponse): void {
    const body = this.#body;
    this.#res = res;
    // If the whole body has arrived, write it and the end in one call, unless it has failed, or its memory is large and can be
    // freed once it is sent.
    const isReturned = (body.buffered ?? 0) >= LARGE && this.memory === "returned";
    const bytes = isReturned || body.error !== undefined ? undefined : body.whole(BORROWED);
    if (bytes !== undefined) {
      if (body.trailers !== undefined) sendTrailers(res, body.trailers);
      return void res.end(bytes);
    }
    // A body without `buffered`, such as a web stream that the app has made, does not show whether chunks have arrived:
    // send the head now. Nothing else cancels that body when the client disconnects, so do it here.
    if (body.buffered === undefined) {
      this.flush();
      res.on("close", () => body.cancel());
    }
    pipe(body, this);
  }

  /** Cancels the body, because the client has disconnected, or has sent HEAD. */
  destroy(): void {
    this.#body.cancel();
  }

  get memory(): "borrowed" | "returned" {
    return isUnwrappedResponse(this.#res) ? "returned" : "borrowed";
  }

  get unsent(): number {
    return countUntaken(this.#res);
  }

  flush(): void {
    flushHead(this.#res, this.#head.headers);
  }

  write(chunk: Uint8Array, release?: Release): boolean {
    return release === undefined ? this.#res.write(chunk) : this.#res.write(chunk, release);
  }

  onDrain(callback: () => void): void {
    this.#onDrain = callback;
    if (this.#isListening) return;
    this.#isListening = true;
    this.#res.on("drain", () => this.#onDrain?.());
  }

  end(trailers?: HeaderList): void {
    if (trailers !== undefined) sendTrailers(this.#res, trailers);
    this.#res.end();
  }

  fail(): void {
    breakOff(this.#res);
  }
}

/**
 * A `Response` that makes its web objects only when other code reads them.
 *
 * srvx's server calls `_toNodeResponse()`, and lets the body write itself. If other code has read `headers` or `body` before,
 * these are real web objects, and they are sent with the changes that the code has made.
 */
class LazyResponse extends SrvxResponse {
  readonly #received: UpstreamResponse;
  readonly #message: IncomingMessage | undefined;
  #headers: Headers | undefined;
  #real: Response | undefined;

  constructor(received: UpstreamResponse, message: IncomingMessage | undefined) {
    super();
    this.#received = received;
    this.#message = message;
  }

  get status(): number {
    return this.#received.status;
  }
  get statusText(): string {
    return this.#received.statusText;
  }
  get ok(): boolean {
    return this.status >= 200 && this.status < 300;
  }
  get headers(): Headers {
    return (this.#headers ??= showHeaders(this.#received.headers));
  }
  get type(): ResponseType {
    return "default";
  }
  get url(): string {
    return "";
  }
  get redirected(): boolean {
    return false;
  }
  get body(): ReadableStream<Uint8Array> | null {
    return this.#received.body === null ? null : this.#response.body;
  }
  get bodyUsed(): boolean {
    return this.#real?.bodyUsed ?? false;
  }
  text(): Promise<string> {
    return this.#response.text();
  }
  json(): Promise<unknown> {
    return this.#response.json();
  }
  arrayBuffer(): Promise<ArrayBuffer> {
    return this.#response.arrayBuffer();
  }
  bytes(): Promise<Uint8Array> {
    return this.#response.bytes();
  }
  blob(): Promise<Blob> {
    return this.#response.blob();
  }
  formData(): Promise<FormData> {
    return this.#response.formData();
  }
  clone(): Response {
    const { body } = this.#response.clone();
    return new (findNatives().Response)(body, this);
  }

  protected toSrvxParts(): SrvxParts {
    const { status, statusText, body, trailer } = this.#received;
    const headers = this.#list;
    const isAnnounced = trailer !== undefined && this.#message !== undefined;
    const fields = isAnnounced ? announceTrailers(headers, trailer, this.#message) : headers;
    const parts: SrvxParts = { status, statusText, headers: fields, body: null };
    if (this.#real !== undefined) parts.body = this.#real.body;
    else if (body !== null) parts.body = new PipedBody(body, parts);
    return parts;
  }

  /** Returns the parts to send, for `partsOf`. */
  toParts(): Parts {
    const { status, statusText, body, tunnel, trailer } = this.#received;
    const headers = this.#list;
    if (this.#real === undefined) return { status, statusText, headers, body, tunnel, trailer };
    const stream = this.#real.body;
    return { status, statusText, headers, body: stream && new StreamBody(stream), trailer };
  }

  /** The header fields, with the changes of other code. */
  get #list(): HeaderList {
    return this.#headers === undefined ? this.#received.headers : takeHeaders(this.#headers);
  }

  get #response(): Response {
    // The real response gets a copy of the fields, which is not sent: the fields in `this.headers` are sent.
    return (this.#real ??= new (findNatives().Response)(
      toBodyInit(this.#received.body, this.#message),
      this,
    ));
  }
}

/** A response that writes itself to its HTTP/2 stream when srvx's server asks for its parts. */
class StreamedResponse extends LazyResponse {
  readonly #send: (parts: Parts) => void;

  constructor(received: UpstreamResponse, message: IncomingMessage, send: (parts: Parts) => void) {
    super(received, message);
    this.#send = send;
  }

  protected override toSrvxParts(): SrvxParts {
    const parts = this.toParts();
    this.#send(parts);
    return { ...parts, body: SENT };
  }
}

/** The body of a response that was sent already: srvx's server then writes neither a head nor a body. */
const SENT: SrvxBody = { pipe() {}, destroy() {} };

let http2Response: typeof import("./http2response.ts") | undefined;

/** Loads the code that sends HTTP/2 responses when the first of them is sent: HTTP/1.1 servers never need it. */
async function loadHttp2Response(res: object): Promise<(parts: Parts) => void> {
  // Keep the module: `import()` takes a while, even if the module is loaded already.
  const { sendOnStream } = (http2Response ??= await import("./http2response.ts"));
  return ({ status, headers, body, trailer }) => {
    const response = res as Http2ServerResponse;
    const own = trailer === undefined ? headers : [...headers, "trailer", trailer];
    // `stream.respond` does not send the fields that other code has set on the response object, so add them.
    const fields = addEarlier(response, response.getHeaderNames(), own);
    // `stream.respond` does not call the methods of the response by which a routed upgrade (routeupgrade.ts) learns of the
    // head, so pass the head to the upgrade here.
    const upgrade = unanswered.size > 0 ? unanswered.get(response.req.rawHeaders) : undefined;
    if (upgrade?.answer(status, fields) === true) return;
    sendOnStream(response, status, fields, body);
  };
}

/** Returns the first argument for the constructor of a web `Response`. */
function toBodyInit(
  body: BodySource | null,
  message: IncomingMessage | undefined,
): BodyInit | null {
  if (body === null) return null;
  return (wholeOf(body, message) as BodyInit | undefined) ?? streamOf(body, true, message);
}

/** Returns the bytes of a body, if all have arrived and no trailer fields have to be sent after them. */
function wholeOf(body: BodySource, message: IncomingMessage | undefined): Uint8Array | undefined {
  const hasTrailers = message !== undefined && body.trailers !== undefined;
  return body.error === undefined && !hasTrailers ? body.whole() : undefined;
}

/**
 * Returns the web stream of a body.
 * @param flush whether the stream begins with an empty chunk if no other chunk has arrived
 * @param message Node's request, whose connection is closed if the stream fails
 * @param isLazy whether the body is taken only when the stream is read
 */
function streamOf(
  body: BodySource,
  flush: boolean,
  message: IncomingMessage | undefined,
  isLazy = false,
): ReadableStream<Uint8Array> {
  const onFail = message && ((): void => breakOffRequest(message));
  const onTrailers = message && ((fields: HeaderList): void => sendTrailersOf(message, fields));
  const options = { flush, onFail, onTrailers };
  return isLazy ? toLazyStream(body, options) : body.stream(options);
}

/**
 * Returns the response for the server that has received the request: a `LazyResponse` if that server can send it.
 * @throws ProxyError if the body has failed already
 */
export function respond(
  received: UpstreamResponse,
  incoming: Incoming,
  request?: UpstreamRequest,
): Response | Promise<Response> {
  assertIntact(received);
  const message = messageOf(incoming);
  if (received.tunnel !== undefined) return respondSwitched(received, message, request);
  const res = responseOf(incoming);
  if (res !== undefined && acceptsOwnResponses()) {
    if (message !== undefined && message.httpVersionMajor !== 1 && "stream" in message) {
      return loadHttp2Response(res).then(
        (send) => new StreamedResponse(received, message, send) as unknown as Response,
      );
    }
    return new LazyResponse(received, message) as unknown as Response;
  }
  return build(received, message, res !== undefined);
}

/**
 * Returns the response that opens a tunnel. No web `Response` can have the status 101, so the proxy writes the 101 itself.
 * @throws ProxyError 502 for a 101 of the upstream that is not a valid answer to the WebSocket handshake
 */
async function respondSwitched(
  received: UpstreamResponse,
  message: IncomingMessage | undefined,
  request: UpstreamRequest | undefined,
): Promise<Response> {
  if (request?.upgrade === "websocket") await checkAnswer(received.headers, request.headers);
  return new LazyResponse(received, message) as unknown as Response;
}

function assertIntact({ body }: UpstreamResponse): void {
  if (body?.error !== undefined) throw body.error;
}

/**
 * Builds a web `Response`, whose body is bytes or a stream (see `buildBody`).
 * @param isForSrvx whether srvx's server has received the request, and another server has replaced the global `Response`
 */
function build(
  received: UpstreamResponse,
  message: IncomingMessage | undefined,
  isForSrvx: boolean,
): Response {
  const { status, statusText, body } = received;
  const headers = message === undefined ? received.headers : frameForTrailers(received, message);
  const head: Head = { status, statusText, headers };
  const response = buildBody(body, head, message);
  if (isForSrvx && message?.httpVersionMajor === 1) sendFromSrvx(response, head);
  return response;
}

function buildBody(
  body: BodySource | null,
  head: Head,
  message: IncomingMessage | undefined,
): Response {
  if (body === null) return toResponse(null, head, message);
  // A large body should write itself: if it were bytes that other code can read, its memory could not be freed.
  const writes = (body.buffered ?? 0) >= LARGE && message?.httpVersionMajor === 1;
  const bytes = writes ? undefined : wholeOf(body, message);
  return bytes === undefined
    ? buildStreamed(body, head, message)
    : toResponse(bytes as BodyInit, head, message);
}

function toResponse(
  content: BodyInit | null,
  { status, statusText, headers }: Head,
  message: IncomingMessage | undefined,
): Response {
  const hasLines = message?.httpVersionMajor === 1;
  return new Response(content, { status, statusText, headers: toFields(headers, hasLines) });
}

const EMPTY = new Uint8Array();

/**
 * Sends the head of a response before any chunk of its body has arrived.
 *
 * - Rests on: `flushHeaders()` encodes a head as UTF-8, which changes bytes above 0x7f. A head that is sent with the first
 *   chunk, even an empty one, is encoded as latin1.
 * - Check: `hasObsText` looks for such bytes, so that no other head depends on this.
 * - Otherwise: the head is sent by `flushHeaders()`, which Node documents. An empty chunk would not make middleware that
 *   compresses send the head, because such middleware sends nothing before a chunk that is not empty.
 * - Test: test/runtimes/node/noderesponse.flushhead.test.ts.
 */
export function flushHead(res: ServerResponse, headers: HeaderList): void {
  if (hasObsText(headers)) res.write(EMPTY);
  else res.flushHeaders();
}

/** Whether header fields contain bytes above 0x7f (`obs-text`, RFC 9110 §5.5). */
function hasObsText(headers: HeaderList): boolean {
  return headers.some((text) => /[\u0080-\u00ff]/.test(text));
}

/** Builds a `Response` with a stream. As long as no code reads the stream, the body may write itself to Node's response. */
function buildStreamed(
  body: BodySource,
  head: Head,
  message: IncomingMessage | undefined,
): Response {
  // Node encodes a head that is sent without a body chunk as UTF-8, which changes bytes above 0x7f (`obs-text`). So make the
  // server send the head with the first chunk.
  if (hasObsText(head.headers)) {
    const response = toResponse(streamOf(body, true, message), head, message);
    sendHeadWithBody(response);
    return response;
  }
  if ((body.buffered ?? 0) > 0) joinWrites(message?.socket);
  if (message === undefined) return toResponse(streamOf(body, false, message), head, message);
  const stream = streamOf(body, false, message, true);
  const response = toResponse(stream, head, message);
  writeForServer(response, stream, () => writeBehindHead(body, head, message));
  return response;
}

/**
 * Writes a body to Node's response, if the server has written the head.
 * @returns whether the body is written to that response
 */
function writeBehindHead(body: BodySource, head: Head, message: IncomingMessage): boolean {
  // A response on an HTTP/2 stream, or behind another pipelined response, is not found: the server then reads the stream.
  const res = message.httpVersionMajor === 1 ? responseOn(message.socket) : undefined;
  if (!res?.headersSent || res.req.rawHeaders !== message.rawHeaders) return false;
  new PipedBody(body, head).send(res);
  return true;
}

/**
 * Corks a connection until the next tick, so that the head of a response and the first chunk leave in one write. Node's
 * server corks connections in the same way for chunked bodies.
 */
function joinWrites(socket: Partial<Socket> | undefined): void {
  // The sockets of test tools that use no server have no `cork`.
  if (socket?.cork === undefined) return;
  socket.cork();
  process.nextTick(uncork, socket);
}

function uncork(socket: Socket): void {
  socket.uncork();
}

/**
 * Returns the fields of a response that a server writes from a web stream. If they announce trailer fields, they also ask for
 * chunked coding. Otherwise the server would compute the length of a small body, and Node throws for `Trailer` beside
 * `Content-Length`.
 */
function frameForTrailers(
  { headers, body, trailer }: UpstreamResponse,
  message: IncomingMessage,
): HeaderList {
  const names = trailer ?? (body?.trailers && namesOf(body.trailers));
  if (names === undefined) return headers;
  const announced = announceTrailers(headers, names, message);
  return announced === headers ? headers : [...announced, "Transfer-Encoding", "chunked"];
}

/** Returns the parts of a web `Response` that are to be sent. */
export function partsOf(response: Response): Parts {
  return response instanceof LazyResponse
    ? response.toParts()
    : { ...headOf(response), body: response.body && new StreamBody(response.body) };
}

/**
 * Sends a web `Response` as Node's response.
 * @returns a promise for a response on an HTTP/2 stream
 * @throws the error of `res.writeHead` for fields that a hook has made invalid
 */
export function sendResponse(response: Response, res: ServerResponse): void | Promise<void> {
  return sendParts(partsOf(response), res);
}

/**
 * Sends a response's parts as Node's response.
 * @returns a promise for a response on an HTTP/2 stream
 * @throws the error of `res.writeHead` for invalid fields
 */
export function sendParts(parts: Parts, res: ServerResponse): void | Promise<void> {
  const { body } = parts;
  if (res.destroyed || res.headersSent) return body?.cancel();
  // Only HTTP/2 responses have a `stream`. Do not ask for the version, which the responses of test tools may lack.
  if ("stream" in res) return loadHttp2Response(res).then((send) => send(parts));
  try {
    writeHeadTo(res, parts);
  } catch (error) {
    body?.cancel();
    forgetHead(res, parts.headers);
    throw error;
  }
  if (body === null) return void res.end();
  // Node drops the body of a response to HEAD, so do not read it: it may have no end.
  if (res.req.method === "HEAD") {
    body.cancel();
    return void res.end();
  }
  new PipedBody(body, parts).send(res);
}

/**
 * Removes what a `writeHead` that has thrown has already taken from a head. Otherwise, the error response that follows would
 * have the `Content-Length` of a body that is never sent, and the client would take the next response for that body.
 */
function forgetHead(res: ServerResponse, headers: HeaderList): void {
  for (let i = 0; i < headers.length; i += 2) {
    if (res.hasHeader(headers[i] as string)) res.removeHeader(headers[i] as string);
  }
  // Node remembers the length even if it has stored no fields, and forgets it by this call.
  res.removeHeader("content-length");
  // Removing `Date`, as `writeHead` may do as well, switches off the server's own.
  res.sendDate = true;
  res.statusMessage = "";
}

function writeHeadTo(res: ServerResponse, head: Head): void {
  const { status, statusText, trailer } = head;
  // `writeHead` keeps the fields that were set before, and replaces those with the same name. Cookies must not be replaced.
  const plain = res.hasHeader("set-cookie")
    ? addEarlier(res, ["set-cookie"], head.headers)
    : head.headers;
  const headers = trailer === undefined ? plain : announceTrailers(plain, trailer, res.req);
  // HTTP/2 has no reason phrase (RFC 9113 §8.3.2).
  if ("stream" in res) res.writeHead(status, headers);
  else res.writeHead(status, statusText, headers);
}

/**
 * Adds fields that middleware has set on Node's response before the call of the proxy. The upstream's value replaces an earlier
 * one, except for `Set-Cookie`, whose lines each set a separate cookie. The earlier lines come first, because a client keeps
 * the last of two cookies with the same name, domain and path (RFC 6265 §5.3), and that should be the upstream's.
 * @param names the fields to add, in lower case
 */
function addEarlier(
  res: Pick<ServerResponse, "getHeader">,
  names: readonly string[],
  headers: HeaderList,
): HeaderList {
  const earlier: HeaderList = [];
  for (const name of names) {
    const value = res.getHeader(name);
    const isCookie = name === "set-cookie";
    if (value === undefined || (!isCookie && getHeader(headers, name) !== undefined)) continue;
    const lines = Array.isArray(value) ? value : [String(value)];
    // Node writes all lines of a field with the name of the first: with `name`, the upstream's `Set-Cookie` would be in lower
    // case.
    for (const line of lines) earlier.push(isCookie ? "Set-Cookie" : name, line);
  }
  return earlier.length === 0 ? headers : [...earlier, ...headers];
}

function headOf(response: Response): Head {
  const { status, statusText } = response;
  return { status, statusText, headers: toHeaderList(response.headers) };
}
