/**
 * Interceptors for streams, above all for event streams: `fetchway/streams`. One holds the head of a response until its body
 * begins, so that another upstream can take the request as long as the client has got nothing. The other one sends comments to
 * the clients of silent event streams.
 * @module
 */
import { EventReader, type StreamEvent } from "./body/events.ts";
import { HeartbeatBody } from "./body/heartbeatbody.ts";
import { HeldBody } from "./body/held.ts";
import { type BodySource, HIGH_WATER_MARK } from "./body/source.ts";
import { AbandonedAttempt } from "./exchange/repeat.ts";
import { getHeader, type HeaderList, isEventStream } from "./fields/headers.ts";
import { badOption } from "./misuse.ts";
import { callback, milliseconds, millisecondsFrom } from "./schema/kinds.ts";
import { findWrong, isRecord, type Schema } from "./schema/schema.ts";
import { Deadline } from "./transport/deadline.ts";
import type { UpstreamResponse } from "./transport/message.ts";
import type { Interceptor } from "./transport/port.ts";
import type { Scope } from "./transport/scope.ts";

export type { StreamEvent } from "./body/events.ts";
export type { Interceptor } from "./transport/port.ts";

/** Options of `awaitFirstByte`. */
export interface FirstByteOptions {
  /**
   * Milliseconds from the response headers to the first byte of the body, or to the first event of an event stream. `0` for no
   * limit. An upstream that needs longer counts as failed, so do not set it for streams that may begin with a silence.
   */
  firstByteTimeout: number;
  /**
   * Returns the status that an event at the beginning of an event stream stands for: 200 to begin the response with it, or an
   * error such as 503, with which the response then counts for `retry.statusCodes` and for the health of the upstream. With
   * undefined, the stream has not begun, and waits for the next event. By default, each event stands for the status of the
   * response.
   * @example ({ type }) => (type === "error" ? 529 : type === "ping" ? undefined : 200)
   */
  statusOf?: (event: StreamEvent) => number | undefined;
}

const firstByteSchema: Schema<FirstByteOptions> = {
  firstByteTimeout: { kind: milliseconds },
  statusOf: { kind: callback },
};

/**
 * Returns an interceptor for `interceptors.attempt` that holds the head of a response until its body begins: an event stream
 * with its first event, which is not a comment, and any other body with its first byte. At most 64 KiB are held.
 *
 * An attempt has failed if its body does not begin within `firstByteTimeout`, or breaks before, or if its event stream ends
 * without an event. The request is then sent again as after an `attemptTimeout`: its method must be in `retry.methods`, and the
 * upstream may have carried it out already. Error responses are not held: `retry.statusCodes` has those to send again.
 *
 * An event stream with a content coding begins with its first byte. On Workers, a response with a content coding or a
 * `Content-Length` is not held, because the proxy cannot read its body without a change.
 * @throws TypeError that names a bad option and the fix
 * @example
 * ```ts
 * import { createProxy } from "fetchway";
 * import { awaitFirstByte } from "fetchway/streams";
 * import { balance } from "fetchway/upstreams";
 *
 * export default createProxy({
 *   target: balance(["http://127.0.0.1:4000", "http://127.0.0.1:4001"]),
 *   interceptors: { attempt: [awaitFirstByte({ firstByteTimeout: 5000 })] },
 * });
 * ```
 */
export function awaitFirstByte(options: FirstByteOptions): Interceptor {
  check("awaitFirstByte", options, firstByteSchema, "firstByteTimeout");
  return (next) => async (request, scope) => {
    const response = await next(request, scope);
    const { body } = response;
    if (body === null || !isHeld(response, body)) return response;
    return new HeldHead(response, body, options).wait(scope);
  };
}

/** Options of `sendHeartbeats`. */
export interface HeartbeatOptions {
  /** Milliseconds of silence after which the client gets a comment. Intermediaries often close a silent stream after 60 s. */
  interval: number;
}

const heartbeatSchema: Schema<HeartbeatOptions> = {
  interval: { kind: millisecondsFrom(1, "use whole milliseconds from 1") },
};

/**
 * Returns an interceptor for `interceptors.request` that sends a comment (`:` and an empty line) to the client of an event stream
 * that is silent for an interval, so that nothing on the way takes the stream for dead. Clients ignore comments.
 *
 * A comment is only put between two events, or before the first one. An event stream with a content coding or a
 * `Content-Length` gets none.
 * @throws TypeError that names a bad option and the fix
 * @example
 * ```ts
 * import { createProxy } from "fetchway";
 * import { sendHeartbeats } from "fetchway/streams";
 *
 * export default createProxy({
 *   target: "http://127.0.0.1:4000",
 *   interceptors: { request: [sendHeartbeats({ interval: 15_000 })] },
 * });
 * ```
 */
export function sendHeartbeats(options: HeartbeatOptions): Interceptor {
  check("sendHeartbeats", options, heartbeatSchema, "interval");
  const { interval } = options;
  return (next) => async (request, scope) => {
    const response = await next(request, scope);
    const { status, headers, body } = response;
    if (body === null || status !== 200 || !isEventStream(headers)) return response;
    if (hasAny(headers, FIXED)) return response;
    return { ...response, body: new HeartbeatBody(body, interval) };
  };
}

