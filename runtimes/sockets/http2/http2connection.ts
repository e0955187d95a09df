import type { ClientHttp2Session, Settings } from "node:http2";
import { ProxyError } from "../../../src/error.ts";
import type { IdleItem, PooledConnection } from "../../../src/http1/pool.ts";
import type { FilledPoolOptions } from "../../../src/options/pooloptions.ts";
import { Deadline } from "../../../src/transport/deadline.ts";
import type { NetSocket } from "../netsocket.ts";
import { unprocessed } from "./http2errors.ts";
import { MAX_FIELD_BYTES } from "./http2fields.ts";
import { endWhenLost } from "./lostsessions.ts";

/** Node's built-in modules are looked up at run time, because a bundle for another runtime cannot import them. */
const { process } = globalThis as unknown as {
  process: {
    versions: Partial<Record<string, string>>;
    getBuiltinModule(name: "node:http2"): typeof import("node:http2");
    getBuiltinModule(name: "node:timers"): typeof import("node:timers");
  };
};
let runAfterRead: typeof setImmediate | undefined;

/**
 * The maximum number of requests that wait for one connection to be established. RFC 9113 §6.5.2 advises upstreams to allow at
 * least this number of streams.
 */
const ASSUMED_STREAMS = 100;
/** The maximum number of streams on one connection, because many upstreams set no limit and could not keep up with more. */
const MAX_STREAMS = 256;
/**
 * The number of bytes that the upstream may send on one stream while its client is slow. A slow client does not stop other
 * streams: the runtimes enlarge the connection's window again as soon as bytes arrive.
 */
const STREAM_WINDOW = 262_144;
const CONNECTION_WINDOW = 4_194_304;
const MAX_FIELDS = 1024;
/**
 * The number of SETTINGS and PING frames that an upstream may send between two parts of responses or of requests. Each such
 * frame needs an answer, so that a flood of them would keep the event loop busy (CVE-2019-9512, CVE-2019-9515). gRPC's server
 * in Go sends a PING for each DATA frame that it gets, to measure the round-trip time.
 */
const MAX_CONTROL_FRAMES = 1000;

/** The members of an attempt that its connection uses. */
export interface StreamJob {
  /** The number of the attempt's stream; 0 before it has a stream. */
  readonly streamId: number;
  /** Whether the upstream has accepted a WebSocket on the attempt's stream. */
  readonly isTunnel: boolean;
  /** Passes on what `passOnLater` has held back: a response, or the end of its body. */
  passOn(): void;
  /** Ends the attempt, because the connection has failed. */
  fail(error: unknown): void;
}

/** The members of a pool that its connections call. */
export interface Http2Owner<Attempt extends StreamJob> {
  /** Called when the connection is established, so that its attempts can be sent. */
  onOpen(connection: Http2Connection<Attempt>): void;
  /** Called when an attempt has become a tunnel. */
  onSwitch(): void;
  /** Called when there may be room: an attempt is over, or the upstream has sent new SETTINGS. */
  onRelease(connection: Http2Connection<Attempt>): void;
  /** Called when no byte was sent or received for the time of the option `timeout`. */
  onSilence(connection: Http2Connection<Attempt>): void;
  /** Called when the connection is closed, or could not be established. */
  onClose(connection: Http2Connection<Attempt>): void;
}

