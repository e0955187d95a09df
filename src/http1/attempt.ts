import { type Inlet, type Recycler, ResponseBody } from "../body/response.ts";
import { type BodySource, pipe } from "../body/source.ts";
import type { Scope } from "../exchange/scope.ts";
import type { ProxyError } from "../error.ts";
import { isEventStream } from "../fields/headers.ts";
import type { UpstreamRequest, UpstreamResponse } from "../transport.ts";
import { toNetworkError } from "./socketerror.ts";
import type { Place } from "./queue.ts";
import type { Connection } from "./connection.ts";
import type { ResponseHead } from "./head.ts";
import type { Job } from "./job.ts";
import type { Pool } from "./originpool.ts";
import { wholeBody, writeHead, writeHeadEnd } from "./requesthead.ts";
import { sendWhole, Writer } from "./writer.ts";

/** How chunks of bodies share memory with later chunks; without a member, each chunk has memory of its own. */
export interface Memory {
  /** The pooled memory of response bodies. */
  readonly recycler?: Recycler | undefined;
  /** Returns what a connection does with the memory of a request body's chunks: see `Sink`. */
  readonly ofRequests?: (connection: Connection) => "borrowed" | "returned";
}

const OWN_MEMORY: Memory = {};

/** One attempt to send a request. It waits for a connection, writes the request to it, and receives the response. */
export class Attempt implements Job, Inlet {
  readonly fresh: boolean;
  place: Place | undefined;
  #isOver = false;
  #connection: Connection | undefined;
  #pool: Pool | undefined;
  /** The request, until it is written. */
  #request: UpstreamRequest | undefined;
  #head = "";
  readonly #method: string;
  /** The request body, while it is piped to the connection. */
  #upload: BodySource | undefined;
  #writer: Writer | undefined;
  #isAnswered = false;
  /** The response body, once the response headers have arrived. */
  #body: ResponseBody | undefined;
  readonly #scope: Scope;
  readonly #memory: Memory;
  readonly #resolve: (response: UpstreamResponse) => void;
  readonly #reject: (error: ProxyError) => void;

  constructor(
    request: UpstreamRequest,
    scope: Scope,
    resolve: (response: UpstreamResponse) => void,
    reject: (error: ProxyError) => void,
    memory: Memory = OWN_MEMORY,
  ) {
    this.#request = request;
    this.#scope = scope;
    this.#resolve = resolve;
    this.#reject = reject;
    this.#memory = memory;
    this.#method = request.method;
    this.fresh = request.newConnection ?? false;
    scope.onAbort(this);
  }

  /** Sends the request as soon as there is a connection for it. */
  run(pool: Pool): void {
    if (this.#request === undefined) return;
    this.#pool = pool;
    try {
      this.#head = writeHead(this.#request);
    } catch (error) {
      return this.fail(error);
    }
    pool.run(this);
  }

  /** Stops the attempt, however far it has come. */
  fail(thrown: unknown): void {
    // After the end of this attempt, its connection may carry another request.
    if (this.#isOver) return;
    this.#isOver = true;
    const stale = this.#connection?.stale === true;
    const error = toNetworkError(thrown, this.#isAnswered, stale);
    if (this.place !== undefined) this.#pool?.leave(this);
    this.#connection?.destroy();
    this.#leaveBody();
    this.#scope.end();
    this.#reject(error);
    this.#body?.fail(error);
  }

  // ── the request ──

  start(connection: Connection): void {
    this.#connection = connection;
    const { body, contentLength } = this.#request as UpstreamRequest;
    let bytes: Uint8Array | undefined;
    try {
      bytes = body === null ? undefined : wholeBody(body, contentLength);
    } catch (error) {
      return this.fail(error);
    }
    const isPiped = body !== null && bytes === undefined;
    const length = isPiped ? contentLength : (bytes?.byteLength ?? 0);
    const head = this.#head + writeHeadEnd(this.#method, length, connection.keepAlive);
    this.#request = undefined;
    this.#head = "";
    connection.begin(this, this.#method);
    if (!isPiped) return sendWhole(connection, head, bytes);
    this.#upload = body;
    this.#writer = new Writer(connection, head, length, this.#scope, this, this.#memory);
    pipe(body, this.#writer);
  }

  /**
   * Cancels a request body that is not sent to its end. The server then reads the rest and drops it, because the client
   * may not read the response before it has sent the whole request.
   */
  #leaveBody(): void {
    const body = this.#request?.body;
    this.#request = undefined;
    // A body that has arrived as a whole keeps its bytes when they are taken, so that another attempt can send them.
    if (body && takeBytes(body) === undefined) body.cancel();
    this.#stopUpload();
  }

  #stopUpload(): void {
    if (this.#writer?.isOver === false) this.#upload?.cancel();
    this.#upload = undefined;
  }

  // ── the response ──

  /** Whether the client is slow to take the response body. */
  get isPaused(): boolean {
    return this.#body?.isPaused ?? false;
  }

  onHead({ status, statusText, headers, length }: ResponseHead): void {
    this.#isAnswered = true;
    this.#scope.headersReceived(isEventStream(headers));
    const bodyless = this.#method === "HEAD" || status === 204 || status === 304;
    const { recycler } = this.#memory;
    if (!bodyless) {
      const known = length >= 0 ? length : undefined;
      this.#body = new ResponseBody(this.#scope, this, known, recycler);
    }
    this.#resolve({ status, statusText, headers, body: this.#body ?? null });
  }

  onChunk(chunk: Uint8Array): void {
    this.#body?.push(chunk);
  }

  onEnd(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    // Read on: the connection may carry the next request.
    if (this.isPaused) this.#connection?.resume();
    this.#stopUpload();
    if (this.#body === undefined) this.#scope.end();
    else this.#body.end();
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

function takeBytes(body: BodySource): Uint8Array | undefined {
  try {
    return body.whole();
  } catch {
    return undefined;
  }
}
