/**
 * A mirror for the option `mirror`: `fetchway/mirror`. It gets copies of requests, and its responses are discarded.
 * @module
 */
import { BytesBody } from "../body/bytes.ts";
import { ReplayBody, replayOf } from "../body/replay.ts";
import { type BodySource, pipe, type Sink } from "../body/source.ts";
import { WatchedBody } from "../body/watched.ts";
import { ProxyError } from "../error.ts";
import { badOption } from "../misuse.ts";
import type { Mirror } from "../options/mirroroptions.ts";
import { mirrorDefaults, mirrorKind, type MirrorSettings } from "../options/mirrorsettings.ts";
import type { WaitUntil } from "../request/incoming.ts";
import { fillIn } from "../schema/schema.ts";
import { assertReachable, parseTarget, type Upstream } from "../target/target.ts";
import { discardBody, type UpstreamRequest } from "../transport/message.ts";
import { type Client, Scope, type Send } from "../transport/scope.ts";

export type { Mirror, MirrorSettings };

/**
 * Returns a mirror for the option `mirror`.
 * @param given where to send the copies: an origin without a path, or an object with a `target` and further settings
 * @throws TypeError that names a bad setting and the fix
 * @example
 * ```ts
 * import { createProxy } from "fetchway";
 * import { mirrorTo } from "fetchway/mirror";
 *
 * export default createProxy({
 *   target: "http://127.0.0.1:4000",
 *   mirror: mirrorTo("http://127.0.0.1:4001"),
 * });
 * ```
 */
export function mirrorTo(given: string | MirrorSettings): Mirror {
  const wrong = mirrorKind.check(given);
  if (wrong !== undefined) throw badOption("mirror", wrong);
  const { target, ...settings } = typeof given === "string" ? { target: given } : given;
  if (target === undefined) throw badOption("mirror", "it needs a `target`");
  const filled = { target, ...fillIn(mirrorDefaults, settings) };
  return {
    copyThrough(transport, send, { timeout, bodyLimit = Infinity }) {
      assertReachable(parseTarget(target), transport);
      // A request whose body is over `bodyLimit` is refused, so that there is nothing to copy.
      const maxBody = Math.min(filled.maxBody, bodyLimit);
      const copier = new Copier({ ...filled, maxBody }, send, timeout || DEFAULT_COPY_TIMEOUT);
      return (request, waitUntil) => copier.copy(request, waitUntil);
    },
  };
}

/**
 * The maximum number of copies that run at the same time. Without it, a mirror that hangs would accumulate connections and
 * bodies.
 */
const MAX_COPIES = 100;

/** The time in milliseconds after which a copy is aborted, if the option `timeout` is not set, or sets no limit. */
const DEFAULT_COPY_TIMEOUT = 60_000;

/**
 * The maximum length in bytes of a response that is read to its end, so that its connection can be reused. A longer
 * response is cancelled.
 */
const MAX_READ = 65_536;

/**
 * The client of a copy never disconnects: the copy continues after the client of the request has its response, or has
 * disconnected.
 */
const NO_CLIENT: Client = { listen() {}, unlisten() {} };

/** Sends copies of requests to another upstream, and discards the responses. */
class Copier {
  readonly #upstream: Upstream;
  readonly #settings: Required<MirrorSettings>;
  readonly #send: Send;
  readonly #timeout: number;
  /** The running copies, from the oldest to the newest, with the times at which they end at the latest. */
  readonly #running: Set<{ readonly end: number }> = new Set();

  /**
   * @param send sends a request through the transport
   * @param timeout the time in milliseconds after which a copy is aborted
   */
  constructor(settings: Required<MirrorSettings>, send: Send, timeout: number) {
    this.#settings = settings;
    this.#upstream = parseTarget(settings.target);
    this.#send = send;
    this.#timeout = timeout;
  }

