import { BytesBody } from "../body/bytes.ts";
import { concat, type ReadMemory, type Release } from "../body/memory.ts";
import { type Inlet, ResponseBody } from "../body/responsebody.ts";
import { type BodySource, pipe, type Sink } from "../body/source.ts";
import {
  badLength,
  badRequest,
  type ProxyError,
  toRequestBodyError,
  unsendable,
} from "../error.ts";
import { isEventStream, type HeaderList } from "../fields/headers.ts";
import { TARGET, TOKEN, UNSENDABLE } from "../fields/token.ts";
import type { UpstreamRequest, UpstreamResponse } from "../transport/message.ts";
import type { Scope } from "../transport/scope.ts";
import { toSocketError } from "../transport/socketerror.ts";
import type { Codec } from "./codec.ts";
import type { Connection, Job } from "./connection.ts";
import type { OriginPool } from "./originpool.ts";
import type { ResponseHead } from "./parser.ts";
import type { Place } from "./queue.ts";
import { SwitchedTunnel } from "./switchedtunnel.ts";

/** Which chunks are freed once they are sent. Where a member is not set, the garbage collector frees them. */
export interface ChunkMemory {
  /** The memory of response bodies. */
  readonly readMemory?: ReadMemory | undefined;
  /** Whether no code but the runtime's own sees the bytes that are written to a connection, so that they may be released. */
  readonly mayRelease?: (connection: Connection) => boolean;
}

const OWN_MEMORY: ChunkMemory = {};

