import type { Readable } from "node:stream";
import type { Dispatcher } from "undici";
import type { Lifetime } from "../../src/deadline.ts";
import { clientGone, ProxyError } from "../../src/error.ts";
import { isEventStream } from "../../src/headers.ts";
import type { HeaderList, Hop, Reply } from "../../src/transport.ts";
import { ResponseBody, type Source } from "./body.ts";
import { toNetworkError } from "../pool/errors.ts";
import type { Connection } from "./connection.ts";
import type { Job, OriginPool } from "./pool.ts";
import type { Place } from "../pool/queue.ts";
import { toUpload, Upload } from "./upload.ts";

/** A method whose body some upstreams do not read: they take it for the next request on the connection. */
function expectsNoBody(method: string): boolean {
  return method === "GET" || method === "HEAD" || method === "OPTIONS" || method === "TRACE";
}

/**
 * One request and its response on one connection: undici's handler.
 *
 * undici's parser hands over headers, data and end of a small response in one
 * synchronous run. By the first microtask after the headers such a body is here
 * as a whole, and travels as bytes; only what is still coming becomes a stream.
 */
export class Exchange implements Job, Source, Dispatcher.DispatchHandler {
  readonly #hop: Hop;
  readonly #lifetime: Lifetime;
  readonly #pool: OriginPool;
  readonly #resolve: (reply: Reply) => void;
  readonly #reject: (error: ProxyError) => void;
  place: Place | undefined;
  #connection: Connection | undefined;
  #controller: Dispatcher.DispatchController | undefined;
  #upload: Upload | Buffer | null | undefined;
  #body: ResponseBody | undefined;
  #error: ProxyError | undefined;
  #ended = false;
  /** Whether its connection had carried a request before. */
  #reused = false;
  /** Whether a byte of any response is here. */
  #answered = false;
  /** Whether it was aborted before anything of it was sent. */
  #unsent = false;

  constructor(
    hop: Hop,
    lifetime: Lifetime,
    pool: OriginPool,
    resolve: (reply: Reply) => void,
    reject: (error: ProxyError) => void,
  ) {
    this.#hop = hop;
    this.#lifetime = lifetime;
    this.#pool = pool;
    this.#resolve = resolve;
    this.#reject = reject;
    // Not assigned as a literal: V8 makes such a function in the old generation, and all that it
    // captures, the whole request, then lives until the next full collection.
    const abort = (error: ProxyError): void => this.#abort(error);
    lifetime.onabort = abort;
  }

  // ── the job ──

  get aborted(): boolean {
    return this.#error !== undefined;
  }

  get fresh(): boolean {
    return this.#hop.fresh === true;
  }

  start(connection: Connection): void {
    const { method, path, host, body, contentLength } = this.#hop;
    let { headers } = this.#hop;
    this.#connection = connection;
    if (this.#upload === undefined) {
      this.#upload = body === null ? null : toUpload(body, this.#lifetime);
    }
    if (host !== undefined) headers = ["Host", host, ...headers];
    if (this.#upload !== null && contentLength !== undefined) {
      headers = [...headers, "Content-Length", String(contentLength)];
    }
    const options = {
      path,
      // undici names the methods it knows; it sends any token.
      method,
      headers,
      body: this.#upload as Readable | Buffer | null,
      // Not left to undici, which would close after each HEAD and DELETE.
      reset: !this.#pool.options.keepAlive || (this.#upload !== null && expectsNoBody(method)),
      servername: this.#pool.servername,
    };
    connection.client.dispatch(options, this);
  }

  fail(error: ProxyError): void {
    this.#error ??= error;
    this.#pool.counters.version++;
    this.#lifetime.end();
    this.#reject(this.#error);
  }

  // ── undici's handler ──

  onRequestStart(controller: Dispatcher.DispatchController): void {
    if (this.#error !== undefined) {
      // To throw, and not to abort: nothing is sent, and the connection stays good.
      this.#unsent = true;
      throw this.#error;
    }
    this.#controller = controller;
    this.#reused = (this.#connection as Connection).begin();
  }

