import { BytesBody } from "../body/bytes.ts";
import { type Inlet, ResponseBody } from "../body/responsebody.ts";
import { type BodySource, mayGoUnread, pipe, takeWhole } from "../body/source.ts";
import { badRequest, bodyStopped, placeError, type ProxyError, unsendable } from "../error.ts";
import { isEventStream, isSendable, type HeaderList } from "../fields/headers.ts";
import { REQUEST_TARGET, TOKEN } from "../fields/token.ts";
import type { Place } from "../transport/claim.ts";
import type { UpstreamRequest, UpstreamResponse } from "../transport/message.ts";
import type { Scope } from "../transport/scope.ts";
import { countTaken } from "../transport/slowclients.ts";
import { toSocketError } from "../transport/socketerror.ts";
import type { Codec } from "./codec.ts";
import type { Connection, Job } from "./connection.ts";
import type { OriginPool } from "./originpool.ts";
import type { ParsedHead } from "./parser.ts";
import { SwitchedTunnel } from "./switchedtunnel.ts";
import { BodyWriter, type ChunkMemory, SMALL_CHUNK } from "./writebody.ts";

/**
 * Milliseconds after which a body is sent without a 100 (Continue): not every upstream sends one, and a client must not
 * wait indefinitely (RFC 9110 §10.1.1).
 */
const CONTINUE_TIMEOUT = 1_000;

const OWN_MEMORY: ChunkMemory = {};

/**
 * One attempt to send a request. The calls follow this order: `begin` asks the pool for a connection. The connection
 * calls `join` when it is assigned to the attempt, `send` once it is established, and `onHead`, `onChunk` and `onEnd`
 * when the response arrives. `fail` may be called at any time.
 */
export class Attempt implements Job, Inlet {
  readonly newConnection: boolean;
  readonly upgrade: string | undefined;
  place: Place | undefined;
  #isOver = false;
  #connection: Connection | undefined;
  #pool: OriginPool | undefined;
  /** The request, until it is sent. */
  #request: UpstreamRequest | undefined;
  readonly #method: string;
  /** The request body, if it is piped to the connection chunk by chunk. */
  #upload: BodySource | undefined;
  #writer: BodyWriter | undefined;
  /** The timer that sends the body without a 100 (Continue); undefined if the body does not wait for a 100. */
  #continueTimer: ReturnType<typeof setTimeout> | undefined;
  /** Whether the response headers have arrived. */
  #isAnswered = false;
  /** The response body, once the response headers have arrived. */
  #body: ResponseBody | undefined;
  readonly #scope: Scope;
  readonly #memory: ChunkMemory;
  readonly #resolve: (response: UpstreamResponse) => void;
  readonly #reject: (error: ProxyError) => void;

  constructor(
    request: UpstreamRequest,
    scope: Scope,
    resolve: (response: UpstreamResponse) => void,
    reject: (error: ProxyError) => void,
    memory: ChunkMemory = OWN_MEMORY,
  ) {
    this.#request = request;
    this.#scope = scope;
    this.#resolve = resolve;
    this.#reject = reject;
    this.#memory = memory;
    this.#method = request.method;
    this.newConnection = request.newConnection ?? false;
    this.upgrade = request.upgrade;
    scope.onAbort(this);
    if (scope.lease?.upstream === request.upstream) scope.lease.attempt = this;
  }

  get connectTimeout(): number | undefined {
    return this.#scope.connectTimeout;
  }

  get clientAddress(): string | undefined {
    return this.#scope.client.clientAddress;
  }

