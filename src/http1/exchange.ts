import { concat } from "../body.ts";
import type { Lifetime } from "../deadline.ts";
import { clientGone, type ProxyError } from "../error.ts";
import { isEventStream } from "../headers.ts";
import { discardBody } from "../reply.ts";
import type { HeaderList, Hop, NativeBody, Reply } from "../transport.ts";
import { toNetworkError } from "./socketerror.ts";
import type { Place } from "./queue.ts";
import type { Connection } from "./connection.ts";
import type { ResponseHead } from "./head.ts";
import type { Job, Pool } from "./originpool.ts";
import { settle, writeHead, writeHeadEnd } from "./requesthead.ts";
import {
  HIGH_WATER_MARK,
  type Sink,
  type Source,
  type StreamOptions,
  toWebStream,
} from "./stream.ts";
import { upload } from "./sendbody.ts";
import { Writer } from "./writer.ts";

/**
 * One request and its response on one connection, and the response body at the same time.
 *
 * The parser hands over head, data and end of a small response in one
 * synchronous run. By the first microtask after the head such a body is here
 * as a whole, and travels as bytes; only what is still coming becomes a stream.
 */
export class Exchange implements Job, Source, NativeBody, Reply {
  status = 0;
  statusText = "";
  headers: HeaderList = [];
  readonly fresh: boolean;
  place: Place | undefined;
  /** Why it failed, if it did. */
  error: ProxyError | undefined;
  /** Whether nothing more will happen; */
  #ended = false;
  /** and all of the response is here. */
  #complete = false;
  /** What has come before anybody took the body. */
  #pieces: Uint8Array[] = [];
  #taken = false;
  #buffered = 0;
  /** Bytes that the body is said to be; below 0 where that is not said. */
  #length = 0;
  #sink: Sink | undefined;
  /** Whether its connection has been told to wait. */
  #paused = false;
  #connection: Connection | undefined;
  #pool: Pool | undefined;
  /** What is sent: nothing of it is kept once it has gone. */
  #hop: Hop | undefined;
  #head = "";
  #method: string;
  /** What its body goes through, piece by piece. */
  #writer: Writer | undefined;
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
    this.#method = hop.method;
    this.fresh = hop.fresh ?? false;
    lifetime.request = this;
  }

  /** Sends it as soon as there is a connection for it. */
  run(pool: Pool): void {
    if (this.#hop === undefined) return;
    this.#pool = pool;
    try {
      this.#head = writeHead(this.#hop);
    } catch (error) {
      return this.fail(error);
    }
    pool.run(this);
  }

  // ── the job ──

  /** Whether the memory of a request body's chunk may be freed when the chunk is sent. */
  get freesChunks(): boolean {
    return false;
  }

  get isPaused(): boolean {
    return this.#paused;
  }

  start(connection: Connection): void {
    this.#connection = connection;
    let hop: Hop;
    try {
      hop = settle(this.#hop as Hop);
    } catch (error) {
      return this.fail(error);
    }
    const { body } = hop;
    const head = this.#head + writeHeadEnd(hop, connection.keepAlive);
    this.#hop = undefined;
    this.#head = "";
    connection.begin(this, hop.method);
    if (body !== null && !(body instanceof Uint8Array)) {
      this.#writer = new Writer(connection, head, hop.contentLength, this.freesChunks);
      const failed = (error: unknown): void => this.fail(error);
      upload(this.#writer, body, hop.contentLength, this.#lifetime).catch(failed);
      return;
    }
    const writer = new Writer(connection, head, body?.byteLength ?? 0);
    if (body === null) writer.flush();
    else writer.write(body);
  }

  fail(thrown: unknown): void {
    // The connection is no longer its own then.
    if (this.#ended) return;
    this.#ended = true;
    const stale = this.#connection?.stale === true;
    const error = (this.error = toNetworkError(thrown, this.status !== 0, stale));
    if (this.place !== undefined) this.#pool?.leave(this);
    // What was not sent is not waited for: the client may send it before it reads the answer.
    if (this.#hop !== undefined) discardBody(this.#hop);
    this.#hop = undefined;
    this.#connection?.destroy();
    this.#writer?.stop();
    this.#lifetime.end();
    this.#reject(error);
    this.#sink?.fail(error);
    this.#sink = undefined;
  }

  onHead({ status, statusText, headers, length }: ResponseHead): void {
    this.#length = length;
    this.status = status;
    this.statusText = statusText;
    this.headers = headers;
    this.#lifetime.opened(isEventStream(headers));
    this.#resolve(this);
  }

  onPiece(piece: Uint8Array): void {
    if (this.#ended) return;
    this.#lifetime.touch();
    const sink = this.#sink;
    if (sink === undefined) {
      this.#pieces.push(piece);
      this.#buffered += piece.byteLength;
      // Not held: the idle deadline ends a body that nobody ever takes.
      if (this.#buffered >= HIGH_WATER_MARK) this.#pause();
    } else if (!sink.write(piece) && this.#sink !== undefined) this.#hold();
  }

  onEnd(): void {
    if (this.#ended) return;
    this.#ended = this.#complete = true;
    this.#lifetime.end();
    // The connection is the next one's.
    if (this.#paused) this.#connection?.resume();
    this.#writer?.stop();
    this.#sink?.end();
  }

  // ── the reply, and its body ──

  get body(): NativeBody | null {
    const bodyless = this.#method === "HEAD" || this.status === 204 || this.status === 304;
    return bodyless ? null : this;
  }

  /** Whether nothing of the body is here, and it may be long until there is. */
  get isSilent(): boolean {
    return this.#pieces.length === 0 && !this.#ended;
  }

  /** Whether the rest of the body may be here in a moment: one read takes no more than what is here. */
  get isNearlyWhole(): boolean {
    return this.#buffered > 0 && this.#length <= HIGH_WATER_MARK && this.#length > this.#buffered;
  }

  /**
   * The whole body, if all of it is here already; only once.
   * @param limit bytes up to which several pieces are made one
   * @throws ProxyError if it is known by now that it never will be
   */
  whole(limit: number = Infinity): Uint8Array | undefined {
    if (this.error !== undefined) throw this.error;
    if (!this.#complete) return undefined;
    const several = this.#pieces.length > 1 && this.#buffered > limit;
    return several ? undefined : concat(this.#takePieces());
  }

  take(sink: Sink): void {
    let wantsMore = true;
    if (this.error !== undefined) return sink.fail(this.error);
    for (const piece of this.#takePieces()) wantsMore = sink.write(piece);
    if (this.#complete) return sink.end();
    this.#sink = sink;
    if (wantsMore) this.resume();
    else this.#hold();
  }

  stream(options: StreamOptions = {}): ReadableStream<Uint8Array> {
    return toWebStream(this, { ...options, flush: options.flush === true && this.isSilent });
  }

  resume(): void {
    if (!this.#paused || this.#ended) return;
    this.#paused = false;
    this.#lifetime.hold(false);
    this.#connection?.resume();
  }

  stop(): void {
    this.#sink = undefined;
    this.fail(clientGone());
  }

  /** What was here may be gone by the second time: its buffers are read into again. */
  #takePieces(): Uint8Array[] {
    if (this.#taken) throw new TypeError("fetchway: the response's body has already been taken");
    this.#taken = true;
    return this.#pieces.splice(0);
  }

  /** The client is slow: while it does not take what is here, silence is not the upstream's fault. */
  #hold(): void {
    this.#lifetime.hold(true);
    this.#pause();
  }

  #pause(): void {
    if (this.#paused) return;
    this.#paused = true;
    this.#connection?.pause();
  }
}
