import { concat, lengthOf } from "../../src/body.ts";
import type { Lifetime } from "../../src/deadline.ts";
import { ProxyError } from "../../src/error.ts";
import { isEventStream } from "../../src/headers.ts";
import type { Body, HeaderList, Hop, NativeBody, Reply } from "../../src/transport.ts";
import { toNetworkError } from "../pool/errors.ts";
import type { Place } from "../pool/queue.ts";
import type { Connection } from "./connection.ts";
import type { ResponseHead } from "./head.ts";
import type { Job, Pool } from "./pool.ts";
import { writeHead } from "./request.ts";
import { sendWhole, upload } from "./upload.ts";

/** Bytes held for a reader that is slow before the upstream is told to wait. */
const HIGH_WATER_MARK = 65_536;

/**
 * One request and its response on one connection, and the response body at the same time.
 *
 * The parser hands over head, data and end of a small response in one
 * synchronous run. By the first microtask after the head such a body is here
 * as a whole, and travels as bytes; only what is still coming becomes a stream.
 */
export class Exchange implements Job, NativeBody, Reply {
  status = 0;
  statusText = "";
  headers: HeaderList = [];
  /** Whether its client does not take what is here. */
  held = false;
  readonly fresh: boolean;
  place: Place | undefined;
  #error: ProxyError | undefined;
  /** Whether nothing more will happen; */
  #ended = false;
  /** and all of the response is here. */
  #complete = false;
  /** What has come before anybody took the body. */
  #pieces: Uint8Array[] = [];
  #sink: ReadableStreamDefaultController<Uint8Array> | undefined;
  #quiet = false;
  #connection: Connection | undefined;
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
    this.#hop = hop;
    this.#lifetime = lifetime;
    this.#resolve = resolve;
    this.#reject = reject;
    this.fresh = hop.fresh ?? false;
  }

  /** Sends it as soon as there is a connection for it. */
  run(pool: Pool): void {
    this.#pool = pool;
    this.#lifetime.onabort = (error) => this.fail(error);
    pool.run(this);
  }

  // ── the job ──

  start(connection: Connection): void {
    const { method, body } = this.#hop;
    const head = writeHead(this.#hop, connection.keepAlive);
    this.#connection = connection;
    connection.begin(this, method);
    if (body === null || body instanceof Uint8Array) sendWhole(connection, head, body);
    else void this.#upload(connection, head, body);
  }

  fail(thrown: unknown): void {
    // The connection is no longer its own then.
    if (this.#ended) return;
    this.#ended = true;
    this.#error = this.#toError(thrown);
    if (this.place !== undefined) this.#pool?.leave(this);
    this.#connection?.destroy();
    this.#lifetime.end();
    this.#reject(this.#error);
    this.#failSink(this.#error);
  }

  onHead({ status, statusText, headers }: ResponseHead): void {
    this.status = status;
    this.statusText = statusText;
    this.headers = headers;
    this.#resolve(this);
  }

  onPiece(piece: Uint8Array): void {
    if (this.#ended) return;
    const sink = this.#sink;
    if (sink === undefined) return void this.#pieces.push(piece);
    this.#lifetime.touch();
    sink.enqueue(piece);
    // Where nobody reads any more, Deno cancels the stream within enqueue().
    if (this.#sink === undefined || this.held || (sink.desiredSize ?? 0) > 0) return;
    this.#hold(true);
  }

  onEnd(): void {
    if (this.#ended) return;
    this.#ended = this.#complete = true;
    this.#lifetime.end();
    // The connection is the next one's.
    if (this.held) this.#hold(false);
    this.#sink?.close();
  }

  // ── the reply, and its body ──

  get body(): NativeBody | null {
    const bodyless = this.#hop.method === "HEAD" || this.status === 204 || this.status === 304;
    return bodyless ? null : this;
  }

  /**
   * The whole body, if all of it is here already.
   * @param limit bytes up to which several pieces are made one
   * @throws ProxyError if it is known by now that it never will be
   */
  whole(limit: number = Infinity): Uint8Array | undefined {
    if (this.#error !== undefined) throw this.#error;
    if (!this.#complete) return undefined;
    const several = this.#pieces.length > 1 && lengthOf(this.#pieces) > limit;
    return several ? undefined : concat(this.#pieces);
  }

  /** @param quiet whether the stream fails without a reason: Bun's server prints any other */
  stream(quiet = false): ReadableStream<Uint8Array> {
    this.#lifetime.opened(isEventStream(this.headers));
    return new ReadableStream<Uint8Array>(
      {
        start: (controller) => {
          this.#sink = controller;
          this.#quiet = quiet;
          for (const piece of this.#pieces.splice(0)) controller.enqueue(piece);
          if (this.#complete) controller.close();
          else if (this.#error !== undefined) this.#failSink(this.#error);
          else if ((controller.desiredSize ?? 0) <= 0) this.#hold(true);
        },
        pull: () => {
          if (this.held) this.#hold(false);
        },
        cancel: () => {
          this.#sink = undefined;
          this.fail(new ProxyError("http_request_error", { status: 499 }));
        },
      },
      { highWaterMark: HIGH_WATER_MARK, size: (chunk) => chunk.byteLength },
    );
  }

  async #upload(
    connection: Connection,
    head: string,
    body: Exclude<Body, Uint8Array>,
  ): Promise<void> {
    try {
      await upload(connection, head, body, this.#hop.contentLength, this.#lifetime);
    } catch (error) {
      this.fail(error);
    }
  }

  #hold(held: boolean): void {
    this.held = held;
    this.#lifetime.hold(held);
    if (held) this.#connection?.pause();
    else this.#connection?.resume();
  }

  #toError(thrown: unknown): ProxyError {
    const error = toNetworkError(thrown, this.status !== 0);
    if (error.code !== "connection_terminated") return error;
    const { code, cause } = error;
    if (this.status !== 0) return new ProxyError("http_response_incomplete", { cause });
    return this.#connection?.stale ? new ProxyError(code, { cause, stale: true }) : error;
  }

  #failSink(error: ProxyError): void {
    this.#sink?.error(this.#quiet ? undefined : error);
    this.#sink = undefined;
  }
}
