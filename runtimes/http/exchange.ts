import type { ClientRequest, IncomingMessage } from "node:http";
import type { Lifetime } from "../../src/deadline.ts";
import { ProxyError } from "../../src/error.ts";
import { concat } from "../../src/body.ts";
import { unsendable } from "../../src/fetch.ts";
import { isEventStream } from "../../src/headers.ts";
import type { Body, HeaderList, Hop, NativeBody, Reply } from "../../src/transport.ts";
import { toNetworkError } from "../pool/errors.ts";
import type { Place } from "../pool/queue.ts";
import type { Connection } from "./connection.ts";
import type { Job, Pool } from "./pool.ts";
import { upload } from "./upload.ts";

/** Bytes held for a reader that is slow before the upstream is told to wait. */
const HIGH_WATER_MARK = 65_536;

/**
 * One request and its response on one connection, and the response body at the same time.
 *
 * The parser hands over headers, data and end of a small response in one
 * synchronous run. By the first microtask after the headers such a body is here
 * as a whole, and travels as bytes; only what is still coming becomes a stream.
 */
export class Exchange implements Job, NativeBody, Reply {
  status = 0;
  statusText = "";
  headers: HeaderList = [];
  #error: ProxyError | undefined;
  #ended = false;
  #response: IncomingMessage | undefined;
  #sink: ReadableStreamDefaultController<Uint8Array> | undefined;
  #quiet = false;
  readonly fresh: boolean;
  place: Place | undefined;
  #connection: Connection | undefined;
  #request: ClientRequest | undefined;
  #pool: Pool | undefined;
  readonly #hop: Hop;
  readonly #lifetime: Lifetime;
  readonly #resolve: (reply: Reply) => void;
  readonly #reject: (error: ProxyError) => void;

  constructor(
    hop: Hop,
    lifetime: Lifetime,
    resolve: (reply: Reply) => void,
    reject: (error: ProxyError) => void,
  ) {
    const { method, fresh } = hop;
    this.#hop = hop;
    this.#lifetime = lifetime;
    this.#resolve = resolve;
    this.#reject = reject;
    this.fresh = fresh ?? false;
    // `node:http` would change the case; CONNECT asks for a tunnel, not for a response.
    if (method !== method.toUpperCase() || method === "CONNECT") throw unsendable(method);
  }

  /** Sends it as soon as there is a connection for it. */
  run(pool: Pool): void {
    this.#pool = pool;
    this.#lifetime.onabort = (error) => this.fail(error);
    pool.run(this);
  }

  // ── the job ──

  get held(): boolean {
    return this.#response?.isPaused() ?? false;
  }

