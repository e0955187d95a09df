/** The turns of pipelined requests: a connection's requests are sent one after the other (RFC 9112 §9.3.2). */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { ParserHold } from "./internals/parserhold.ts";
import { responseOn } from "./internals/pipelining.ts";

/**
 * The maximum number of requests of one connection that wait in the app. Above it, the connection is closed. Usually only one
 * request waits, because `ParserHold` then stops the parser. More wait if the app does something asynchronous before it calls
 * the proxy, or if the parser cannot be stopped.
 */
const MAX_WAITING = 1_000;
/** Milliseconds without a write after which a connection is closed, if the proxy has stopped reading from it. */
const STALL_TIMEOUT = 30_000;

/** The list that identifies a message: a wrapper around the message has the same list. */
type Key = IncomingMessage["rawHeaders"];

/** A connection on which a client has sent a request before it had the response to the previous one. */
class PipelinedConnection {
  readonly #socket: Socket;
  /**
   * For each request that waits in the app, the callback for the moment when its response becomes the connection's current one.
   */
  readonly #waiting: Map<Key, () => void> = new Map();
  #hold: ParserHold | undefined;
  #watched: ServerResponse | undefined;

  constructor(socket: Socket) {
    this.#socket = socket;
  }

  /** Makes a request wait behind the connection's current response (`first`). The promise resolves at the request's turn. */
  enter(req: IncomingMessage, first: ServerResponse, stallTimeout: number): Promise<void> {
    if (this.#hold?.isInstalled !== true) {
      this.#hold = ParserHold.install(req, () => this.#watch(), stallTimeout);
    }
    this.#watch(first);
    return new Promise((resolve) => {
      const { rawHeaders } = req;
      const other = this.#waiting.get(rawHeaders);
      // An app may forward one request to several upstreams. All of these calls wait for the same turn.
      this.#waiting.set(rawHeaders, () => {
        other?.();
        resolve();
      });
      if (this.#waiting.size > MAX_WAITING) this.#socket.destroy();
    });
  }

  /** Adds one listener to the connection's current response, for all requests that wait behind it. */
  #watch(response: ServerResponse | null | undefined = responseOn(this.#socket)): void {
    if (!response || this.#watched === response) return;
    this.#watched = response;
    response.once("close", () => this.#advance(response));
  }

  #advance(finished: ServerResponse): void {
    // A request that arrived shortly before this event may have begun to watch the next response.
    if (this.#watched === finished) this.#watched = undefined;
    const next = responseOn(this.#socket);
    // On a closed connection, the waiting requests end because their client has disconnected.
    if (!this.#socket.writable || next === finished) return this.#waiting.clear();
    if (next) this.#call(next.req.rawHeaders);
    else for (const key of this.#waiting.keys()) this.#call(key);
    if (this.#waiting.size > 0) this.#watch();
    this.#hold?.advance();
  }

  #call(key: Key): void {
    this.#waiting.get(key)?.();
    this.#waiting.delete(key);
  }
}

const connections: WeakMap<Socket, PipelinedConnection> = new WeakMap();

/**
 * Returns a promise that resolves when a request may be sent; undefined (the usual case) if it may be sent now.
 *
 * A request is sent when all requests in front of it on its connection have their responses, as in nginx, HAProxy and Envoy.
 * So a connection has at most one request at the upstreams, and a `PUT` and the `GET` behind it reach them in this order.
 */
export function turnOf(
  req: IncomingMessage,
  stallTimeout: number = STALL_TIMEOUT,
): Promise<void> | undefined {
  const { socket } = req;
  const first = responseOn(socket);
  if (!first || first.req.rawHeaders === req.rawHeaders) return undefined;
  let connection = connections.get(socket);
  if (connection === undefined) {
    connection = new PipelinedConnection(socket);
    connections.set(socket, connection);
  }
  return connection.enter(req, first, stallTimeout);
}

/**
 * Returns a promise that resolves when all responses on a connection are finished; undefined if none is open. The answer to an
 * upgrade has to wait for this promise, because Node does not write that answer, and orders only its own responses.
 */
export function turnAfterAll(socket: Socket): Promise<void> | undefined {
  const first = responseOn(socket);
  if (!first) return undefined;
  return new Promise((resolve) => {
    // With the upgrade, Node has removed its own `drain` listener, without which a large response would stop.
    const passDrain = (): void => void responseOn(socket)?.emit("drain");
    socket.on("drain", passDrain);
    const wait = (response: ServerResponse): void => {
      response.once("close", () => {
        const next = responseOn(socket);
        if (socket.writable && next && next !== response) return wait(next);
        socket.off("drain", passDrain);
        // After its last response, the server has set the time limit for idle connections. Clear it: the answer to the
        // upgrade is still to come.
        if (typeof socket.setTimeout === "function") socket.setTimeout(0);
        resolve();
      });
    };
    wait(first);
  });
}
