/** On Node: closes the connections of clients that are too slow. */
import type { ServerHttp2Stream } from "node:http2";
import { isAwaitingContinue } from "#fetchway/node";
import {
  type ClientConnection,
  type ClientConnections,
  type ClientStats,
  closeConnection,
  resetConnection,
  type RunningResponse,
} from "./clientconnections.ts";
import { noteEnd } from "./ownanswers.ts";
import { countUnsent } from "./writequeue.ts";

/**
 * The timeouts, in milliseconds; 0 for no limit. Node itself enforces `headersTimeout`, and `keepAliveTimeout` on HTTP/1.1
 * connections.
 */
export interface ClientTimeouts {
  readonly headersTimeout: number;
  readonly bodyTimeout: number;
  readonly sendTimeout: number;
  readonly keepAliveTimeout: number;
}

/** The maximum number of milliseconds between two checks. A timeout takes effect up to two such intervals late. */
const MAX_INTERVAL = 5_000;

/**
 * Returns the milliseconds between two checks of the connections: an eighth of the shortest timeout, but at least 10 and at
 * most `MAX_INTERVAL`.
 */
export function intervalOf({
  headersTimeout,
  bodyTimeout,
  sendTimeout,
  keepAliveTimeout,
}: ClientTimeouts): number {
  const all = [headersTimeout, bodyTimeout, sendTimeout, keepAliveTimeout];
  const shortest = Math.min(...all.filter((ms) => ms > 0)) / 8;
  return Math.max(10, Math.ceil(Math.min(MAX_INTERVAL, shortest)));
}

/** The progress of a request, a response or a connection at the last check. */
interface Seen {
  /** A value that usually changes with progress. */
  progress: number;
  /** A second value, for progress that may leave the first one unchanged. */
  more: number;
  /**
   * Milliseconds without progress: the number of checks without progress times the interval. The clock is not used, because
   * the client can make no progress while the event loop is blocked.
   */
  stalled: number;
}

/** Whether all of a request has arrived. `complete` is set on an HTTP/2 request only when its body has been read. */
function hasEnded(req: RunningResponse["req"]): boolean {
  return "stream" in req ? req.stream.state.remoteClose === 1 || req.complete : req.complete;
}

/** How often a client was too slow: to send the body of a request, or to read a stream or connection. */
export interface SlowCounts {
  body: number;
  read: number;
}

const TIMED_OUT = "HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
/** Half of the receive window of an HTTP/2 stream on Node, in bytes. */
const HALF_WINDOW = 32_768;
/** The HTTP/2 error code for a stream that is no longer needed (RFC 9113 §7). */
const CANCEL = 8;

/**
 * Checks all connections at an interval. One timer for all is cheaper than one for each connection: a check costs little, and
 * a request that ends before the next check costs nothing.
 */
export class ClientWatch {
  readonly counts: SlowCounts = { body: 0, read: 0 };
  readonly #connections: ClientConnections;
  readonly #timeouts: ClientTimeouts;
  readonly #interval: number;
  readonly #timer: NodeJS.Timeout;
  readonly #bodies: WeakMap<object, Seen> = new WeakMap();
  readonly #writes: WeakMap<object, Seen> = new WeakMap();
  /** How often the buffer of an HTTP/2 stream has drained since its first check. */
  readonly #drains: WeakMap<object, { readonly count: number }> = new WeakMap();
  readonly #silences: WeakMap<object, Seen> = new WeakMap();

  constructor(connections: ClientConnections, timeouts: ClientTimeouts) {
    this.#connections = connections;
    this.#timeouts = timeouts;
    this.#interval = intervalOf(timeouts);
    this.#timer = setInterval(() => this.#check(), this.#interval).unref();
  }

  /** Returns the counters of the clients' connections. */
  stats(): ClientStats {
    const { all, tunnels, counts, overload } = this.#connections;
    const { body, read } = this.counts;
    const overloaded = overload?.isActive ? 1 : 0;
    return {
      connections: all.size,
      tunnels,
      ...counts,
      overloaded,
      slowBodies: body,
      slowReaders: read,
    };
  }