/** One HTTP/2 connection, which carries several requests at the same time, each on its own stream. */
export class Http2Connection<Attempt extends StreamJob> implements PooledConnection {
  readonly openedAt: number = performance.now();
  /** Milliseconds that it took to establish the connection; undefined until then. */
  connectDuration: number | undefined;
  /** The time until which the connection may be idle, on the clock of `performance.now()`; `Infinity` during a request. */
  idleUntil: number = Infinity;
  previousIdle: IdleItem | undefined;
  nextIdle: IdleItem | undefined;
  /** The upstream's IP address, once the connection is established. */
  address: string | undefined;
  absences = 0;
  /**
   * The requests that are on this connection, or wait until it is established, in the order of the calls. They are in an array
   * for the reason that `watched` in nodeincoming.ts gives.
   */
  readonly attempts: Attempt[] = [];
  /** Milliseconds to open the connection; 0 for no limit. */
  readonly connectTimeout: number;
  /** Whether the connection is established, and the upstream has allowed at least one stream. */
  isOpen = false;
  /** Whether the connection takes no further request. */
  isDraining = false;
  isClosed = false;
  /** Whether the upstream announces WebSockets on streams of this connection (RFC 8441 §3). */
  takesWebSockets = false;
  /** The number of parts of responses that have arrived, which shows whether the connection is alive. */
  activity = 0;
  /** The session, once the socket is connected. */
  session: ClientHttp2Session | undefined;
  readonly #options: FilledPoolOptions;
  readonly #owner: Http2Owner<Attempt>;
  #cancelConnecting: (() => void) | undefined;
  /** The attempts that pass something on after the current read: response headers, or the end of a response body. */
  #answered: Attempt[] = [];
  #limit: number;
  /** The number of SETTINGS and PING frames since the last part of a response or of a request body. */
  #controlFrames = 0;
  /** Whether the time of the option `timeout` has passed, and nothing was sent or received since then. */
  #isSilent = false;
  /** Whether the time of a request has passed while the connection was being opened. */
  #isLate = false;
  #settingsDeadline: Deadline | undefined;
  /** Whether the upstream's SETTINGS have arrived. */
  #hasSettings = false;
  #error: unknown;

  constructor(options: FilledPoolOptions, owner: Http2Owner<Attempt>, connectTimeout: number) {
    this.#options = options;
    this.connectTimeout = connectTimeout;
    this.#owner = owner;
    this.#limit = options.keepAlive ? ASSUMED_STREAMS : 1;
  }

  // ── opening ──

  /** Sets the callback that stops connecting. */
  onCancel(cancel: () => void): void {
    if (this.isClosed) cancel();
    else this.#cancelConnecting = cancel;
  }