/**
 * One attempt to send a request. The calls follow this order: `begin` asks the pool for a connection, the pool calls
 * `join` with it, and `send` once it is established, and the connection calls `onHead`, `onChunk` and `onEnd` with the response. `fail` may be called at
 * any time.
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
  /** The request body, while it is piped to the connection. */
  #upload: BodySource | undefined;
  #writer: BodyWriter | undefined;
  /** The timer after which the body is sent without a 100 (Continue); undefined if none is expected. */
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
  }

  get connectTimeout(): number | undefined {
    return this.#scope.connectTimeout;
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
    // The request waits in the queue, or for a connection that is being established.
    if (this.#connection?.socket === undefined) this.#scope.listenNow();
  }

  join(connection: Connection): void {
    this.#connection = connection;
    this.#scope.connectionAssigned(connection);
  }

  /** Stops the attempt, however far it has come. */
  fail(thrown: unknown): void {
    // After the end of this attempt, do nothing: its connection may carry another request by then.
    if (this.#isOver) return;
    this.#isOver = true;
    const isStale = this.#connection?.isStale === true;
    const isOpen = this.#connection?.socket !== undefined;
    const error = toSocketError(thrown, this.#isAnswered, isStale, isOpen);
    if (this.place !== undefined) this.#pool?.leave(this);
    this.#connection?.destroy();
    this.#request = undefined;
    this.#stopUpload();
    this.#scope.end();
    this.#reject(error);
    this.#body?.fail(error);
  }

  // ── the request ──

  send(): void {
    const connection = this.#connection as Connection;
    const request = this.#request as UpstreamRequest;
    const { contentLength } = request;
    let { body } = request;
    let bytes: Uint8Array | undefined;
    try {
      bytes = body === null ? undefined : takeWhole(body, contentLength);
    } catch (error) {
      return this.fail(error);
    }
    if (contentLength === undefined && body?.trailers !== undefined && bytes !== undefined) {
      // Only the chunked coding carries trailer fields (RFC 9112 §7.1.2).
      body = new BytesBody(bytes, body.trailers);
      bytes = undefined;
    }
    const piped = bytes === undefined ? body : null;
    const length = piped === null ? (bytes?.byteLength ?? 0) : contentLength;
    const end = writeHeadEnd(this.#method, length, connection.keepAlive, request);
    this.#request = undefined;
    connection.beginRequest(this.#method);
    if (piped === null) return writeWhole(connection, request, end, bytes);
    const written = writeHead(connection.codec, request, end);
    const head = connection.codec.decode(written, 0, written.byteLength);
    this.#upload = piped;
    const expects = piped.awaitsContinue === true;
    const sent = expects ? "" : head;
    this.#writer = new BodyWriter(connection, sent, length, this.#scope, this, this.#memory);
    if (!expects) return pipe(piped, this.#writer);
    connection.write(connection.codec.encode(withExpectation(head)));
    this.#continueTimer = setTimeout(() => this.#continue(), CONTINUE_TIMEOUT);
  }

  /** Sends the body that waits for a 100 (Continue) of the upstream. */
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
   * Cancels a request body that is not sent to its end. The server then reads the rest and drops it, because the client
   * may not read the response before it has sent the whole request. A body of which nothing was sent is left to another
   * attempt.
   */
  #stopUpload(): void {
    if (this.#continueTimer !== undefined) this.#stopWaiting();
    else if (this.#writer?.isOver === false) this.#upload?.cancel();
    this.#upload = undefined;
  }

  // ── the response ──

  /** Whether the client is slow to take the response body. */
  get isPaused(): boolean {
    return this.#body?.isPaused ?? false;
  }

  onInterim(status: number, headers: HeaderList): void {
    if (this.#isOver) return;
    if (status === 100) this.#continue();
    this.#scope.interimReceived(status, headers);
  }

  onHead({ status, statusText, headers, length }: ResponseHead): void {
    this.#isAnswered = true;
    // A final response in place of 100 (Continue) does not need the body (RFC 9110 §10.1.1).
    if (this.#continueTimer !== undefined) this.#stopUpload();
    if (status === 101) {
      // The exchange is over: no deadline applies to the tunnel, and it belongs to the server from here on.
      this.#isOver = true;
      this.#scope.end();
      const connection = this.#connection as Connection;
      const tunnel = new SwitchedTunnel(connection, this.#memory.mayRelease?.(connection));
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
    // The response is complete. Resume reading, although the client is slow: the connection may carry another request.
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

/** The parts of a request that its head begins with. */
type HeadStart = Pick<UpstreamRequest, "method" | "path" | "upstream" | "host" | "headers">;

/**
 * Makes sure that the head of a request can be sent.
 * @throws ProxyError for a method, path or field that cannot be sent unchanged
 */
export function assertHead({ method, path, upstream, host, headers }: HeadStart): void {
  // CONNECT asks for a tunnel, not for a response.
  if (method === "CONNECT" || !TOKEN.test(method)) throw unsendable(method);
  if (!TARGET.test(path)) throw badRequest("path");
  assertField("Host", host ?? upstream.host);
  for (let i = 0; i < headers.length; i += 2) {
    assertField(headers[i] as string, headers[i + 1] as string);
  }
}

function assertField(name: string, value: string): void {
  if (!TOKEN.test(name) || UNSENDABLE.test(value)) throw badRequest(name);
}

const VERSION_AND_HOST = " HTTP/1.1\r\nHost: ";

/**
 * Returns the head of a request that `assertHead` has accepted. Each character is written as a byte at once: the strings
 * between would take several times the memory of the head.
 * @param end the fields that are known only when the request is sent: see `writeHeadEnd`
 * @param room the number of bytes to leave unset behind the head, for a body
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
 * Returns the rest of a head: the message framing, what the request says about trailer fields, and whether the connection
 * is to stay open.
 * @param length the length of the body in bytes, 0 for none; undefined for the chunked coding
 * @param request the parts of the request that end at this connection: trailer fields, and the protocol to switch to
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
  // The field belongs to the connection, and so is named in `Connection` (RFC 9110 §10.1.4).
  if (acceptsTrailers === true) {
    return `${framing}TE: trailers\r\nConnection: ${keepAlive ? "keep-alive" : "close"}, TE\r\n\r\n`;
  }
  return framing + (keepAlive ? KEEP_ALIVE : CLOSE);
}

/**
 * Milliseconds after which a body is sent without a 100 (Continue): not every upstream sends one, and a client must not
 * wait indefinitely (RFC 9110 §10.1.1).
 */
const CONTINUE_TIMEOUT = 1_000;

/** Adds the expectation of a 100 (Continue) to a head. */
function withExpectation(head: string): string {
  return `${head.slice(0, -2)}Expect: 100-continue\r\n\r\n`;
}

function writeFields(list: HeaderList): string {
  let lines = "";
  for (let i = 0; i < list.length; i += 2) {
    const name = list[i] as string;
    const value = list[i + 1] as string;
    assertField(name, value);
    lines += `${name}: ${value}\r\n`;
  }
  return lines;
}

function writeFraming(method: string, length: number | undefined): string {
  if (length === 0) return BODYLESS.test(method) ? "" : "Content-Length: 0\r\n";
  return length === undefined ? "Transfer-Encoding: chunked\r\n" : `Content-Length: ${length}\r\n`;
}

// ── the body of a request ──

/** Chunks up to this number of bytes are copied, so that they are sent in one write with the framing around them. */
const SMALL = 16_384;

/**
 * Returns the bytes of a body if all of them have arrived, and undefined if the body is still arriving.
 * @throws ProxyError for a body that is not as long as its Content-Length, or has failed
 */
export function takeWhole(body: BodySource, contentLength?: number): Uint8Array | undefined {
  const bytes = body.whole();
  const isWrong = contentLength !== undefined && bytes?.byteLength !== contentLength;
  if (bytes !== undefined && isWrong) throw badLength();
  return bytes;
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
  // A small body is copied behind the head, and so sent in the same write.
  const room = length <= SMALL ? length : 0;
  const head = writeHead(connection.codec, request, end, room);
  if (body !== undefined && room > 0) head.set(body, head.byteLength - room);
  connection.write(head);
  if (body !== undefined && room < length) connection.write(body);
}

/** Writes a request chunk by chunk: the head with the first chunk, and the body in its message framing. */
export class BodyWriter implements Sink {
  /** Whether all of the body has been written. */
  isOver = false;
  readonly #connection: Connection;
  readonly #length: number | undefined;
  readonly #scope: Scope;
  readonly #attempt: Pick<Attempt, "fail">;
  readonly #memory: ChunkMemory;
  #head: string;
  /** The number of bytes of the body that have been written. */
  #written = 0;
  /** Whether the source has ended the body: later chunks are dropped. */
  #isEnded = false;

  /**
   * @param head the head, which is sent with the first chunk
   * @param length the length that the head announces; undefined for the chunked coding
   * @param attempt the attempt, which fails if the body cannot be sent as announced
   */
  constructor(
    connection: Connection,
    head: string,
    length: number | undefined,
    scope: Scope,
    attempt: Pick<Attempt, "fail">,
    memory: ChunkMemory,
  ) {
    this.#connection = connection;
    this.#head = head;
    this.#length = length;
    this.#scope = scope;
    this.#attempt = attempt;
    this.#memory = memory;
  }

  get memory(): "borrowed" | "returned" {
    return this.#memory.mayRelease === undefined ? "borrowed" : "returned";
  }

  flush(): void {
    if (this.#head !== "") this.#writeText(this.#takeHead());
  }

  write(chunk: Uint8Array, release?: Release): boolean {
    // In the chunked coding, an empty chunk would end the body (RFC 9112 §7.1), and the upstream would take bytes after
    // the end for the next request.
    if (chunk.byteLength === 0 || this.#isEnded) {
      release?.();
      return true;
    }
    this.#scope.touch();
    this.#written += chunk.byteLength;
    let before = this.#takeHead();
    let after = "";
    if (this.#length === undefined) {
      before += `${chunk.byteLength.toString(16)}\r\n`;
      after = "\r\n";
    } else if (this.#written > this.#length) {
      // The upstream would take the excess for the next request on the connection (RFC 9112 §6.3).
      this.#attempt.fail(badLength());
      release?.();
      return true;
    } else if (this.#written === this.#length) this.#finish();
    return writeFramed(this.#connection, before, chunk, after, release && this.#guard(release));
  }

  /** Returns what a connection calls when it has sent a chunk. */
  #guard(release: Release): Release {
    const mayRelease = this.#memory.mayRelease?.(this.#connection) === true;
    return mayRelease ? release : (error) => release(error ?? SEEN);
  }

  onDrain(callback: () => void): void {
    this.#connection.onceDrained(callback);
  }

  end(trailers?: HeaderList): void {
    if (this.isOver) return;
    this.#isEnded = true;
    if (this.#length !== undefined) return this.#attempt.fail(badLength());
    let section = "";
    try {
      if (trailers !== undefined) section = writeFields(trailers);
    } catch (error) {
      return this.#attempt.fail(error);
    }
    this.#finish();
    this.#writeText(`${this.#takeHead()}0\r\n${section}\r\n`);
  }

  fail(reason: unknown): void {
    if (!this.isOver) this.#attempt.fail(toRequestBodyError(reason));
  }

  #writeText(text: string): void {
    this.#connection.write(this.#connection.codec.encode(text));
  }

  #takeHead(): string {
    const head = this.#head;
    this.#head = "";
    return head;
  }

  #finish(): void {
    this.isOver = true;
    this.#connection.markRequestComplete();
  }
}

/** The reason why the memory of a chunk is not released. Nobody reports it. */
const SEEN = new Error("other code may keep the chunk");

/** Writes bytes between two texts. Up to `SMALL` bytes are copied, and sent together with the texts in one write. */
function writeFramed(
  connection: Connection,
  before: string,
  bytes: Uint8Array,
  after: string,
  release?: Release,
): boolean {
  const { codec } = connection;
  if (before !== "" && bytes.byteLength <= SMALL) {
    return connection.write(concat([codec.encode(before), bytes, codec.encode(after)]), release);
  }
  if (before !== "") connection.write(codec.encode(before));
  const hasRoom = connection.write(bytes, release);
  return after === "" ? hasRoom : connection.write(codec.encode(after));
}
