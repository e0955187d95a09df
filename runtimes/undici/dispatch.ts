import { isIP } from "node:net";
import type { Duplex } from "node:stream";
import type { Dispatcher } from "undici";
import { type Inlet, ResponseBody } from "../../src/body/responsebody.ts";
import type { BodySource } from "../../src/body/source.ts";
import { badLength, placeError, ProxyError, unsendable } from "../../src/error.ts";
import { isEventStream, type HeaderList } from "../../src/fields/headers.ts";
import { MAX_TRAILERS } from "../../src/fields/trailers.ts";
import type { UpstreamRequest, UpstreamResponse } from "../../src/transport/message.ts";
import { MAX_INTERIM, type Scope } from "../../src/transport/scope.ts";
import { bufferMemory, copyOf } from "../sockets/buffercodec.ts";
import type { AgentStats } from "./agentstats.ts";
import { groupFields, readFields, readReason } from "./fields.ts";
import { SocketTunnel } from "./sockettunnel.ts";
import { hadReceived, isConnectionFailing, toUndiciError } from "./undicierrors.ts";
import { UploadStream } from "./uploadstream.ts";

/** A dispatcher with the facts about it that an attempt needs. */
export interface DispatcherUse {
  readonly dispatcher: Dispatcher;
  /** Whether no code of the app sees the bytes: the transport made the dispatcher, without a `connect` function of the app. */
  readonly isOwn: boolean;
  /** Counts the requests and the tunnels; undefined if the dispatcher is not an `Agent`. */
  readonly stats: AgentStats | undefined;
}

/** undici's options of a request, with options that undici's types do not have. */
interface DispatchOptions extends Dispatcher.DispatchOptions {
  /** Whether the `Agent` may use HTTP/2; by default, its own option decides. */
  allowH2?: boolean;
  /** The name for SNI and the certificate check; by default, undici takes the name in `Host`. */
  servername?: string | undefined;
}

/** Methods for which some upstreams do not read a body, but parse it as the next request. */
const RARELY_READ = /^(?:GET|HEAD|DELETE|OPTIONS|TRACE)$/;

/**
 * Converts a request into the options that undici dispatches.
 * @param body the body in the form in which it is sent
 * @param isStreamed whether the body is a stream
 * @param isOwn the member of `DispatcherUse`
 * @throws ProxyError for `CONNECT`, which opens a tunnel, and for `OPTIONS *`
 */
function toDispatchOptions(
  request: UpstreamRequest,
  body: Uint8Array | UploadStream | null,
  isStreamed: boolean,
  isOwn: boolean,
): DispatchOptions {
  const { upstream, method, path, host, headers, contentLength, upgrade } = request;
  if (method === "CONNECT") throw unsendable(method);
  if (path === "*") throw unsendable("OPTIONS *");
  const { origin, hostname, secure } = upstream;
  let list: (string | string[])[] = headers;
  if (host !== undefined) list = ["Host", host, ...headers];
  // ProxyAgent converts the list into an object, which would keep only the last line of a repeated field.
  if (!isOwn) list = groupFields(list as string[]);
  // If the body is bytes, undici adds Content-Length itself.
  if (contentLength !== undefined && isStreamed) {
    list = [...list, "Content-Length", String(contentLength)];
  }
  return {
    origin,
    path,
    method,
    headers: list as string[],
    body,
    // Turn undici's time limits off: the proxy has its own.
    headersTimeout: 0,
    bodyTimeout: 0,
    // Close the connection after a body that the upstream may not read, and after a refused upgrade, because the upstream may
    // parse further bytes in either protocol. By default, undici closes a connection after each HEAD.
    reset: upgrade !== undefined || (body !== null && RARELY_READ.test(method)),
    // Over HTTP/2, undici would open a stream for the upgrade (RFC 8441). The response on that stream would not prove that the
    // upstream has read the handshake.
    ...(upgrade !== undefined && { upgrade, allowH2: false }),
    // If this is undefined and there is no `Host`, undici takes the host name of the origin, unless that is an IP address.
    servername: secure && (host !== undefined || isIP(hostname) === 0) ? hostname : undefined,
  };
}

