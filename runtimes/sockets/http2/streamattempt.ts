import type { ClientHttp2Stream, IncomingHttpHeaders } from "node:http2";
import { ResponseBody, type Inlet } from "../../../src/body/responsebody.ts";
import { type BodySource, pipe, type Sink, takeWhole } from "../../../src/body/source.ts";
import {
  badLength,
  bodyStopped,
  placeError,
  ProxyError,
  type ProxyErrorCode,
  toRequestBodyError,
} from "../../../src/error.ts";
import { getHeader, isEventStream, type HeaderList } from "../../../src/fields/headers.ts";

import type { AttemptArguments } from "../../../src/http1/client.ts";
import type { QueuedJob } from "../../../src/http1/queue.ts";
import { SwitchedTunnel } from "../../../src/http1/switchedtunnel.ts";
import type { Account, Claim, Holder, Place } from "../../../src/transport/claim.ts";
import { Deadline } from "../../../src/transport/deadline.ts";
import type { UpstreamRequest, UpstreamResponse } from "../../../src/transport/message.ts";
import { MAX_INTERIM, type Scope } from "../../../src/transport/scope.ts";
import { countTaken } from "../../../src/transport/slowclients.ts";
import { assertKey, toSwitch } from "../../../src/websocket/extendedconnect.ts";
import { bufferMemory } from "../buffercodec.ts";
import type { Http2Connection } from "./http2connection.ts";
import { toStreamError } from "./http2errors.ts";
import {
  fromHttp2Fields,
  sendFieldObject,
  sendFields,
  toHttp2Fields,
  toRegularFields,
} from "./http2fields.ts";
import { isWhole, watchEnd } from "./streamend.ts";
import { resetLater, resetStream, TunnelStream } from "./tunnelstream.ts";

const TIMEOUTS: ReadonlySet<ProxyErrorCode> = new Set<ProxyErrorCode>([
  "http_response_timeout",
  "connection_read_timeout",
]);
/** The flag of a frame that is the last of its stream (RFC 9113 §6.1). */
const END_STREAM = 1;
/** Milliseconds for which an upstream may keep a stream open after the last byte of the response body. */
const END_TIMEOUT = 5000;

/**
 * The key under which a stream holds its attempt until the stream is closed. The listeners of the stream find the attempt
 * there. If the listeners referred to the attempt itself, the attempt and its whole exchange would stay in memory with the
 * closed stream: `node:http2` has the streams of a session in a `Map`, whose earlier tables V8 keeps in memory (see `watched`
 * in nodeincoming.ts).
 */
const ATTEMPT = Symbol("attempt");

type AttemptStream = ClientHttp2Stream & { [ATTEMPT]?: StreamAttempt | undefined };

/** The members of a pool that its attempts call. */
export interface StreamPool {
  /** Sends an attempt on a connection, as soon as one has room. */
  assign(attempt: StreamAttempt): void;
  /** Removes an attempt that waits for a connection. */
  leave(attempt: StreamAttempt): void;
  /** Returns the error for an attempt whose time limit passes while it waits for a connection. */
  explainWait(since: number): ProxyError;
  /** Counts the place of an attempt as free, if the place was counted as taken before. */
  freePlace(attempt: StreamAttempt): void;
  /** Sends a request over HTTP/1.1: the upstream has chosen HTTP/1.1, or takes WebSockets only over HTTP/1.1. */
  sendOverHttp1(...attempt: AttemptArguments): void;
}

/**
 * One attempt to send a request on an HTTP/2 stream. The calls follow this order: `begin` asks the pool for a connection; then
 * the pool calls `sendOn` with the connection, or `sendOverHttp1` if the request must go over HTTP/1.1. `fail` may be called at
 * any time.
 */