  start(connection: Connection): void {
    const { method, path, body } = this.#hop;
    const request = connection.request(method, path, toFields(this.#hop), this);
    this.#connection = connection;
    this.#request = request;
    // Their size is limited; beyond a number of them, they would be left out in silence.
    request.maxHeadersCount = 0;
    request.on("error", (thrown) => this.#onError(thrown));
    request.on("upgrade", () =>
      this.fail(new ProxyError("http_protocol_error", { message: "bad upgrade" })),
    );
    request.on("response", (response) => this.#onResponse(response));
    if (body === null) request.end();
    else if (body instanceof Uint8Array) request.end(body);
    else void this.#upload(request, body);
  }

  fail(thrown: unknown): void {
    // The connection is no longer its own then.
    if (this.#ended) return;
    const error = toNetworkError(thrown, this.status !== 0);
    this.#error ??= error;
    if (this.place !== undefined) this.#pool?.leave(this);
    this.#request?.destroy();
    this.#connection?.destroy();
    this.#onError(error);
  }

  // ── the reply, and its body ──

  get body(): NativeBody | null {
    const bodyless = this.#hop.method === "HEAD" || this.status === 204 || this.status === 304;
    return bodyless ? null : this;
  }

  /**
   * The whole body, if all of it is here already.
   * @throws ProxyError if it is known by now that it never will be
   */
  whole(): Uint8Array | undefined {
    const response = this.#response as IncomingMessage;
    if (!response.complete) {
      if (this.#error !== undefined) throw this.#error;
      return undefined;
    }
    const chunks: Uint8Array[] = [];
    for (let chunk; (chunk = response.read() as Uint8Array | null) !== null;) chunks.push(chunk);
    response.resume();
    // Before the server can say that the client has what it wanted: to Deno that is an abort.
    this.#onEnd();
    return concat(chunks);
  }

  /** @param quiet whether the stream fails without a reason: Bun's server prints any other */
  stream(quiet = false): ReadableStream<Uint8Array> {
    const response = this.#response as IncomingMessage;
    this.#lifetime.opened(isEventStream(this.headers));
    return new ReadableStream<Uint8Array>(
      {
        start: (controller) => {
          this.#sink = controller;
          this.#quiet = quiet;
          if (this.#error !== undefined) return this.#failSink(this.#error);
          response.on("data", (chunk: Uint8Array) => this.#onData(response, chunk));
        },
        pull: () => {
          if (!response.isPaused()) return;
          this.#lifetime.hold(false);
          response.resume();
        },
        cancel: () => {
          this.#sink = undefined;
          if (!this.#ended) this.fail(new ProxyError("http_request_error", { status: 499 }));
        },
      },
      { highWaterMark: HIGH_WATER_MARK, size: (chunk) => chunk.byteLength },
    );
  }

  async #upload(request: ClientRequest, body: Exclude<Body, Uint8Array>): Promise<void> {
    try {
      await upload(request, body, this.#hop.contentLength, this.#lifetime);
    } catch (error) {
      this.fail(error);
    }
  }

  #onResponse(response: IncomingMessage): void {
    this.#response = response;
    this.#connection?.answered(response);
    this.status = response.statusCode ?? 0;
    this.statusText = response.statusMessage ?? "";
    this.headers = response.rawHeaders;
    response.on("error", (thrown) => this.#onError(thrown));
    response.on("end", () => this.#onEnd());
    if (this.body === null) response.resume();
    this.#resolve(this);
  }

  #onData(response: IncomingMessage, chunk: Uint8Array): void {
    const sink = this.#sink;
    if (sink === undefined) return;
    this.#lifetime.touch();
    sink.enqueue(chunk);
    // Where nobody reads any more, Deno cancels the stream within enqueue().
    if (this.#sink === undefined || (sink.desiredSize ?? 0) > 0) return;
    response.pause();
    this.#lifetime.hold(true);
  }

  #onEnd(): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#lifetime.end();
    this.#sink?.close();
    // Answered before all was sent: the rest is not wanted, and the connection not in step.
    if (this.#request?.writableEnded === false) this.#request.destroy();
  }

  #onError(thrown: unknown): void {
    if (this.#ended) return;
    this.#error ??= this.#toError(thrown);
    this.#lifetime.end();
    this.#reject(this.#error);
    this.#failSink(this.#error);
  }

  #toError(thrown: unknown): ProxyError {
    const error = toNetworkError(thrown, this.status !== 0);
    const { code, cause } = error;
    const stale = code === "connection_terminated" && this.#connection?.stale;
    return stale ? new ProxyError(code, { cause, stale }) : error;
  }

  #failSink(error: ProxyError): void {
    this.#sink?.error(this.#quiet ? undefined : error);
    this.#sink = undefined;
  }
}

/** The fields to send, with those of the framing: `node:http` takes a list as it is. */
function toFields({ upstream, method, headers, host, body, contentLength }: Hop): HeaderList {
  const fields = ["Host", host ?? upstream.host, ...headers];
  const length = body instanceof Uint8Array ? body.byteLength : contentLength;
  if (body === null || length === 0) {
    // Otherwise these would be sent in chunks (RFC 9110 §8.6).
    if (!/^(?:GET|HEAD|DELETE|OPTIONS|TRACE)$/.test(method)) fields.push("Content-Length", "0");
  } else if (length !== undefined) fields.push("Content-Length", String(length));
  else fields.push("Transfer-Encoding", "chunked");
  return fields;
}
