import type { ServerResponse } from "node:http";
import { isIP } from "node:net";
import type { Readable } from "node:stream";
import type { Client, Dispatcher } from "undici";
import type { Lifetime } from "../../src/deadline.ts";
import { ProxyError } from "../../src/error.ts";
import { getHeader } from "../../src/headers.ts";
import type { HeaderList, Hop, NativeBody, Reply } from "../../src/transport.ts";
import { toNetworkError } from "./errors.ts";
import type { Job, OriginPool } from "./pool.ts";
import { type Upload, toUpload } from "./upload.ts";

/** Bytes held for a reader that is slow before the upstream is told to wait. */
const HIGH_WATER_MARK = 65_536;

/** Who takes the response body as it comes. */
interface Sink {
  /** @returns false if it wants no more for now */
  write(chunk: Buffer): boolean;
  end(): void;
  fail(error: ProxyError): void;
}

/** A method whose body some upstreams do not read: they take it for the next request on the connection. */
function expectsNoBody(method: string): boolean {
  return method === "GET" || method === "HEAD" || method === "OPTIONS" || method === "TRACE";
}

/**
 * One request and its response on one connection: undici's handler, and the
 * response body at the same time.
 *
 * undici's parser hands over headers, data and end of a small response in one
 * synchronous run. By the first microtask after the headers such a body is here
 * as a whole, and travels as bytes; only what is still coming becomes a stream.
 */
export class Exchange implements Job, NativeBody, Dispatcher.DispatchHandler, Reply {
  status = 0;
  statusText = "";
  headers: HeaderList = [];
  /** The response's bytes that nobody has taken yet. */
  #chunks: Buffer[] = [];
  #buffered = 0;
  #ended = false;
  #error: ProxyError | undefined;
  #sink: Sink | undefined;
  #controller: Dispatcher.DispatchController | undefined;
  #client: Client | undefined;
  #upload: Upload | Buffer | null = null;
  #bodyless = false;
  readonly #hop: Hop;
  readonly #lifetime: Lifetime;
  readonly #pool: OriginPool;
  readonly #resolve: (reply: Reply) => void;
  readonly #reject: (error: ProxyError) => void;

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
    lifetime.onabort = (error) => this.#stop(error);
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
        method: method as Dispatcher.HttpMethod,
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
    this.#lifetime.end();
    this.#error ??= error;
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
    if (status < 200) {
      this.#lifetime.touch();
      return;
    }
    this.status = status;
    this.statusText = statusText ?? "";
    this.headers = toLatin1(controller.rawHeaders as Buffer[]);
    this.#bodyless = this.#hop.method === "HEAD" || status === 204 || status === 304;
    const type = getHeader(this.headers, "content-type");
    this.#lifetime.opened(type !== undefined && /^text\/event-stream\b/i.test(type));
    this.#resolve(this);
  }

  onResponseData(controller: Dispatcher.DispatchController, chunk: Buffer): void {
    this.#lifetime.touch();
    if (this.#sink !== undefined) {
      if (!this.#sink.write(chunk)) this.#pause(controller);
      return;
    }
    this.#chunks.push(chunk);
    this.#buffered += chunk.length;
    // Not held: if nobody ever takes the body, the idle deadline ends it.
    if (this.#buffered >= HIGH_WATER_MARK) controller.pause();
  }

  onResponseEnd(): void {
    this.#ended = true;
    this.#lifetime.end();
    this.#pool.release(this.#client as Client);
    this.#sink?.end();
  }

  onResponseError(_controller: unknown, thrown: Error): void {
    const error = (this.#error ??= toNetworkError(thrown, this.status !== 0));
    this.#lifetime.end();
    this.#pool.discard(this.#client as Client);
    if (this.#upload !== null && "destroy" in this.#upload) this.#upload.destroy();
    this.#chunks = [];
    this.#reject(error);
    this.#sink?.fail(error);
  }

  // ── the response body ──

  get body(): NativeBody | null {
    return this.#bodyless ? null : this;
  }

  /** The whole body, if all of it is here already. */
  whole(): Buffer | undefined {
    if (!this.#ended) return undefined;
    return this.#chunks.length === 1 ? (this.#chunks[0] as Buffer) : Buffer.concat(this.#chunks);
  }

  /** Writes the body to a Node response whose head is written, and ends it. */
  pipe(res: ServerResponse): void {
    const whole = this.whole();
    if (whole !== undefined) {
      res.end(whole);
      return;
    }
    res.on("drain", () => this.#resume());
    // Data first means one write for head and body; no data yet means that the client should have the head now.
    if (this.#chunks.length === 0) res.flushHeaders();
    this.#take({
      write: (chunk) => res.write(chunk),
      end: () => res.end(),
      // The body must not seem whole: no last chunk is written.
      fail: () => res.destroy(),
    });
  }

  /** @param flush whether to begin with an empty piece while nothing is here, so that the head is sent */
  stream(flush = false): ReadableStream<Uint8Array> {
    let sink: ReadableStreamDefaultController<Uint8Array>;
    return new ReadableStream<Uint8Array>(
      {
        start: (controller) => {
          sink = controller;
          if (flush && this.#chunks.length === 0 && !this.#ended) sink.enqueue(new Uint8Array());
          this.#take({
            write: (chunk) => {
              sink.enqueue(chunk);
              return (sink.desiredSize ?? 0) > 0;
            },
            end: () => sink.close(),
            fail: (error) => sink.error(error),
          });
        },
        pull: () => this.#resume(),
        cancel: () => this.destroy(),
      },
      { highWaterMark: HIGH_WATER_MARK, size: (chunk) => chunk.byteLength },
    );
  }

  /** Nobody wants the body (any more). */
  destroy(): void {
    this.#sink = undefined;
    this.#lifetime.end();
    if (!this.#ended) this.#stop(new ProxyError("http_request_error", { status: 499 }));
  }

  #take(sink: Sink): void {
    const chunks = this.#chunks;
    this.#chunks = [];
    let wantsMore = true;
    for (const chunk of chunks) wantsMore = sink.write(chunk);
    if (this.#error !== undefined) return sink.fail(this.#error);
    if (this.#ended) return sink.end();
    this.#sink = sink;
    if (wantsMore) this.#resume();
  }

  #pause(controller: Dispatcher.DispatchController): void {
    controller.pause();
    this.#lifetime.hold(true);
  }

  #resume(): void {
    if (this.#ended || this.#controller?.paused !== true) return;
    this.#lifetime.hold(false);
    this.#controller.resume();
  }

  #stop(error: ProxyError): void {
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