  stop(): void {
    clearInterval(this.#timer);
  }

  #check(): void {
    const { bodyTimeout, sendTimeout, keepAliveTimeout } = this.#timeouts;
    for (const [res, connection] of this.#connections.running) {
      if (bodyTimeout > 0) this.#checkBody(res, connection, bodyTimeout);
      // Each HTTP/2 stream has its own window: a client may stop reading one stream and read others.
      if (sendTimeout > 0 && "stream" in res) this.#checkStream(res.stream, sendTimeout);
      if (connection?.session !== undefined) this.#silences.delete(connection);
    }
    if (sendTimeout > 0) {
      for (const stream of this.#connections.streams) this.#checkStream(stream, sendTimeout);
    }
    for (const connection of this.#connections.all) {
      if (sendTimeout > 0) this.#checkWrites(connection, sendTimeout);
      if (keepAliveTimeout > 0) this.#checkSession(connection, keepAliveTimeout);
    }
  }

  /**
   * Closes an HTTP/2 connection that has had no request for `timeout` milliseconds. Frames that begin no request do not count
   * as activity.
   */
  #checkSession(connection: ClientConnection, timeout: number): void {
    const { session, requests, total } = connection;
    if (session === undefined || requests > 0) return;
    if (!this.#isStalled(this.#silences, connection, total, 0, timeout)) return;
    if (session.closed) closeConnection(connection);
    else session.close();
  }

  /** Ends a request whose body makes no progress, unless the client may pause. */
  #checkBody(
    res: RunningResponse,
    connection: ClientConnection | undefined,
    timeout: number,
  ): void {
    const req = res.req;
    const mayPause =
      hasEnded(req) ||
      // The request waits behind another one on its connection, and its body is not read yet.
      (!("stream" in res) && res.socket === null) ||
      // The upstream has not read all bytes that have arrived.
      req.readableLength > 0 ||
      // The upstream has not asked for the body yet.
      isAwaitingContinue(req) ||
      // The upstream has begun to respond before the request has ended. Either side may then wait for the other, as in gRPC.
      (res.headersSent && !res.writableEnded);
    if (mayPause) return void this.#bodies.delete(res);
    let progress = req.socket?.bytesRead ?? 0;
    let more = 0;
    if ("stream" in req) {
      // The window of an HTTP/2 stream shrinks with each byte that arrives, and Node enlarges it again after half of it has
      // been used. After that many bytes, the window may have the same size as at the last check, so `more` counts the bytes
      // of the connection in half windows. Frames without a body, such as pings, are too small to change `more` often.
      progress = req.stream.state.localWindowSize ?? 0;
      more = Math.floor((connection?.raw.bytesRead ?? 0) / HALF_WINDOW);
    }
    if (!this.#isStalled(this.#bodies, res, progress, more, timeout)) return;
    this.counts.body++;
    this.#bodies.delete(res);
    noteEnd("stream" in res ? res.stream : req.socket, 408, `the body stopped for ${timeout} ms`);
    if ("stream" in res) return res.stream.close(CANCEL);
    if (!res.headersSent) req.socket.write(TIMED_OUT);
    req.socket.destroy();
  }

  #checkStream(stream: ServerHttp2Stream, timeout: number): void {
    const unsent = stream.destroyed ? 0 : stream.bufferSize;
    if (unsent === 0) return void this.#writes.delete(stream);
    // Between two checks, the buffer may drain and be filled to the same size again, so count how often it drains.
    let drains = this.#drains.get(stream);
    if (drains === undefined) {
      const counted = { count: 0 };
      stream.on("drain", () => void counted.count++);
      this.#drains.set(stream, counted);
      drains = counted;
    }
    if (!this.#isStalled(this.#writes, stream, unsent, drains.count, timeout)) return;
    this.counts.read++;
    stream.close(CANCEL);
  }

  /** Closes a connection, or a tunnel, whose client does not read what is sent to it. */
  #checkWrites(connection: ClientConnection, timeout: number): void {
    const { socket, raw } = connection;
    const { writableLength } = socket;
    const unsent = countUnsent(socket);
    if (writableLength === 0 && unsent === 0) return void this.#writes.delete(connection);
    const written = socket.bytesWritten - writableLength;
    if (!this.#isStalled(this.#writes, connection, written, unsent, timeout)) return;
    this.counts.read++;
    // A graceful close would leave unsent bytes in the kernel, and the response could look complete.
    resetConnection(socket);
    raw.destroy();
  }

  /** Returns whether `progress` and `more` have not changed for `timeout` milliseconds. */
  #isStalled(
    seen: WeakMap<object, Seen>,
    of: object,
    progress: number,
    more: number,
    timeout: number,
  ): boolean {
    const last = seen.get(of);
    if (last === undefined) {
      seen.set(of, { progress, more, stalled: 0 });
      return false;
    }
    if (last.progress === progress && last.more === more) last.stalled += this.#interval;
    else {
      last.progress = progress;
      last.more = more;
      last.stalled = 0;
    }
    return last.stalled >= timeout;
  }
}