  onResponseStarted(): void {
    this.#answered = true;
  }

  onResponseStart(
    controller: Dispatcher.DispatchController,
    status: number,
    _headers: unknown,
    statusText?: string,
  ): void {
    // 1xx: informational, the final response follows (RFC 9110 §15.2).
    if (status < 200) return;
    const headers = toLatin1(controller.rawHeaders as Buffer[]);
    // Each of them is a view of all that was read: for as long as a stream is silent, nobody needs it.
    controller.rawHeaders = null;
    this.#lifetime.opened(isEventStream(headers));
    this.#body = new ResponseBody(this);
    const bodyless = this.#hop.method === "HEAD" || status === 204 || status === 304;
    const body = bodyless ? null : this.#body;
    this.#resolve({ status, statusText: statusText ?? "", headers, body });
  }

  onResponseData(controller: Dispatcher.DispatchController, chunk: Buffer): void {
    this.#lifetime.touch();
    const want = (this.#body as ResponseBody).push(chunk);
    if (want === "more") return;
    controller.pause();
    // While nobody reads it is not held: the idle deadline ends a body that nobody ever takes.
    if (want === "hold") this.#lifetime.hold(true);
  }

  onResponseEnd(): void {
    this.#ended = true;
    this.#lifetime.end();
    this.#pool.release(this.#connection as Connection);
    this.#body?.end();
  }

  onResponseError(_controller: unknown, thrown: Error): void {
    if (this.#wasForgotten(thrown)) return this.#moveOn();
    const error = (this.#error ??= this.#toError(thrown));
    this.#ended = true;
    this.#lifetime.end();
    const connection = this.#connection as Connection;
    if (this.#unsent || this.#wasRefused(thrown)) this.#pool.release(connection);
    else this.#pool.discard(connection);
    if (this.#upload instanceof Upload) this.#upload.abandon();
    this.#reject(error);
    this.#body?.fail(error);
  }

  // ── the source of the response body ──

  resume(): void {
    if (this.#ended || this.#controller?.paused !== true) return;
    this.#lifetime.hold(false);
    this.#controller.resume();
  }

  stop(): void {
    this.#lifetime.end();
    this.#abort(clientGone());
  }

  #abort(error: ProxyError): void {
    this.#error ??= error;
    if (this.#controller !== undefined) return this.#controller.abort(error);
    // Still waiting for a connection: the answer need not wait for it.
    this.#pool.leave(this);
    this.#reject(error);
  }

  /** Whether it still waited for a kept connection to be looked at when that broke: undici gives it up then. */
  #wasForgotten(thrown: unknown): boolean {
    if (this.#controller !== undefined || this.#error !== undefined) return false;
    return (this.#connection as Connection).used && isTerminated(toNetworkError(thrown, false));
  }

  /** Whether undici would not send it: nothing of it has reached the kept connection, which stays good. */
  #wasRefused(thrown: unknown): boolean {
    if (this.#controller !== undefined) return false;
    const { code } = toNetworkError(thrown, false);
    return (this.#connection as Connection).used && code === "http_request_error";
  }

  /** Nothing was sent: whatever the method, another connection will do. */
  #moveOn(): void {
    if (this.#upload instanceof Upload) this.#upload = this.#upload.again();
    this.#pool.replace(this.#connection as Connection, this);
  }

  #toError(thrown: unknown): ProxyError {
    const error = toNetworkError(thrown, this.#body !== undefined);
    if (!this.#reused || this.#answered || !isTerminated(error)) return error;
    return new ProxyError(error.code, { cause: error.cause, stale: true });
  }
}

function isTerminated({ code }: ProxyError): boolean {
  return code === "connection_terminated";
}

function toLatin1(raw: Buffer[]): HeaderList {
  const list: HeaderList = new Array(raw.length);
  for (let i = 0; i < raw.length; i++) list[i] = (raw[i] as Buffer).toString("latin1");
  return list;
}
