/**
 * The entry `fetchway/streams`: interceptors for streams, above all for event streams. `awaitFirstByte` holds the response
 * headers until the body begins, so that another upstream can still take the request. `sendHeartbeats` sends comments to the
 * clients of silent event streams.
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
import { assertOptions, isRecord, type Schema } from "./schema/schema.ts";
import { Deadline } from "./transport/deadline.ts";
import type { UpstreamResponse } from "./transport/message.ts";
import type { Interceptor } from "./transport/port.ts";
import type { Scope } from "./transport/scope.ts";

export type { StreamEvent } from "./body/events.ts";
export type { Interceptor } from "./transport/port.ts";

/** Options of `awaitFirstByte`. */
export interface FirstByteOptions {
  /**
   * Milliseconds from the response headers to the first byte of the body; in an event stream, to the event that begins the
   * response. `0` for no limit. If the upstream takes longer, the attempt fails, so set no limit for streams that may be silent
   * at first.
   */
  firstByteTimeout: number;
  /**
   * Called with the first events of an event stream, until it returns a status. That status becomes the status of the response:
   * 200 for success, or an error such as 503, to which `retry.statusCodes` and `balance` react as to any status. Return
   * undefined to wait for the next event. By default, the first event begins the response, whose status is not changed.
   * @example ({ type }) => (type === "error" ? 529 : type === "ping" ? undefined : 200)
   */
  statusOf?: (event: StreamEvent) => number | undefined;
}

const firstByteSchema: Schema<FirstByteOptions> = {
  firstByteTimeout: { kind: milliseconds },
  statusOf: { kind: callback },
};

/**
 * Returns an interceptor for `interceptors.attempt` that holds the response headers until the body begins. An event stream
 * begins with its first event (a comment is not an event), any other body with its first byte. At most 64 KiB are held; then
 * the response begins.
 *
 * The attempt fails if the body does not begin within `firstByteTimeout`, if it fails before it begins, or if an event
 * stream ends without an event. The request is then sent again as after an `attemptTimeout`: its method must be in
 * `retry.methods`, and the upstream may already have processed it. Error responses are not held; see `retry.statusCodes`.
 *
 * An event stream with a content coding begins with its first byte. On Workers, a response with a content coding or a
 * `Content-Length` is not held, because reading the body there would change it.
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
 * Returns an interceptor for `interceptors.request` that sends a comment (`:` and an empty line) to the client of an event
 * stream after each `interval` of silence, so that intermediaries do not close the connection. Clients ignore comments.
 *
 * A comment is sent only between two events, or before the first one. An event stream with a content coding, a `Content-Length`
 * or a digest gets none.
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

/** Fields of a response that would be wrong if bytes were added to the body. */
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
  assertOptions(options, schema);
}

/**
 * Whether the head of a response is held until its body begins. On Workers, whose responses have `hints`, the proxy must not
 * read an encoded body, because the runtime would decode it, nor a body with a length, because the length would be lost.
 */
function isHeld({ status, headers, hints }: UpstreamResponse, body: BodySource): boolean {
  if (status < 200 || status > 299 || status === 205) return false;
  if (hints !== undefined && hasAny(headers, ["content-encoding", "content-length"])) return false;
  return isEventStream(headers) || (body.length !== 0 && !body.buffered);
}

function hasAny(headers: HeaderList, names: readonly string[]): boolean {
  return names.some((name) => getHeader(headers, name) !== undefined);
}

/** A response whose head is held until its body begins. */
class HeldHead {
  readonly #response: UpstreamResponse;
  readonly #options: FirstByteOptions;
  readonly #body: HeldBody;
  /** Reads the events; undefined for a body that is not an event stream, or that has a content coding. */
  readonly #reader: EventReader | undefined;
  #status: number;
  /** Whether the body has begun, so that the response may be passed on. */
  #hasBegun = false;
  /** The exception of `statusOf`, until `wait` throws it. `#read` must not throw it, because the transport calls `#read`. */
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

  /** Waits until the body begins. Returns the response; its body includes the chunks that were held. */
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

  /** Waits until the body begins or exceeds the limit, and returns undefined. If it ends before that, returns all its bytes. */
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

  /** Reads a chunk. Returns whether the body has begun, or `statusOf` has thrown. */
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