/** The fields of a body that does not remain valid if bytes are added. */
const FIXED = ["content-encoding", "content-length", "content-digest", "repr-digest"];

/** @throws TypeError that names the option and the fix */
function check<Options>(
  name: string,
  options: Options,
  schema: Schema<Options>,
  required: keyof Options & string,
): void {
  if (!isRecord(options) || options[required] === undefined) {
    throw new TypeError(
      `fetchway: ${name} needs \`${required}\`: ${name}({ ${required}: 10_000 })`,
    );
  }
  const wrong = findWrong(options, schema);
  if (wrong !== undefined) throw badOption(...wrong);
}

/**
 * Whether the head of a response has to be held, because its body may not begin. On Workers, whose responses have hints, the proxy
 * must not read a body that has a content coding, which the runtime would undo, or a length, which would be lost.
 */
function isHeld({ status, headers, hints }: UpstreamResponse, body: BodySource): boolean {
  if (status < 200 || status > 299 || status === 205) return false;
  if (hints !== undefined && hasAny(headers, ["content-encoding", "content-length"])) return false;
  return isEventStream(headers) || (body.length !== 0 && !body.buffered);
}

function hasAny(headers: HeaderList, names: readonly string[]): boolean {
  return names.some((name) => getHeader(headers, name) !== undefined);
}

/** A response that waits for the beginning of its body. */
class HeldHead {
  readonly #response: UpstreamResponse;
  readonly #options: FirstByteOptions;
  readonly #body: HeldBody;
  /** Reads an event stream; undefined for any other body, and for an event stream with a content coding. */
  readonly #reader: EventReader | undefined;
  #status: number;
  /** Whether the body has begun, so that the response may be passed on. */
  #hasBegun = false;
  /** What `statusOf` has thrown. It must not reach the transport, which calls `#read` with each chunk. */
  #exception: { readonly thrown: unknown } | undefined;

  constructor(response: UpstreamResponse, body: BodySource, options: FirstByteOptions) {
    const { headers, status } = response;
    this.#response = response;
    this.#options = options;
    this.#status = status;
    this.#body = new HeldBody(body, HIGH_WATER_MARK, (chunk) => this.#read(chunk));
    const isReadable = isEventStream(headers) && !hasAny(headers, ["content-encoding"]);
    this.#reader = isReadable ? new EventReader() : undefined;
  }

  /** Waits until the body begins. Returns the response with the whole body. */
  async wait(scope: Scope): Promise<UpstreamResponse> {
    const isOver = (await this.#collect(scope)) !== undefined;
    const response = this.#response;
    const body = this.#body;
    if (this.#exception !== undefined) {
      body.cancel();
      throw this.#exception.thrown;
    }
    if (isOver && isEventStream(response.headers)) {
      const message = "the event stream ended without an event";
      throw new AbandonedAttempt("http_response_incomplete", { message });
    }
    const status = this.#status;
    return status === response.status
      ? { ...response, body }
      : { ...response, status, statusText: "", body };
  }

  /** Returns all bytes of a body that has ended before it began, and undefined for one that has begun. */
  async #collect(scope: Scope): Promise<Uint8Array | undefined> {
    const { firstByteTimeout } = this.#options;
    let deadline: Deadline | undefined;
    const late = new Promise<never>((_, reject) => {
      if (firstByteTimeout === 0) return;
      deadline = new Deadline(firstByteTimeout, () => {
        const message = `no first byte of the body within ${firstByteTimeout} ms`;
        const error = new AbandonedAttempt("http_response_timeout", { message });
        reject(error);
        scope.failAttempt(error);
        this.#body.cancel(error);
      });
    });
    try {
      return await Promise.race([this.#body.collect(), late]);
    } catch (thrown) {
      if (scope.error !== undefined || thrown instanceof AbandonedAttempt) throw thrown;
      const message = "the body ended before its first byte";
      throw new AbandonedAttempt("http_response_incomplete", { message, cause: thrown });
    } finally {
      deadline?.clear();
    }
  }

  /** Reads a chunk. Returns whether the body has begun. */
  #read(chunk: Uint8Array): boolean {
    if (this.#hasBegun) return true;
    try {
      this.#hasBegun = this.#reader === undefined || this.#readEvents(this.#reader, chunk);
    } catch (thrown) {
      this.#exception = { thrown };
      this.#hasBegun = true;
    }
    return this.#hasBegun;
  }

  #readEvents(reader: EventReader, chunk: Uint8Array): boolean {
    for (const event of reader.read(chunk)) {
      const { statusOf } = this.#options;
      const status = statusOf === undefined ? this.#status : statusOf(event);
      if (status === undefined) continue;
      if (!Number.isInteger(status) || status < 200 || status > 599) {
        throw badOption("statusOf", "return a status from 200 to 599, or undefined");
      }
      this.#status = status;
      return true;
    }
    return false;
  }
}
