/** Keeps a copy of each attempt: the request that is sent to the upstream, and the response. */
import { createHash, type Hash } from "node:crypto";
import {
  type BodySource,
  type HeaderList,
  type Interceptor,
  PassBody,
  PassSink,
  type Release,
  type Scope,
  type Send,
  type Sink,
  type UpstreamRequest,
  type UpstreamResponse,
  type WholeOptions,
} from "#fetchway/transport";

/** Keeps the beginning of a body that is passed on. For a body longer than the limit, it also computes the digest. */
export class Tap {
  /** The number of bytes that have passed. */
  size = 0;
  /** Whether the whole body has passed. */
  isComplete = false;
  readonly #limit: number;
  readonly #kept: Uint8Array[] = [];
  #keptSize = 0;
  #hash: Hash | undefined;

  /** @param limit the number of bytes that are kept */
  constructor(limit: number) {
    this.#limit = limit;
  }

  add(chunk: Uint8Array): void {
    this.size += chunk.byteLength;
    // A body that is kept as a whole needs no digest.
    if (this.#hash === undefined && this.size > this.#limit) {
      this.#hash = createHash("sha256");
      for (const kept of this.#kept) this.#hash.update(kept);
    }
    this.#hash?.update(chunk);
    if (this.#keptSize === this.#limit) return;
    // Copy the bytes, because the sink may detach or free the memory of a chunk that it has written.
    const kept = Uint8Array.from(chunk.subarray(0, this.#limit - this.#keptSize));
    this.#kept.push(kept);
    this.#keptSize += kept.byteLength;
  }

  /** Whether `bytes` is the whole body. */
  get isWhole(): boolean {
    return this.isComplete && this.size === this.#keptSize;
  }

  /** The bytes that were kept. */
  get bytes(): Uint8Array {
    return Buffer.concat(this.#kept);
  }

  /** Returns the digest of a complete body; undefined for any other. */
  digest(): string | undefined {
    if (!this.isComplete) return undefined;
    return (this.#hash ?? createHash("sha256").update(this.bytes)).digest("hex");
  }
}

class TappedBody extends PassBody {
  readonly #tap: Tap;

  constructor(source: BodySource, tap: Tap) {
    super(source);
    this.#tap = tap;
  }

  get buffered(): number | undefined {
    return this.source.buffered;
  }

  get error(): Error | undefined {
    return this.source.error;
  }

  override whole(options?: WholeOptions): Uint8Array | undefined {
    const bytes = this.source.whole(options);
    if (bytes === undefined) return undefined;
    this.#tap.add(bytes);
    this.#tap.isComplete = true;
    return bytes;
  }

  override pipeTo(sink: Sink): void | Promise<void> {
    return this.source.pipeTo(new TappedSink(sink, this.#tap));
  }
}

class TappedSink extends PassSink {
  readonly #tap: Tap;

  constructor(sink: Sink, tap: Tap) {
    super(sink);
    this.#tap = tap;
  }

  override write(chunk: Uint8Array, release?: Release): boolean {
    this.#tap.add(chunk);
    return super.write(chunk, release);
  }

  override end(trailers?: HeaderList): void {
    // Set this first: the exchange may end within `end`, and its entry needs to know that this body is complete.
    this.#tap.isComplete = true;
    super.end(trailers);
  }
}

/** One attempt to send a request to an upstream: both messages, with the first `maxBody` bytes of each body. */
export class CapturedAttempt {
  readonly request: UpstreamRequest;
  /** The version of HTTP; `unknown` if the transport may have chosen HTTP/2. */
  readonly httpVersion: string;
  /** When the attempt began, in milliseconds since 1970. */
  readonly startedAt: number = Date.now();
  /** Milliseconds until the response headers arrived, or until the attempt failed. */
  duration = 0;
  response: UpstreamResponse | undefined;
  /** Why there was no response. */
  error: unknown;
  /** The body of the request; undefined for none. */
  readonly sent: Tap | undefined;
  /** The body of the response; undefined for none. */
  received: Tap | undefined;
  readonly #maxBody: number;
  readonly #start: number = performance.now();

  constructor(request: UpstreamRequest, httpVersion: string, maxBody: number) {
    this.request = request;
    this.httpVersion = httpVersion;
    this.#maxBody = maxBody;
    this.sent = request.body === null ? undefined : new Tap(maxBody);
  }

  /** Sends the request. The bodies of the request and of the returned response are copied as they pass. */
  async send(next: Send, scope: Scope): Promise<UpstreamResponse> {
    const { request, sent } = this;
    const body = sent && request.body && new TappedBody(request.body, sent);
    try {
      const response = await next(body ? { ...request, body } : request, scope);
      this.response = response;
      if (response.body === null) return response;
      this.received = new Tap(this.#maxBody);
      return { ...response, body: new TappedBody(response.body, this.received) };
    } catch (error) {
      this.error = error;
      throw error;
    } finally {
      this.duration = performance.now() - this.#start;
    }
  }
}

/**
 * Returns an interceptor that keeps each attempt.
 * @param isHttp2 whether the transport may choose HTTP/2; it does not report which version it has chosen
 * @param maxBody the number of bytes of each body that are kept
 * @param attemptsOf returns the list of the running exchange's attempts, to which each attempt is added; undefined to keep none
 */
export function captureAttempts(
  isHttp2: boolean,
  maxBody: number,
  attemptsOf: () => CapturedAttempt[] | undefined,
): Interceptor {
  return (next) => (request, scope) => {
    const attempts = attemptsOf();
    if (attempts === undefined) return next(request, scope);
    const httpVersion = (request.upstream.http2 ?? isHttp2) ? "unknown" : "HTTP/1.1";
    const attempt = new CapturedAttempt(request, httpVersion, maxBody);
    attempts.push(attempt);
    return attempt.send(next, scope);
  };
}