/** One attempt to send a request through a dispatcher. It is the handler that undici calls with the response. */
export class UndiciAttempt implements Dispatcher.DispatchHandler, Inlet {
  readonly #use: DispatcherUse;
  readonly #scope: Scope;
  readonly #method: string;
  readonly #origin: string;
  readonly #resolve: (response: UpstreamResponse) => void;
  readonly #reject: (error: ProxyError) => void;
  /** The request; undefined once it was passed to undici. */
  #request: UpstreamRequest | undefined;
  #upload: UploadStream | undefined;
  #controller: Dispatcher.DispatchController | undefined;
  #body: ResponseBody | undefined;
  #error: ProxyError | undefined;
  #isOver = false;
  /** Whether a byte of a response, interim or final, has arrived. */
  #isResponding = false;
  /** Whether the headers of the final response have arrived. */
  #isAnswered = false;
  /** Whether no header field frames the body: its end may then be the end of the connection (RFC 9112 §6.3). */
  #endsWithConnection = false;
  /** The number of interim responses so far. */
  #interim = 0;

  constructor(
    use: DispatcherUse,
    request: UpstreamRequest,
    scope: Scope,
    resolve: (response: UpstreamResponse) => void,
    reject: (error: ProxyError) => void,
  ) {
    this.#use = use;
    this.#request = request;
    this.#method = request.method;
    this.#origin = request.upstream.origin;
    this.#scope = scope;
    this.#resolve = resolve;
    this.#reject = reject;
    scope.onAbort(this);
  }