  /** Asks the pool for a connection, after checking that the request can be sent. */
  begin(pool: OriginPool): void {
    // The exchange may have been aborted since the attempt was made.
    if (this.#request === undefined) return;
    this.#pool = pool;
    try {
      assertHead(this.#request);
    } catch (error) {
      return this.fail(error);
    }
    pool.assign(this);
    // If the request must wait, in the queue or for its connection, listen for the client's disconnect now.
    if (this.#connection?.socket === undefined) this.#scope.listenNow();
  }

  join(connection: Connection): void {
    this.#connection = connection;
    this.#scope.connectionAssigned(connection);
  }

  /** Stops the attempt at any stage. */
  fail(thrown: unknown): void {
    // After the end of this attempt, do nothing: its connection may carry another request by then.
    if (this.#isOver) return;
    this.#isOver = true;
    const isStale = this.#connection?.isStale === true;
    const isOpen = this.#connection?.socket !== undefined;
    const error = toSocketError(thrown, this.#isAnswered, isStale, isOpen);
    placeError(error, this.#scope.upstream);
    if (this.place !== undefined) this.#leaveQueue(this.place.since);
    this.#connection?.destroy();
    this.#request = undefined;
    this.#stopUpload();
    this.#scope.end();
    this.#reject(error);
    this.#body?.fail(error);
  }

  /**
   * Returns the error for a time limit that passes while the request is in the queue, or while the upstream waits for the rest
   * of the request body; undefined otherwise. In the queue, the error names the limits of the pool, because the upstream is not
   * at fault.
   */
  explainTimeout(): ProxyError | undefined {
    if (this.place !== undefined) return this.#pool?.explainWait(this.place.since);
    const sent = this.#isAnswered ? undefined : this.clientBytes;
    return sent === undefined ? undefined : bodyStopped(sent);
  }

  // ── `Claim`: which client the request belongs to, its progress, and how to end it if that client is too slow ──

  get clientKey(): string | undefined {
    return this.#scope.client.clientKey;
  }

  get clientBytes(): number | undefined {
    const connection = this.#connection;
    if (this.#isOver || connection === undefined) return undefined;
    if (this.#isAnswered) return countTaken(this.#scope.reader, connection.received);
    const writer = this.#writer;
    const waits = writer !== undefined && !writer.isOver && this.#continueTimer === undefined;
    return waits && connection.hasRoom ? writer.written : undefined;
  }

  endSlow(reason: ProxyError): void {
    this.#scope.abort(reason);
  }

  #leaveQueue(since: number): void {
    this.#pool?.leave(this);
    const { observer } = this.#scope;
    if (observer !== undefined) observer.queued += performance.now() - since;
  }

  // ── the request ──

  send(): void {
    try {
      this.#write(this.#connection as Connection, this.#request as UpstreamRequest);
    } catch (error) {
      // The body has failed, or is not bytes. No caller handles the exception, so it would end the process.
      this.fail(error);
    }
  }

  #write(connection: Connection, request: UpstreamRequest): void {
    const { contentLength } = request;
    let { body } = request;
    let bytes = body === null ? undefined : takeWhole(body, contentLength);
    if (contentLength === undefined && body?.trailers !== undefined && bytes !== undefined) {
      // Send the body in the chunked coding, because no other framing carries trailer fields (RFC 9112 §7.1.2).
      body = new BytesBody(bytes, body.trailers);
      bytes = undefined;
    }
    const piped = bytes === undefined ? body : null;
    const length = piped === null ? (bytes?.byteLength ?? 0) : contentLength;
    if (length !== 0 && mayGoUnread(request)) connection.drain();
    const end = writeHeadEnd(this.#method, length, connection.keepAlive, request);
    this.#request = undefined;
    connection.beginRequest(this.#method);
    if (piped === null) return writeWhole(connection, request, end, bytes);
    this.#upload = piped;
    const expects = piped.awaitsContinue === true;
    const head = writeHead(connection.codec, request, expects ? withExpectation(end) : end);
    const later = expects ? undefined : head;
    this.#writer = new BodyWriter(connection, later, length, this.#scope, this, this.#memory);
    if (!expects) return pipe(piped, this.#writer);
    connection.write(head);
    this.#continueTimer = setTimeout(() => this.#continue(), CONTINUE_TIMEOUT);
  }

  /** Begins to send the body, if it still waits for the upstream's 100 (Continue). */
  #continue(): void {
    if (this.#continueTimer === undefined) return;
    this.#stopWaiting();
    pipe(this.#upload as BodySource, this.#writer as BodyWriter);
  }

  #stopWaiting(): void {
    clearTimeout(this.#continueTimer);
    this.#continueTimer = undefined;
  }

  /**
   * Cancels the request body if only a part of it was sent. The server then reads the rest and drops it, because some
   * clients read the response only after they have sent the whole request. A body that still waits for a 100 (Continue)
   * is not cancelled, so that another attempt can send it.
   */
  #stopUpload(): void {
    if (this.#continueTimer !== undefined) this.#stopWaiting();
    else if (this.#writer?.isOver === false) this.#upload?.cancel();
    this.#upload = undefined;
  }

  // ── the response ──

  /** Whether reading is paused, because the response body is not taken, or not fast enough. */
  get isPaused(): boolean {
    return this.#body?.isPaused ?? false;
  }

  onInterim(status: number, headers: HeaderList): void {
    if (this.#isOver) return;
    if (status === 100) this.#continue();
    this.#scope.interimReceived(status, headers);
  }

  onHead({ status, statusText, headers, length }: ParsedHead): void {
    this.#isAnswered = true;
    // If a final response arrives instead of a 100 (Continue), the upstream does not need the body (RFC 9110 §10.1.1).
    if (this.#continueTimer !== undefined) this.#stopUpload();
    if (status === 101) {
      // End the scope: no deadline applies to the tunnel, which belongs to the server from now on.
      this.#isOver = true;
      this.#scope.end();
      const connection = this.#connection as Connection;
      const tunnel = new SwitchedTunnel(
        connection,
        this.#memory.mayRelease?.(connection),
        this.clientKey,
      );
      return this.#resolve({ status, statusText, headers, body: null, tunnel });
    }
    this.#scope.headersReceived(isEventStream(headers));
    const isBodyless = this.#method === "HEAD" || status === 204 || status === 304;
    const { readMemory } = this.#memory;
    if (!isBodyless) {
      const known = length >= 0 ? length : undefined;
      this.#body = new ResponseBody(this.#scope, this, known, readMemory);
    }
    this.#resolve({ status, statusText, headers, body: this.#body ?? null });
  }

  onChunk(chunk: Uint8Array): void {
    this.#body?.push(chunk);
  }

  onEnd(trailers?: HeaderList): void {
    if (this.#isOver) return;
    this.#isOver = true;
    // The response is complete. Resume reading, even if the client is slow, because the connection may carry another
    // request.
    if (this.isPaused) this.#connection?.resume();
    this.#stopUpload();
    if (this.#body === undefined) this.#scope.end();
    else this.#body.end(trailers);
  }

  cancel(reason: ProxyError): void {
    this.fail(reason);
  }

  pause(): void {
    this.#connection?.pause();
  }

  resume(): void {
    this.#connection?.resume();
  }
}

// ── the head of a request ──

/**
 * Methods for which content has no defined meaning. A request without content has `Content-Length: 0`, except with one of
 * these methods (RFC 9110 §8.6).
 */
const BODYLESS = /^(?:GET|HEAD|DELETE|OPTIONS|TRACE)$/;

/** The parts of a request from which `writeHead` makes the request line and the first header fields. */
type HeadStart = Pick<UpstreamRequest, "method" | "path" | "upstream" | "host" | "headers">;

/**
 * Checks that the head of a request can be sent.
 * @throws ProxyError for a method, path or field that cannot be sent unchanged
 */
export function assertHead({ method, path, upstream, host, headers }: HeadStart): void {
  // A successful response to CONNECT opens a tunnel (RFC 9110 §9.3.6), so CONNECT cannot be sent as a request.
  if (method === "CONNECT" || !TOKEN.test(method)) throw unsendable(method);
  if (!REQUEST_TARGET.test(path)) throw badRequest("path");
  if (!isSendable("Host", host ?? upstream.host)) throw badRequest("Host");
  for (let i = 0; i < headers.length; i += 2) {
    const name = headers[i] as string;
    if (!isSendable(name, headers[i + 1] as string)) throw badRequest(name);
  }
}

const VERSION_AND_HOST = " HTTP/1.1\r\nHost: ";

/**
 * Returns the head of a request that `assertHead` has accepted. Each character is written directly as a byte: intermediate
 * strings would take several times the memory of the head.
 * @param end the fields that are known only when the request is sent: see `writeHeadEnd`
 * @param room the number of bytes to leave unset after the head, for a body
 */
export function writeHead(
  codec: Codec,
  { method, path, upstream, host, headers }: HeadStart,
  end: string,
  room = 0,
): Uint8Array {
  const authority = host ?? upstream.host;
  let length = method.length + path.length + authority.length + VERSION_AND_HOST.length + 3;
  for (let i = 0; i < headers.length; i++) length += (headers[i] as string).length + 2;
  const bytes = codec.allocate(length + end.length + room);
  let at = writeText(bytes, 0, method);
  at = writeText(bytes, at, " ");
  at = writeText(bytes, at, path);
  at = writeText(bytes, at, VERSION_AND_HOST);
  at = writeText(bytes, at, authority);
  at = writeText(bytes, at, "\r\n");
  for (let i = 0; i < headers.length; i += 2) {
    at = writeText(bytes, at, headers[i] as string);
    at = writeText(bytes, at, ": ");
    at = writeText(bytes, at, headers[i + 1] as string);
    at = writeText(bytes, at, "\r\n");
  }
  writeText(bytes, at, end);
  return bytes;
}

/** Writes each character as one byte; returns the index after the text. */
function writeText(bytes: Uint8Array, at: number, text: string): number {
  for (let i = 0; i < text.length; i++) bytes[at + i] = text.charCodeAt(i);
  return at + text.length;
}

const KEEP_ALIVE = "Connection: keep-alive\r\n\r\n";
const CLOSE = "Connection: close\r\n\r\n";

/** The parts of a request that `writeHeadEnd` turns into header fields, besides the message framing. */
type HeadEnd = Pick<UpstreamRequest, "acceptsTrailers" | "trailer" | "upgrade">;

/**
 * Returns the last fields of a head, and the empty line after them: the fields of the message framing, those about
 * trailers or an upgrade, and `Connection`.
 * @param length the length of the body in bytes, 0 for none; undefined for the chunked coding
 * @param request the fields about trailers, and the protocol to switch to, which concern only this connection
 */
export function writeHeadEnd(
  method: string,
  length: number | undefined,
  keepAlive: boolean,
  { acceptsTrailers, trailer, upgrade }: HeadEnd = {},
): string {
  let framing = writeFraming(method, length);
  if (upgrade !== undefined) {
    return `${framing}Connection: Upgrade\r\nUpgrade: ${upgrade}\r\n\r\n`;
  }
  if (length === undefined && trailer !== undefined) framing += `Trailer: ${trailer}\r\n`;
  // `TE` concerns only this connection, so `Connection` names it (RFC 9110 §10.1.4).
  if (acceptsTrailers === true) {
    return `${framing}TE: trailers\r\nConnection: ${keepAlive ? "keep-alive" : "close"}, TE\r\n\r\n`;
  }
  return framing + (keepAlive ? KEEP_ALIVE : CLOSE);
}

/** Adds `Expect: 100-continue` to the end of a head. */
function withExpectation(end: string): string {
  return `${end.slice(0, -2)}Expect: 100-continue\r\n\r\n`;
}

function writeFraming(method: string, length: number | undefined): string {
  if (length === 0) return BODYLESS.test(method) ? "" : "Content-Length: 0\r\n";
  return length === undefined ? "Transfer-Encoding: chunked\r\n" : `Content-Length: ${length}\r\n`;
}

/** Writes a request that has no body, or whose body has arrived as a whole. */
export function writeWhole(
  connection: Connection,
  request: HeadStart,
  end: string,
  body: Uint8Array | undefined,
): void {
  connection.markRequestComplete();
  const length = body?.byteLength ?? 0;
  // A small body is copied after the head, so that both are sent in one write.
  const room = length <= SMALL_CHUNK ? length : 0;
  const head = writeHead(connection.codec, request, end, room);
  if (body !== undefined && room > 0) head.set(body, head.byteLength - room);
  connection.write(head);
  if (body !== undefined && room < length) connection.write(body);
}