  /**
   * Sends a copy of a request, if the request is in the sample and the limits allow the copy; an upgrade is never copied. The
   * copy is sent after the request itself, and a body is copied while it is sent to the upstream, so that the request never
   * waits for the mirror.
   * @returns the request to send in place of the given one
   */
  copy(request: UpstreamRequest, waitUntil: WaitUntil | undefined): UpstreamRequest {
    const { sample, maxBody } = this.#settings;
    const { body, contentLength, upgrade } = request;
    if (upgrade !== undefined || this.#isFull()) return request;
    if (sample < 1 && Math.random() >= sample) return request;
    if (body === null) {
      this.#start(request, null, waitUntil);
      return request;
    }
    if ((contentLength ?? body.length ?? 0) > maxBody) return request;
    const kept = new CopiedBody(body, maxBody, contentLength);
    let isOver = false;
    const bodyOver = (): void => {
      if (isOver) return;
      isOver = true;
      // If the body was cut off, or is longer than `maxBody`, `replayOf` returns undefined, and no copy is sent.
      const copied = replayOf(kept);
      if (copied !== undefined) this.#start(request, copied, waitUntil);
    };
    return { ...request, body: new WatchedBody(kept, { bodyOver }) };
  }

  /** Whether the number of running copies is at its limit. */
  #isFull(): boolean {
    // On Workers, nothing reports the end of a copy that ends with its request. Such a copy counts until its time is over.
    for (const copy of this.#running) {
      if (copy.end > performance.now()) break;
      this.#running.delete(copy);
    }
    return this.#running.size >= MAX_COPIES;
  }

  #start(
    { method, path, headers, host, hints }: UpstreamRequest,
    body: BodySource | null,
    waitUntil: WaitUntil | undefined,
  ): void {
    // Other copies may have started since `copy` compared their number with the limit.
    if (this.#isFull()) return;
    const running = { end: performance.now() + this.#timeout };
    this.#running.add(running);
    const request: UpstreamRequest = {
      upstream: this.#upstream,
      method,
      path,
      headers: [...headers],
      hints,
      host,
      body,
      contentLength: body?.length,
    };
    // Send the copy in a later microtask, so that the request itself is sent first.
    const sending = Promise.resolve()
      .then(() => this.#deliver(request))
      .finally(() => void this.#running.delete(running));
    waitUntil?.(sending);
  }

  /** Sends a copy, and reads the response. Never rejects, because the outcome of a copy concerns no client. */
  async #deliver(request: UpstreamRequest): Promise<void> {
    const scope = new Scope(NO_CLIENT, 0, 0);
    let timer: ReturnType<typeof setTimeout> | undefined;
    const late = new Promise<void>((resolve) => {
      timer = setTimeout(resolve, this.#timeout);
    }).then(() => scope.abort(tooLate()));
    try {
      const response = await this.#send(request, scope);
      if (!scope.hasHeaders) scope.headersReceived(false);
      // On Workers, the scope may have ended with the headers, and its abort then does not stop the body.
      if (response.body !== null) await Promise.race([late, readAndDiscard(response.body)]);
      discardBody(response);
    } catch {
      request.body?.cancel();
    } finally {
      clearTimeout(timer);
      scope.end();
    }
  }
}

/** The body of a request that is also copied to the mirror. */
class CopiedBody extends ReplayBody {
  /**
   * Bytes in memory count as untouched until they were sent, so that the next attempt sends this body. If it sent only the
   * bytes, there would be no copy.
   */
  override get isUntouched(): boolean {
    const isUnsent = this.replay === undefined;
    return super.isUntouched || (isUnsent && this.source instanceof BytesBody);
  }
}

function tooLate(): ProxyError {
  return new ProxyError("http_response_timeout", { message: "the mirror took too long" });
}

/** Reads a body and discards it. Resolves when the body has ended or failed, or is longer than `MAX_READ`. */
function readAndDiscard(body: BodySource): Promise<void> {
  return new Promise((resolve) => {
    let bytes = 0;
    const sink: Sink = {
      memory: "borrowed",
      write(chunk) {
        bytes += chunk.byteLength;
        if (bytes > MAX_READ) resolve();
        return true;
      },
      onDrain() {},
      end: () => resolve(),
      fail: () => resolve(),
    };
    pipe(body, sink);
  });
}