  /** Passes the request to undici, unless the exchange was aborted before. */
  dispatch(): void {
    if (this.#isOver) return;
    try {
      const request = this.#request as UpstreamRequest;
      const body = this.#toSendable(request.body, request.contentLength);
      this.#request = undefined;
      const { dispatcher, isOwn } = this.#use;
      const isStreamed = this.#upload !== undefined;
      dispatcher.dispatch(toDispatchOptions(request, body, isStreamed, isOwn), this);
    } catch (thrown) {
      this.fail(thrown);
    }
  }

  /** Ends the attempt with an error. May be called at any time. */
  fail(thrown: unknown): void {
    if (this.#isOver) return;
    this.#isOver = true;
    const error = toUndiciError(thrown, {
      isStarted: this.#controller !== undefined,
      isAnswered: this.#isAnswered,
      isStale: !this.#isResponding && hadReceived(thrown),
    });
    placeError(error, this.#scope.upstream);
    this.#error = error;
    this.#request = undefined;
    this.#upload?.destroy();
    this.#scope.end();
    this.#reject(error);
    this.#body?.fail(error);
    // undici then calls onResponseError, which does nothing because the attempt is over.
    this.#controller?.abort(error);
  }

  /** Converts the request body into a form that undici takes: bytes if all of them have arrived, else a stream. */
  #toSendable(
    body: BodySource | null,
    contentLength: number | undefined,
  ): Uint8Array | UploadStream | null {
    if (body === null) return null;
    const { isOwn } = this.#use;
    const bytes = body.whole();
    if (bytes === undefined) {
      return (this.#upload = new UploadStream(body, contentLength, this.#scope, !isOwn));
    }
    const { byteLength: size } = bytes;
    if (contentLength !== undefined && size !== contentLength) throw badLength(contentLength, size);
    if (size === 0) return null;
    // An interceptor of the app may keep or change the bytes. Give it a copy, because the proxy may have to send the bytes
    // again.
    return isOwn ? bytes : copyOf(bytes);
  }

  // ── methods of `DispatchHandler`, which undici calls ──

  onRequestStart(controller: Dispatcher.DispatchController): void {
    // If the attempt was aborted while it waited for a connection, throw: this keeps undici from sending the request, whereas
    // `controller.abort()` would close the connection.
    if (this.#error !== undefined) throw this.#error;
    if (this.#controller === undefined) this.#use.stats?.countRequest();
    this.#controller = controller;
  }

  onResponseStarted(): void {
    this.#isResponding = true;
  }

  onResponseStart(
    controller: Dispatcher.DispatchController,
    status: number,
    parsed: Record<string, string | string[] | undefined>,
    statusText?: string,
  ): void {
    if (this.#isOver) return;
    // A status below 200 is that of an interim response. The final response follows it (RFC 9110 §15.2).
    if (status < 200) return this.#onInterim(status, readFields(controller.rawHeaders, parsed));
    this.#isResponding = this.#isAnswered = true;
    const headers = readFields(controller.rawHeaders, parsed);
    // Drop the raw fields: each is a view of the whole read buffer, which would stay in memory until the response ends.
    controller.rawHeaders = null;
    this.#scope.headersReceived(isEventStream(headers));
    const hasBody = this.#method !== "HEAD" && status !== 204 && status !== 304;
    if (hasBody) {
      const length = parsed["content-length"];
      this.#endsWithConnection = length === undefined && parsed["transfer-encoding"] === undefined;
      const known = parseContentLength(length);
      this.#body = new ResponseBody(this.#scope, this, known, bufferMemory);
    }
    this.#resolve({
      status,
      statusText: readReason(statusText),
      headers,
      body: this.#body ?? null,
    });
  }

  onRequestUpgrade(
    controller: Dispatcher.DispatchController,
    status: number,
    parsed: Record<string, string | string[] | undefined>,
    socket: Duplex,
  ): void {
    const tunnel = new SocketTunnel(socket);
    if (this.#isOver) return tunnel.destroy();
    if (status !== 101) {
      tunnel.destroy();
      const message = "undici has opened a tunnel without a 101 of the upstream";
      return this.fail(new ProxyError("http_protocol_error", { message }));
    }
    // The exchange is over: its deadlines do not apply to the tunnel, which the server's code handles from here on.
    this.#isOver = true;
    this.#scope.end();
    this.#use.stats?.countTunnel(socket, this.#origin);
    const headers = readFields(controller.rawHeaders, parsed);
    this.#resolve({ status, statusText: "", headers, body: null, tunnel });
  }

  #onInterim(status: number, headers: HeaderList): void {
    this.#isResponding = true;
    // undici's parser accepts statuses under 100, and a 101 without `Upgrade` to a request that asked for no upgrade.
    const isInterim = status >= 100 && status !== 101;
    if (isInterim && ++this.#interim <= MAX_INTERIM) {
      return this.#scope.interimReceived(status, headers);
    }
    const message = isInterim ? "too many interim responses" : `the upstream sent status ${status}`;
    this.fail(new ProxyError("http_protocol_error", { message }));
  }

  onResponseData(_controller: unknown, chunk: Buffer): void {
    if (!this.#isOver) this.#body?.push(chunk);
  }

  onResponseEnd(
    controller?: Dispatcher.DispatchController,
    parsed: Record<string, string | string[] | undefined> = {},
  ): void {
    if (this.#isOver) return;
    const trailers = readFields(controller?.rawTrailers, parsed);
    if (trailers.length > 2 * MAX_TRAILERS) {
      const message = "the upstream sent too many trailer fields";
      return this.fail(new ProxyError("http_protocol_error", { message }));
    }
    if (this.#endsWithConnection && isConnectionFailing()) {
      return this.fail(new ProxyError("http_response_incomplete", { message: "reset" }));
    }
    this.#isOver = true;
    // If the response is complete before the request body, undici stops reading the body: cancel the rest.
    if (this.#upload?.readableEnded === false) this.#upload.destroy();
    if (this.#body === undefined) this.#scope.end();
    else this.#body.end(trailers.length === 0 ? undefined : trailers);
  }

  onResponseError(_controller: unknown, thrown: Error): void {
    this.fail(thrown);
  }

  // ── methods of `Inlet`, which the response body calls ──

  cancel(reason: ProxyError): void {
    this.fail(reason);
  }

  pause(): void {
    if (!this.#isOver) this.#controller?.pause();
  }

  resume(): void {
    // After the end of this response, the connection's parser may be reading another one.
    if (!this.#isOver) this.#controller?.resume();
  }
}

const LENGTH = /^\d{1,15}$/;

function parseContentLength(value: string | string[] | undefined): number | undefined {
  return typeof value === "string" && LENGTH.test(value) ? Number(value) : undefined;
}
