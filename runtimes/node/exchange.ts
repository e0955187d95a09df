import { isIP } from "node:net";
import type { Readable } from "node:stream";
import type { Client, Dispatcher } from "undici";
import type { Lifetime } from "../../src/deadline.ts";
import { clientGone, type ProxyError } from "../../src/error.ts";
import { getHeader } from "../../src/headers.ts";
import type { HeaderList, Hop, Reply } from "../../src/transport.ts";
import { ResponseBody, type Source } from "./body.ts";
import { toNetworkError } from "./errors.ts";
import type { Job, OriginPool } from "./pool.ts";
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
  #client: Client | undefined;
  #controller: Dispatcher.DispatchController | undefined;
  #upload: Upload | Buffer | null = null;
  #body: ResponseBody | undefined;
  #error: ProxyError | undefined;
  #ended = false;

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
    lifetime.onabort = (error) => this.#abort(error);
  }

  // ── the job ──

  get aborted(): boolean {
    return this.#error !== undefined;
  }

  start(client: Client): void {
    const { upstream, method, path, host, body, contentLength } = this.#hop;
    let { headers } = this.#hop;
    this.#client = client;
    this.#upload = body === null ? null : toUpload(body, this.#lifetime);
    if (host !== undefined) headers = ["Host", host, ...headers];
    if (this.#upload !== null && contentLength !== undefined) {
      headers = [...headers, "Content-Length", String(contentLength)];
    }
    client.dispatch(
      {
        path,
        // undici names the methods it knows; it sends any token.
        method,
        headers,
        body: this.#upload as Readable | Buffer | null,
        // Not left to undici, which would close after each HEAD and DELETE.
        reset: this.#upload !== null && expectsNoBody(method),
        // Otherwise SNI and certificate check would follow `Host`.
        ...(upstream.secure && {
          servername: upstream.tls?.servername ?? serverName(upstream.hostname),
        }),
      },
      this,
    );
  }

  fail(error: ProxyError): void {
    this.#error ??= error;
    this.#lifetime.end();
    this.#reject(this.#error);
  }

  // ── undici's handler ──

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller;
    if (this.#error !== undefined) controller.abort(this.#error);
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
    const type = getHeader(headers, "content-type");
    this.#lifetime.opened(type !== undefined && /^text\/event-stream\b/i.test(type));
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
    this.#pool.release(this.#client as Client);
    this.#body?.end();
  }

  onResponseError(_controller: unknown, thrown: Error): void {
    const error = (this.#error ??= toNetworkError(thrown, this.#body !== undefined));
    this.#ended = true;
    this.#lifetime.end();
    this.#pool.discard(this.#client as Client);
    if (this.#upload instanceof Upload) this.#upload.destroy();
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
    if (this.#controller !== undefined) this.#controller.abort(error);
    // Still waiting for a connection: the answer need not wait for it.
    else this.#reject(error);
  }
}

/** TLS has no server name for an address (RFC 6066 §3). */
function serverName(hostname: string): string | undefined {
  return isIP(hostname) === 0 ? hostname : undefined;
}

function toLatin1(raw: Buffer[]): HeaderList {
  const list: HeaderList = new Array(raw.length);
  for (let i = 0; i < raw.length; i++) list[i] = (raw[i] as Buffer).toString("latin1");
  return list;
}