  /** Takes the connected socket, and begins the session. The connection is open once the upstream's SETTINGS have arrived. */
  start(socket: NetSocket, origin: string): void {
    this.#cancelConnecting = undefined;
    this.address = socket.remoteAddress;
    const { connectTimeout } = this;
    const { timeout } = this.#options;
    // Deno parses this name as a part of a URL, and throws for the empty name that a connection to an IP address has.
    const named = socket.raw as { servername?: unknown };
    if (named.servername === "") named.servername = false;
    const session = process.getBuiltinModule("node:http2").connect(origin, {
      createConnection: () => socket.raw,
      settings: {
        enablePush: false,
        initialWindowSize: STREAM_WINDOW,
        maxHeaderListSize: MAX_FIELD_BYTES,
      },
      maxHeaderListPairs: MAX_FIELDS,
      // The proxy itself decides which fields may repeat, so Node must not refuse them.
      ...({ strictSingleValueFields: false } as object),
    });
    this.session = session;
    if (connectTimeout > 0) {
      // The limit includes the time that it took to connect the socket.
      const left = Math.max(1, this.openedAt + connectTimeout - performance.now());
      this.#settingsDeadline = new Deadline(left, () => {
        const message = this.#hasSettings
          ? "the upstream allows no HTTP/2 stream"
          : "no HTTP/2 SETTINGS came";
        this.#error = new ProxyError("connection_timeout", { message });
        session.destroy();
      });
    }
    session
      .on("remoteSettings", (settings: Settings) => {
        const { maxConcurrentStreams = Infinity, enableConnectProtocol } = settings;
        this.takesWebSockets ||= enableConnectProtocol === true;
        this.#countControlFrame();
        this.#hasSettings = true;
        // An upstream may allow no stream for a while (RFC 9113 §6.5.2). Requests wait on this connection until then: another
        // connection would allow none either, so that each request would open connections without end.
        if (!this.isOpen && maxConcurrentStreams === 0) return;
        if (this.#options.keepAlive) this.#limit = Math.min(maxConcurrentStreams, MAX_STREAMS);
        if (!this.isOpen && !this.isClosed) this.#open(session);
        else this.#owner.onRelease(this);
      })
      .on("ping", () => this.#countControlFrame())
      .on("goaway", (_code: number, lastStreamId?: number) => this.#drainAfter(lastStreamId))
      .on("error", (error: Error) => {
        this.#error ??= error;
      })
      .on("timeout", () => this.#onTimeout(session))
      .on("close", () => this.#onClose());
    if (timeout > 0) session.setTimeout(timeout);
    // The session may have failed while it was made.
    if (session.destroyed) this.#onClose();
  }

  #open(session: ClientHttp2Session): void {
    this.#settingsDeadline?.clear();
    this.isOpen = true;
    this.connectDuration = performance.now() - this.openedAt;
    // After this call, Bun 1.4 no longer sends WINDOW_UPDATE for streams: a response would stop after the first window.
    if (process.versions["bun"] === undefined) session.setLocalWindowSize(CONNECTION_WINDOW);
    endWhenLost(session);
    this.#owner.onOpen(this);
  }

  /** Fails the requests that wait for this connection, which cannot be established. */
  abandon(error: unknown): void {
    this.#error ??= error;
    this.#onClose();
  }

  // ── requests ──

  /** The number of further requests that the connection can take. */
  get room(): number {
    const isLate = this.#isLate && !this.isOpen;
    return this.isDraining || this.isClosed || isLate ? 0 : this.#limit - this.attempts.length;
  }

  /** Records that a request is sent now. Without the option `keepAlive`, the connection carries no other request. */
  recordRequest(): void {
    this.#isSilent = false;
    if (!this.#options.keepAlive) this.isDraining = true;
  }

  /** Whether a response has arrived on this connection. Since then, the upstream may have closed the idle connection. */
  get isReused(): boolean {
    return this.activity > 0;
  }

  /** Records that a part of a response has arrived. */
  recordActivity(): void {
    this.activity++;
    this.recordSent();
  }

  /** Records that a part of a request body, or of a tunnel, is sent. */
  recordSent(): void {
    this.#controlFrames = 0;
    this.#isSilent = false;
  }

  /** Calls `passOn` of an attempt when the runtime has reported all frames that it has read. */
  passOnLater(attempt: Attempt): void {
    if (this.#answered.push(attempt) > 1) return;
    runAfterRead ??= process.getBuiltinModule("node:timers").setImmediate;
    runAfterRead(passOnAnswered, this);
  }

  /** @internal Passes on what `passOnLater` has held back. */
  passOnAnswered(): void {
    const answered = this.#answered;
    this.#answered = [];
    for (let i = 0; i < answered.length; i++) (answered[i] as Attempt).passOn();
  }

  /** Records that an attempt has become a tunnel. */
  recordSwitch(): void {
    this.#owner.onSwitch();
  }

  /** The number of tunnels among the attempts. */
  get tunnels(): number {
    let count = 0;
    for (const { isTunnel } of this.attempts) if (isTunnel) count++;
    return count;
  }

  /** Removes an attempt; returns whether it was on this connection. */
  remove(attempt: Attempt): boolean {
    const at = this.attempts.indexOf(attempt);
    if (at >= 0) this.attempts.splice(at, 1);
    return at >= 0;
  }

  /** Removes an attempt that is over. */
  release(attempt: Attempt): void {
    if (!this.remove(attempt)) return;
    // Without attempts, no request needs a connection that is draining or still being established.
    if (this.attempts.length === 0 && (this.isDraining || !this.isOpen)) this.destroy();
    if (!this.isClosed) this.#owner.onRelease(this);
  }

  /** Takes no further request, and closes the connection when the current ones are over. */
  drain(): void {
    this.isDraining = true;
    if (this.attempts.length === 0) this.destroy();
  }

  /**
   * Takes no further request after the time of a request has passed. If the connection is still being opened, the other
   * requests wait for it, and once it is open, it takes further requests.
   */
  distrust(): void {
    if (this.isOpen) this.drain();
    else this.#isLate = true;
  }

  /** Makes the connection idle until a time. An idle connection does not keep the process alive. */
  setIdle(until: number): void {
    this.idleUntil = until;
    this.session?.unref();
  }

  /** Takes the connection back into use. */
  setInUse(): void {
    this.idleUntil = Infinity;
    this.session?.ref();
  }

  /** Fails the requests that are on this connection, or wait until it is established. */
  fail(thrown: unknown): void {
    for (const attempt of this.attempts.slice()) attempt.fail(thrown);
  }

  /** Closes the connection, or stops connecting. Its attempts fail. */
  destroy(): void {
    this.isDraining = true;
    const { session } = this;
    // Deno 2.9 hangs if a session is destroyed while it reads frames, as it does in most of the events that lead to this call.
    if (session !== undefined) return void setTimeout(() => session.destroy());
    this.#cancelConnecting?.();
    this.#cancelConnecting = undefined;
    this.#onClose();
  }

  /**
   * Closes a connection on which the upstream sends too many frames. Resetting a stream would not stop them.
   * @param what the limit with the kind of frame, such as `64 interim responses`
   */
  stopFlood(what: string): void {
    const message = `the upstream sent more than ${what}`;
    const error = new ProxyError("http_protocol_error", { message });
    this.#error ??= error;
    this.fail(error);
    this.destroy();
  }

  /**
   * Handles GOAWAY, with which the upstream closes the connection (RFC 9113 §6.8): the upstream has not processed the streams
   * above the last stream that the frame names. An upstream that sends two GOAWAY frames names the highest possible stream in
   * the first, so that no attempt fails then.
   */
  #drainAfter(lastStreamId: number | undefined): void {
    this.isDraining = true;
    for (const attempt of this.attempts.slice()) {
      if (lastStreamId !== undefined && attempt.streamId > lastStreamId) {
        attempt.fail(unprocessed("the upstream has closed the connection"));
      }
    }
    if (this.attempts.length === 0) this.destroy();
  }

  #onTimeout(session: ClientHttp2Session): void {
    // The runtime's timer has ended, and nothing else starts it again while the connection stays silent.
    session.setTimeout(this.#options.timeout);
    this.#isSilent = true;
    // The event loop may have been blocked: let pending reads run before the connection counts as silent.
    setTimeout(() => {
      if (this.#isSilent) this.#owner.onSilence(this);
    }, 1);
  }

  #countControlFrame(): void {
    this.#isSilent = false;
    if (++this.#controlFrames === MAX_CONTROL_FRAMES) {
      this.stopFlood(`${MAX_CONTROL_FRAMES} SETTINGS and PING frames`);
    }
  }

  #onClose(): void {
    if (this.isClosed) return;
    this.isClosed = true;
    this.isDraining = true;
    this.#settingsDeadline?.clear();
    this.fail(this.#toError());
    this.attempts.length = 0;
    this.#owner.onClose(this);
  }

  #toError(): unknown {
    const error = this.#error;
    const { code = "" } = (error ?? {}) as NodeJS.ErrnoException;
    // An established socket that closes before SETTINGS belongs to a server that does not speak HTTP/2.
    const isSilent = error === undefined || code.startsWith("ERR_HTTP2");
    if (this.session === undefined || this.#hasSettings || !isSilent) return error ?? closed();
    return new ProxyError("http_protocol_error", {
      message:
        "the upstream does not speak HTTP/2 at this URL: leave out the option `http2`, " +
        "or write `https:` if the upstream expects TLS",
      cause: error,
    });
  }
}

/** A function outside of the class, so that a response needs no closure. */
function passOnAnswered(connection: Pick<Http2Connection<StreamJob>, "passOnAnswered">): void {
  connection.passOnAnswered();
}

function closed(): ProxyError {
  return new ProxyError("connection_terminated");
}