export class StreamAttempt implements QueuedJob, Holder, Inlet {
  /** Whether the request needs a new connection. */
  readonly isFresh: boolean;
  /** The protocol that an extended CONNECT asks for (RFC 8441); undefined for an ordinary request. */
  readonly upgrade: string | undefined;
  place: Place | undefined;
  account: Account | undefined;
  #isOver = false;
  #pool: StreamPool | undefined;
  #connection: Http2Connection<StreamAttempt> | undefined;
  #stream: ClientHttp2Stream | undefined;
  /** The request, until it is sent. */
  #request: UpstreamRequest | undefined;
  /** The header fields of a request for a WebSocket. */
  #handshake: HeaderList | undefined;
  /** The request body, while it is piped to the stream. */
  #upload: BodySource | undefined;
  /** Whether the whole request body was written, or our direction of the tunnel was ended. */
  #isUploaded = true;
  /** The trailer fields of the request; undefined for none. */
  #requestTrailers: HeaderList | undefined;
  /** The callbacks that wait until the stream has room for more bytes; undefined for none. */
  #callbacks: (() => void)[] | undefined;
  /** The connection's `activity` when the request was sent. */
  #activityBefore = 0;
  /** The number of interim responses so far. */
  #interim = 0;
  #isAnswered = false;
  /**
   * The time limit of this attempt for opening its connection, if the connection itself has another limit; later, the time limit
   * for END_STREAM.
   */
  #deadline: Deadline | undefined;
  #body: ResponseBody | undefined;
  /** The tunnel, once the upstream has accepted a WebSocket. */
  #tunnel: SwitchedTunnel | undefined;
  /** The response, held back while its first chunks may still arrive with its headers. */
  #held: UpstreamResponse | undefined;
  /** Chunks that the runtime has emitted before the response headers, as Deno does. */
  #early: Uint8Array[] | undefined;
  /** The number of bytes of the response body that have yet to arrive; undefined where it is not known. */
  #bytesLeft: number | undefined;
  /** The number of bytes of the response body that have arrived. */
  #received = 0;
  /** The sink that writes the request body to the stream; undefined for a body that has arrived as a whole. */
  #writer: StreamUpload | undefined;
  #trailers: HeaderList | undefined;
  /** Whether trailer fields may follow the response body. */
  #expectsTrailers: boolean;
  readonly #method: string;
  readonly #scope: Scope;
  readonly #resolve: (response: UpstreamResponse) => void;
  readonly #reject: (error: ProxyError) => void;

  constructor(
    request: UpstreamRequest,
    scope: Scope,
    resolve: (response: UpstreamResponse) => void,
    reject: (error: ProxyError) => void,
  ) {
    this.#request = request;
    this.#method = request.method;
    this.#expectsTrailers = request.acceptsTrailers === true;
    this.#scope = scope;
    this.#resolve = resolve;
    this.#reject = reject;
    this.isFresh = request.newConnection ?? false;
    this.upgrade = request.upgrade;
    scope.onAbort(this);
    if (scope.lease?.upstream === request.upstream) scope.lease.attempt = this;
  }

