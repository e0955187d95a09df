import type { BodySource } from "../body/source.ts";
import { type BodyWatcher, WatchedBody } from "../body/watched.ts";
import { placeError, ProxyError } from "../error.ts";
import { getHeader } from "../fields/headers.ts";
import { isPromise } from "../misuse.ts";
import type { RequestEnd, RequestTimings } from "../options/observationoptions.ts";
import type { Incoming } from "../request/incoming.ts";
import type { Upstream } from "../target/target.ts";
import type { UpstreamRequest, UpstreamResponse } from "../transport/message.ts";
import type { ObservedConnection, ScopeObserver } from "../transport/scope.ts";
import type { Tunnel } from "../transport/tunnel.ts";

/** Lets tools outside of the app follow exchanges, for example through a `tracingChannel` of `node:diagnostics_channel`. */
export interface Tracing {
  /** The channel. Nothing is published while it has no subscribers. */
  readonly channel: { readonly hasSubscribers: boolean };
  /**
   * Publishes the start of an exchange, and runs it in the contexts that the subscribers bind.
   * @param run runs the exchange, and calls `end` when the exchange is over
   */
  trace<Result>(incoming: Incoming, run: (end: (event: RequestEnd) => void) => Result): Result;
}

/** The reason with which the proxy cancels a response body that it does not forward. The client is not at fault then. */
export const DISCARDED = "discarded";

/** A function that receives the event of a request when the response is over. */
type ReportEnd = (event: RequestEnd) => unknown;

/**
 * Collects the event that `onRequestEnd` receives for one exchange. An exchange has an `Observation` only if `onRequestEnd` or
 * `serverTiming` is set, or if a tool has subscribed to the runtime's channel.
 *
 * The exchange is over when its response has been passed to the server, and the body or the tunnel of the response, if
 * there is one, has ended, has failed or was cancelled.
 */
export class Observation implements ScopeObserver, BodyWatcher {
  /**
   * The event that is being collected. It is undefined if only the times for `Server-Timing` are collected, and once the
   * event was reported: an attempt or an upload that outlasts the response then changes nothing.
   */
  #event: CollectedEvent | undefined;
  readonly #incoming: Incoming;
  readonly #report: ReportEnd | undefined;
  readonly #trace: ReportEnd | undefined;
  readonly #start: number = performance.now();
  #attemptStart = 0;
  /** Milliseconds that the request has waited in queues since a connection was last assigned to it. */
  queued = 0;
  held = 0;
  attempts = 0;
  #queue: number | undefined;
  #firstByte: number | undefined;
  /** Whether the connection of the last attempt had carried a request before. */
  #isReused: boolean | undefined;
  #connection: ObservedConnection | undefined;
  #protocol: string | undefined;
  /** The upstream of the last attempt. */
  #upstream: Upstream | undefined;
  /** Whether the body or the tunnel of the response is still open. */
  #isOpen = false;

  /**
   * Without `report` and `trace`, only the values for `Server-Timing` are collected.
   * @param report called with the event
   * @param trace called with the event after `report`
   */
  constructor(incoming: Incoming, route?: string, report?: ReportEnd, trace?: ReportEnd) {
    this.#incoming = incoming;
    this.#event = report || trace ? new CollectedEvent(incoming, route) : undefined;
    this.#report = report;
    this.#trace = trace;
  }

  // ── the attempts ──

  /** Called when an attempt begins. Returns the request with a body whose bytes are counted. */
  beginAttempt(request: UpstreamRequest, handsBodiesThrough = false): UpstreamRequest {
    const { upstream, body, contentLength } = request;
    const event = this.#event;
    this.#attemptStart = performance.now();
    this.#protocol = request.upgrade;
    this.#upstream = upstream;
    this.#connection = undefined;
    this.#isReused = undefined;
    this.#queue = undefined;
    this.attempts++;
    if (event === undefined) return request;
    event.upstream =
      upstream.socketPath === undefined ? upstream.origin : `unix:${upstream.socketPath}`;
    event.traceparent = getHeader(request.headers, "traceparent");
    event.bytesIn = handsBodiesThrough && body !== null ? contentLength : 0;
    return body === null || handsBodiesThrough ? request : this.#watchUpload(request, body);
  }

  #watchUpload(request: UpstreamRequest, body: BodySource): UpstreamRequest {
    const bodyTaken = (bytes: number): void => {
      if (this.#event !== undefined) this.#event.bytesIn = bytes;
    };
    return { ...request, body: new WatchedBody(body, { bodyOver() {}, bodyTaken }) };
  }

  /** Called when the transport has a connection for the attempt, which may still have to be established. */
  connectionAssigned(connection: ObservedConnection): void {
    this.#connection = connection;
    this.#isReused = connection.isReused;
    this.#queue = this.queued + performance.now() - this.#attemptStart;
    this.queued = 0;
  }

  headersReceived(): void {
    this.#firstByte = performance.now() - this.#start;
  }

  /** Called when the upstream has responded. Returns the response with a body or a tunnel whose bytes are counted. */
  watch(received: UpstreamResponse, handsBodiesThrough = false): UpstreamResponse {
    const { body, tunnel, webSocket, status } = received;
    const event = this.#event;
    if (event === undefined) return received;
    if (tunnel !== undefined && this.#incoming.watchTunnel !== undefined) {
      return this.#watchTunnel(received, tunnel, event);
    }
    if (status !== 101 && body === null) return received;
    if (webSocket !== undefined || body === null || handsBodiesThrough) {
      event.bytesOut = undefined;
      return received;
    }
    this.#isOpen = true;
    return { ...received, body: new WatchedBody(body, this) };
  }