  /** Asks the pool for a connection. */
  begin(pool: StreamPool): void {
    // The exchange may have been aborted since the attempt was made.
    if (this.#request === undefined) return;
    this.#pool = pool;
    pool.assign(this);
    // A request that waits, in the queue or for its connection, must not be sent if the client disconnects meanwhile.
    if (this.#request !== undefined) this.#scope.listenNow();
  }

  /** The number of the stream; 0 until the request is sent. */
  get streamId(): number {
    return this.#stream?.id ?? 0;
  }

  /**
   * Returns the error for a time limit that passes while the request waits for a connection, or while the upstream waits for
   * the rest of the request body; undefined otherwise. In both cases, the upstream is not at fault.
   */
  explainTimeout(): ProxyError | undefined {
    if (this.place !== undefined) return this.#pool?.explainWait(this.place.since);
    const sent = this.#isAnswered ? undefined : this.clientBytes;
    return sent === undefined ? undefined : bodyStopped(sent);
  }

  // ── the members by which the queue divides places fairly among clients ──

  get claim(): Claim | undefined {
    return this.#isOver ? this.#tunnel : this;
  }

  get clientKey(): string | undefined {
    return this.#scope.client.clientKey;
  }

  get clientBytes(): number | undefined {
    const stream = this.#stream;
    if (this.#isOver || stream === undefined) return undefined;
    if (this.#isAnswered) return countTaken(this.#scope.reader, this.#received);
    const waits = !this.#isUploaded && !stream.writableNeedDrain;
    return waits ? this.#writer?.written : undefined;
  }

  endSlow(reason: ProxyError): void {
    this.#scope.abort(reason);
  }

  get isTunnel(): boolean {
    return this.#tunnel !== undefined;
  }

  /** Whether the stream may be silent for any time: the client is slow to take the response body, or the stream is a tunnel. */
  get isPaused(): boolean {
    return this.isTunnel || (this.#body?.isPaused ?? false);
  }

  get connectTimeout(): number | undefined {
    return this.#scope.connectTimeout;
  }

  /**
   * Sets the connection that this attempt waits for or uses.
   * @param limit the pool's time limit for opening a connection in milliseconds, for an attempt without its own
   */
  join(connection: Http2Connection<StreamAttempt>, limit: number): void {
    this.#connection = connection;
    connection.attempts.push(this);
    const { connectTimeout = limit } = this;
    // The time limit of the connection comes from the request that began to open it, and may be longer than this attempt's own
    // limit.
    if (connection.isOpen || connectTimeout === 0 || connectTimeout === connection.connectTimeout) {
      return;
    }
    this.#deadline = new Deadline(connectTimeout, () =>
      this.fail(new ProxyError("connection_timeout")),
    );
  }

  /** Leaves a connection on which this attempt was not sent. */
  leaveConnection(): void {
    this.#deadline?.clear();
    this.#connection?.remove(this);
    this.#connection = undefined;
  }

  /** Ends the attempt with an error. May be called at any time. */
  fail(thrown: unknown): void {
    if (this.#isOver) return this.#breakOff(thrown);
    const connection = this.#connection;
    const isStale = connection?.isReused === true && connection.activity === this.#activityBefore;
    const error = toStreamError(
      thrown,
      this.#stream?.rstCode,
      this.#isAnswered,
      isStale,
      this.#stream !== undefined,
    );
    placeError(error, this.#scope.upstream);
    this.#isOver = true;
    this.#deadline?.clear();
    // After a refused stream or a timeout, send no further request on this connection. If the upstream refuses a
    // stream, the connection is overloaded or about to be closed. If the connection is silent, it may be broken, or
    // busy with frames that belong to no response.
    if (error.unprocessed) connection?.drain();
    else if (TIMEOUTS.has(error.code)) connection?.distrust();
    if (this.place !== undefined) this.#leaveQueue(this.place.since);
    if (this.account !== undefined) this.#pool?.freePlace(this);
    this.#closeStream();
    this.#request = undefined;
    this.#stopUpload();
    this.#scope.end();
    this.passOn();
    this.#reject(error);
    this.#body?.fail(error);
  }

  #leaveQueue(since: number): void {
    this.#pool?.leave(this);
    const { observer } = this.#scope;
    if (observer !== undefined) observer.queued += performance.now() - since;
  }

  // ── the request ──

  /** Sends the request over HTTP/1.1 instead, in a new attempt. */
  sendOverHttp1(pool: StreamPool): void {
    const request = this.#request as UpstreamRequest;
    this.#request = undefined;
    this.#isOver = true;
    if (this.account !== undefined) pool.freePlace(this);
    pool.sendOverHttp1(request, this.#scope, this.#resolve, this.#reject);
  }

  /** Sends the request on an open connection that has room for it. */
  sendOn(connection: Http2Connection<StreamAttempt>): void {
    const request = this.#request as UpstreamRequest;
    const { body, contentLength } = request;
    let stream: ClientHttp2Stream;
    let bytes: Uint8Array | undefined;
    let isPiped: boolean;
    let waitForTrailers: boolean;
    connection.recordRequest();
    this.#scope.connectionAssigned(connection);
    this.#activityBefore = connection.activity;
    const isUpgrade = this.upgrade !== undefined;
    try {
      if (isUpgrade) assertKey(request.headers);
      bytes = body === null ? undefined : takeWhole(body, contentLength);
      isPiped = body !== null && bytes === undefined;
      // HTTP/2 delimits a body without Content-Length. So the field is not added to a streamed body whose client has not sent
      // it: the upstream of a gRPC client then gets the same fields as without the proxy.
      const length = isPiped ? contentLength : (contentLength ?? body?.length);
      const isEmpty = !isPiped && (bytes?.byteLength ?? 0) === 0;
      const trailers = isPiped ? undefined : body?.trailers;
      waitForTrailers = isPiped || isUpgrade || trailers !== undefined;
      // An empty body ends with an empty DATA frame, as gRPC requires: its server in Go ignores END_STREAM on HEADERS.
      const options = { endStream: body === null && !isUpgrade, waitForTrailers };
      if (trailers !== undefined) this.#requestTrailers = toRegularFields(trailers);
      stream = sendFields(toHttp2Fields(request, isEmpty ? undefined : length), (fields) =>
        // oxlint-disable-next-line typescript/no-non-null-assertion
        connection.session!.request(fields as never, options),
      );
    } catch (thrown) {
      return this.fail(toRequestError(thrown));
    }
    if (isUpgrade) {
      this.#handshake = request.headers;
      this.#isUploaded = false;
    }
    this.#request = undefined;
    this.#stream = stream;
    this.#listen(stream);
    // Add these two listeners only where they are needed, because each listener costs time.
    if (waitForTrailers) stream.on("wantTrailers", () => this.#sendTrailers(stream));
    if (isPiped) stream.on("drain", () => this.#callBack());
    if (!isPiped) {
      if (!stream.writableEnded && !isUpgrade) stream.end(bytes);
      return;
    }
    this.#isUploaded = false;
    this.#upload = body as BodySource;
    this.#writer = new StreamUpload(this, stream, contentLength);
    pipe(this.#upload, this.#writer);
  }

  #listen(stream: AttemptStream): void {
    watchEnd(stream);
    stream[ATTEMPT] = this;
    stream
      .on("headers", onHeaders)
      .on("response", onResponse)
      .on("data", onData)
      .on("trailers", onTrailers)
      .on("end", onEnd)
      .on("error", onError)
      .on("close", onClose);
  }

  /** Calls back once when the stream has room for more bytes. */
  onceDrained(callback: () => void): void {
    if (this.#isOver) callback();
    else (this.#callbacks ??= []).push(callback);
  }

  /** Records that a chunk of the request body, or of the tunnel, is sent. */
  recordSent(): void {
    this.#scope.touch();
    this.#connection?.recordSent();
  }

  /** Records the end of the request body, which trailer fields may follow. */
  markUploaded(trailers: HeaderList = []): void {
    this.#isUploaded = true;
    this.#requestTrailers = toRegularFields(trailers);
  }

  #callBack(): void {
    const callbacks = this.#callbacks;
    this.#callbacks = undefined;
    callbacks?.forEach((callback) => callback());
  }

  #sendTrailers(stream: ClientHttp2Stream): void {
    // If the body is incomplete, `close()` is ending the stream. Send no trailer fields: the end of the stream would follow
    // them, and the body would look complete.
    if (!this.#isUploaded) return;
    try {
      sendFieldObject(this.#requestTrailers ?? [], (fields) => stream.sendTrailers(fields));
    } catch (thrown) {
      // On Deno, the stream may be closed already: the event `close` follows, with the reason.
      const { code } = thrown as NodeJS.ErrnoException;
      if (code !== "ERR_HTTP2_INVALID_STREAM") this.fail(toRequestError(thrown));
    }
  }

  #closeStream(): void {
    const stream = this.#stream;
    if (stream === undefined) return this.#connection?.release(this);
    if (this.#isUploaded) resetStream(stream);
    else resetLater(stream);
    this.#callBack();
  }

  /**
   * Cancels a request body that is not sent to its end. The server then reads the rest and drops it, because the client may
   * not read the response before it has sent the whole request. A body of which nothing was sent is left to another attempt.
   */
  #stopUpload(): void {
    if (!this.#isUploaded) this.#upload?.cancel();
    this.#upload = undefined;
  }

  // ── the response: the listeners of the stream call these methods ──

  onInterim(raw: HeaderList | undefined, headers: IncomingHttpHeaders): void {
    if (this.#isOver) return;
    this.#connection?.recordActivity();
    const list = raw ?? toList(headers);
    const status = readStatus(list);
    if (++this.#interim > MAX_INTERIM) {
      return this.#connection?.stopFlood(`${MAX_INTERIM} interim responses`);
    }
    try {
      this.#scope.interimReceived(status, fromHttp2Fields(list));
    } catch (error) {
      this.fail(error);
    }
  }

  onHead(
    flags: number | undefined,
    given: HeaderList | undefined,
    parsed: IncomingHttpHeaders,
  ): void {
    if (this.#isOver || this.#isAnswered) return;
    const raw = given ?? toList(parsed);
    const status = readStatus(raw);
    let headers: HeaderList;
    let length: number | undefined;
    const isEnded = ((flags ?? 0) & END_STREAM) !== 0;
    const isBodyless = this.#method === "HEAD" || status === 204 || status === 304;
    this.#connection?.recordActivity();
    try {
      if (!(status >= 200)) throw malformedMessage("no status");
      headers = fromHttp2Fields(raw);
      if (this.upgrade !== undefined && status < 300) return this.#switch(headers);
      length = parseLength(getHeader(headers, "content-length"));
      // Not every runtime compares the length with the body (RFC 9113 §8.1.1).
      if (isEnded && !isBodyless && (length ?? 0) > 0)
        throw malformedMessage("a Content-Length and no body");
    } catch (error) {
      return this.fail(error);
    }
    this.#isAnswered = true;
    this.#scope.headersReceived(isEventStream(headers));
    if (isBodyless) {
      // An empty DATA frame with END_STREAM may follow, and `Content-Length` is the length of another response.
      this.#bytesLeft = 0;
      this.#expectsTrailers = false;
    } else if (!isEnded) {
      this.#bytesLeft = length;
      this.#expectsTrailers ||= getHeader(headers, "trailer") !== undefined;
      this.#body = new ResponseBody(this.#scope, this, this.#bytesLeft, bufferMemory);
    }
    // The runtime reports each frame separately, even if the head and a small body have arrived in one read. So hold the
    // response until all frames of the read are reported: the head and a small body then go to the client in one write.
    this.#held = { status, statusText: "", headers, body: this.#body ?? null };
    this.#early?.forEach((chunk) => this.onChunk(chunk));
    this.#early = undefined;
    if (isEnded) this.#finish();
    else this.#connection?.passOnLater(this);
  }

  /** Makes the stream a tunnel, after the upstream has accepted a WebSocket. The response gets the status 101. */
  #switch(fields: HeaderList): void {
    this.#isAnswered = true;
    this.#isOver = true;
    this.#scope.end();
    const carrier = new TunnelStream(this.#stream as ClientHttp2Stream, this);
    const tunnel = (this.#tunnel = new SwitchedTunnel(carrier, false, this.clientKey));
    this.#early?.forEach((chunk) => tunnel.onChunk(chunk));
    this.#early = undefined;
    this.#connection?.recordSwitch();
    toSwitch(fields, this.#handshake ?? []).then(
      (headers) => this.#resolve({ status: 101, statusText: "", headers, body: null, tunnel }),
      this.#reject,
    );
  }

  /** Breaks the tunnel off, because its stream or connection has failed or is being closed. */
  #breakOff(thrown: unknown): void {
    if (this.#tunnel === undefined) return;
    this.#tunnel.fail(thrown);
    this.#closeStream();
  }

  /** Passes on what `passOnLater` has held back: the response, or the end of its body. */
  passOn(): void {
    const held = this.#held;
    this.#held = undefined;
    if (this.#bytesLeft === 0 && !this.#isOver) this.#endBody();
    if (held !== undefined) this.#resolve(held);
  }

  /**
   * Ends a body whose last byte has arrived, although END_STREAM has not. Upstreams often send END_STREAM later. An HTTP/1.1
   * client that has the whole Content-Length may send its next request, which would otherwise be treated as pipelined.
   */
  #endBody(): void {
    // During an upload, the scope limits the wait for END_STREAM. The scope of a response without a body has ended already.
    const isUploading = !this.#isUploaded && this.#body !== undefined;
    if (this.#expectsTrailers || isUploading) return;
    this.#endResponse();
    this.#deadline?.clear();
    this.#deadline = new Deadline(END_TIMEOUT, () =>
      this.fail(new ProxyError("http_response_incomplete")),
    );
  }

  onChunk(chunk: Uint8Array): void {
    if (this.#isOver && !this.isTunnel) return;
    this.#connection?.recordActivity();
    if (this.#tunnel !== undefined) return this.#tunnel.onChunk(chunk);
    if (!this.#isAnswered) return void (this.#early ??= []).push(chunk);
    if (this.#bytesLeft !== undefined) this.#bytesLeft -= chunk.byteLength;
    this.#received += chunk.byteLength;
    this.#body?.push(chunk);
    if (this.#bytesLeft === 0 && this.#held === undefined) this.#connection?.passOnLater(this);
  }

  onTrailers(raw: HeaderList): void {
    try {
      this.#trailers = fromHttp2Fields(raw);
    } catch (error) {
      this.fail(error);
    }
  }

  onEnd(): void {
    const isCut = this.#stream !== undefined && !isWhole(this.#stream);
    // For a tunnel that was cut off, the listener for `close` ends the tunnel.
    if (this.#tunnel !== undefined && !isCut) return this.#tunnel.onEnd();
    // Without a response, `close` follows with the reason.
    if (this.#isOver || !this.#isAnswered) return;
    const isWrong = this.#bytesLeft !== undefined && this.#bytesLeft !== 0;
    if (!isCut && !isWrong) return this.#finish();
    const message = isCut ? "the upstream reset the stream" : "the body has a wrong length";
    this.fail(new ProxyError("http_response_incomplete", { message }));
  }

  onClose(): void {
    // This is also called after every complete response. Make the error only for an attempt that is not over, because its stack
    // trace costs time.
    if (!this.#isOver || this.isTunnel) this.fail(new ProxyError("connection_terminated"));
    this.#deadline?.clear();
    if (this.account !== undefined) this.#pool?.freePlace(this);
    this.#connection?.release(this);
  }

  /** Ends the attempt: the response is complete. */
  #finish(): void {
    this.#isOver = true;
    if (this.account !== undefined) this.#pool?.freePlace(this);
    // The upstream has answered without the rest of the request body: end the stream (RFC 9113 §8.1).
    if (!this.#isUploaded) this.#closeStream();
    this.#stopUpload();
    this.#endResponse();
    this.passOn();
  }

  #endResponse(): void {
    if (this.#body === undefined) this.#scope.end();
    else this.#body.end(this.#trailers);
  }

  cancel(reason: ProxyError): void {
    this.fail(reason);
  }

  pause(): void {
    this.#stream?.pause();
  }

  resume(): void {
    if (!this.#isOver) this.#stream?.resume();
  }
}

// ── the listeners of every stream ──

function onHeaders(
  this: AttemptStream,
  headers: IncomingHttpHeaders,
  _flags: number,
  raw?: HeaderList,
): void {
  this[ATTEMPT]?.onInterim(raw, headers);
}

function onResponse(
  this: AttemptStream,
  headers: IncomingHttpHeaders,
  flags: number | undefined,
  raw?: HeaderList,
): void {
  this[ATTEMPT]?.onHead(flags, raw, headers);
}

function onData(this: AttemptStream, chunk: Uint8Array): void {
  this[ATTEMPT]?.onChunk(chunk);
}

function onTrailers(
  this: AttemptStream,
  headers: IncomingHttpHeaders,
  _flags: number,
  raw?: HeaderList,
): void {
  this[ATTEMPT]?.onTrailers(raw ?? toList(headers));
}

function onEnd(this: AttemptStream): void {
  this[ATTEMPT]?.onEnd();
}

function onError(this: AttemptStream, error: Error): void {
  this[ATTEMPT]?.fail(error);
}

function onClose(this: AttemptStream): void {
  const attempt = this[ATTEMPT];
  this[ATTEMPT] = undefined;
  attempt?.onClose();
}

/** Writes a request body to a stream. */
class StreamUpload implements Sink {
  /** Node does not report when a chunk is sent, so its memory is never returned. */
  readonly memory = "borrowed";
  readonly #attempt: StreamAttempt;
  readonly #stream: ClientHttp2Stream;
  written = 0;
  /** The length that the request announces; undefined if it announces none. */
  readonly #length: number | undefined;
  #isEnded = false;

  constructor(attempt: StreamAttempt, stream: ClientHttp2Stream, length: number | undefined) {
    this.#attempt = attempt;
    this.#stream = stream;
    this.#length = length;
  }

  write(chunk: Uint8Array): boolean {
    if (chunk.byteLength === 0 || this.#isEnded || this.#stream.destroyed) return true;
    this.#attempt.recordSent();
    this.written += chunk.byteLength;
    if (this.#length !== undefined && this.written > this.#length) {
      this.#attempt.fail(badLength(this.#length, this.written));
      return true;
    }
    return this.#stream.write(chunk);
  }

  onDrain(callback: () => void): void {
    this.#attempt.onceDrained(callback);
  }

  end(trailers?: HeaderList): void {
    if (this.#isEnded) return;
    this.#isEnded = true;
    // If the stream is destroyed, it has not taken all chunks. Its event `close` follows, with the reason.
    if (this.#stream.destroyed) return;
    if (this.#length !== undefined && this.written < this.#length) {
      return this.#attempt.fail(badLength(this.#length, this.written));
    }
    try {
      this.#attempt.markUploaded(trailers);
    } catch (error) {
      return this.#attempt.fail(error);
    }
    this.#stream.end();
  }

  fail(reason: unknown): void {
    this.#attempt.fail(toRequestBodyError(reason));
  }
}

/**
 * Converts an exception of `session.request()`, which throws if the session is being closed, or if HTTP/2 does not allow a
 * field.
 */
function toRequestError(thrown: unknown): unknown {
  if (thrown instanceof ProxyError) return thrown;
  const { code = "" } = thrown as NodeJS.ErrnoException;
  const isClosing = /_SESSION$|_OUT_OF_STREAMS$/.test(code);
  if (isClosing) {
    return new ProxyError("connection_terminated", { cause: thrown, unprocessed: true });
  }
  const message = "the request has a field that HTTP/2 does not allow";
  return new ProxyError("http_request_error", { message, cause: thrown });
}

function readStatus(raw: HeaderList): number {
  return Number(getHeader(raw, ":status"));
}

const LENGTH = /^\d{1,15}$/;

/** @throws ProxyError for a length that Fetchway refuses over HTTP/1.1, too */
function parseLength(value: string | undefined): number | undefined {
  if (value === undefined) return undefined;
  if (!LENGTH.test(value)) throw malformedMessage("no valid Content-Length");
  return Number(value);
}

/** @param what the fault, as the object of "the response has" */
function malformedMessage(what: string): ProxyError {
  return new ProxyError("http_protocol_error", { message: `the response has ${what}` });
}

/** Returns parsed fields as a list, for runtimes that pass no raw fields. */
function toList(headers: IncomingHttpHeaders): HeaderList {
  const list: HeaderList = [];
  for (const [name, value] of Object.entries(headers)) {
    for (const each of [value ?? []].flat()) list.push(name, each);
  }
  return list;
}