  #watchTunnel(
    received: UpstreamResponse,
    tunnel: Tunnel,
    event: CollectedEvent,
  ): UpstreamResponse {
    this.#isOpen = true;
    const count = (bytesIn: number, bytesOut: number): void => {
      event.bytesIn = (event.bytesIn ?? 0) + bytesIn;
      event.bytesOut = (event.bytesOut ?? 0) + bytesOut;
    };
    const close = (reason?: unknown): void => this.bodyOver(reason);
    return { ...received, tunnel: this.#incoming.watchTunnel?.(tunnel, close, count) };
  }

  /** Called with the number of bytes of the response body that were taken so far. */
  bodyTaken(bytes: number): void {
    if (this.#event !== undefined) this.#event.bytesOut = bytes;
  }

  /** The value of `Server-Timing`, made from the times that are known when the response headers have arrived. */
  get serverTiming(): string {
    const times = toMetric("queue", this.#queue) + toMetric("connect", this.#connect);
    return `${times}upstream-first-byte;dur=${(this.#firstByte as number).toFixed(1)}`;
  }

  // ── the end ──

  /** Called when the exchange has failed; a response with the error may follow. */
  failed(error: unknown): void {
    if (this.#event !== undefined) this.#event.error = error;
  }

  /** Sets the status of the event from the response, and reports the exchange once the response is over. */
  async conclude(responding: Promise<Response>): Promise<Response> {
    const event = this.#event as CollectedEvent;
    try {
      const response = await responding;
      // On Node, a tunnel through a framework's routes is opened by a 204 without a body (runtimes/node/routeupgrade.ts).
      event.status = this.#isOpen && response.status === 204 ? 101 : response.status;
      return response;
    } catch (thrown) {
      // The promise rejects, and the framework responds with 500.
      event.status = 500;
      event.error = thrown;
      throw thrown;
    } finally {
      this.#finish();
    }
  }

  get #connect(): number | undefined {
    return this.#isReused === true ? undefined : this.#connection?.connectDuration;
  }

  /**
   * Called when the body or the tunnel of the response is over.
   * @param reason the reason why it was cut off; undefined if it is complete
   */
  bodyOver(reason?: unknown): void {
    const event = this.#event;
    if (!this.#isOpen || event === undefined) return;
    this.#isOpen = false;
    if ((reason as ProxyError | undefined)?.cause !== DISCARDED) event.error ??= reason;
    this.#finish();
  }

  #finish(): void {
    const event = this.#event;
    if (event === undefined || this.#isOpen || event.status === 0) return;
    if (event.status === 101) event.protocol = this.#protocol;
    event.reused = this.#isReused;
    // A request that got no connection may have waited as well.
    event.timings.queue = this.#queue ?? (this.queued || undefined);
    event.timings.firstByte = this.#firstByte;
    event.timings.held = this.held || undefined;
    event.attempts = this.attempts;
    event.timings.connect = this.#connect;
    event.timings.total = performance.now() - this.#start;
    this.#event = undefined;
    // The errors of tunnels come from sockets, which do not know the upstream that `explainError` names.
    if (event.error instanceof ProxyError) placeError(event.error, this.#upstream);
    callListener(this.#report, event);
    callListener(this.#trace, event);
  }
}

/** Calls a listener of the app that only observes. If the listener throws or rejects, the exception is printed. */
export function callListener<Event>(
  listener: ((event: Event) => unknown) | undefined,
  event: Event,
): void {
  try {
    const reported = listener?.(event);
    if (isPromise(reported)) reported.then(undefined, printException);
  } catch (thrown) {
    printException(thrown);
  }
}

/** Prints an exception of a hook that only observes. No code awaits such a hook, so nothing else would report its exception. */
function printException(thrown: unknown): void {
  // oxlint-disable-next-line no-console
  console.error(thrown);
}

/** Returns a metric of `Server-Timing` with a separator after it; `""` if the time is not known. */
function toMetric(name: string, time: number | undefined): string {
  return time === undefined ? "" : `upstream-${name};dur=${time.toFixed(1)}, `;
}

/** Returns the authority that the client has named in its request. */
export function namedAuthorityOf(incoming: Incoming): string {
  return incoming.named ?? getHeader(incoming.headers, "host") ?? incoming.authority;
}

type Mutable<Type> = { -readonly [Key in keyof Type]: Type[Key] };

/** An event that is being collected. It is a class, because an object literal with a getter is slow to create. */
class CollectedEvent implements RequestEnd {
  readonly method: string;
  readonly path: string;
  readonly route: string | undefined;
  readonly authority: string;
  readonly clientAddress: string | undefined;
  upstream: string | undefined;
  /** The status; 0 until it is known. */
  status = 0;
  protocol: string | undefined;
  error: unknown;
  attempts = 0;
  reused: boolean | undefined;
  traceparent: string | undefined;
  bytesIn: number | undefined = 0;
  bytesOut: number | undefined = 0;
  readonly startedAt: number = Date.now();
  readonly timings: Mutable<RequestTimings> = {
    held: undefined,
    queue: undefined,
    connect: undefined,
    firstByte: undefined,
    total: 0,
  };
  readonly #incoming: Incoming;

  constructor(incoming: Incoming, route: string | undefined) {
    this.method = incoming.method;
    this.path = incoming.path;
    this.route = route;
    this.authority = namedAuthorityOf(incoming);
    this.clientAddress = incoming.address;
    this.#incoming = incoming;
  }

  get request(): Request {
    return this.#incoming.request();
  }
}
