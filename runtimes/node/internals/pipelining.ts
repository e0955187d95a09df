/**
 * The order of pipelined requests (RFC 9112 §9.3.2).
 *
 * - Rests on: `socket._httpMessage` is the response that Node writes to the connection now, the first of those that are
 *   not finished; null if there is none. Another response becomes the first before the finished one emits `close`.
 * - Check: the value must have a request with `rawHeaders`.
 * - Otherwise: pipelined requests are sent when they arrive, side by side. Node still sends the responses in order. The
 *   answer to an upgrade, which is written past Node, may come before them.
 * - Test: test/internals.pipelining.node.test.ts, "without the name of the current response". That the order is kept is
 *   tested in test/pipeline.node.test.ts and test/suite/pipelining.ts.
 */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Socket } from "node:net";

/**
 * The property of a connection that holds its current response. Callers compare it with their own response first, because
 * that costs less than a call of `turnOf`.
 */
export const CURRENT = "_httpMessage";

/** A connection of Node's HTTP/1 server. */
export type Served = Socket & { readonly [CURRENT]?: Partial<ServerResponse> | null };

/**
 * Returns the response that Node writes to a connection now.
 * @returns null for no response; undefined if this version of Node does not show it
 */
export function responseOn(socket: Socket): ServerResponse | null | undefined {
  const current = (socket as Served)[CURRENT];
  if (current === null || current === undefined) return current;
  return current.req?.rawHeaders === undefined ? undefined : (current as ServerResponse);
}

/** The list that identifies a message: a wrapper around the message has the same list. */
type Key = IncomingMessage["rawHeaders"];

const SAFE: ReadonlySet<string | undefined> = new Set(["GET", "HEAD", "OPTIONS", "TRACE"]);

/**
 * Returns whether a pipelined request may be sent while an earlier one waits for its response: its method is safe, and it has
 * no `Expect`. To a request with `Expect`, Node itself has answered 100 (Continue), which waits for the request's turn. Node
 * would put a response head that is written earlier in front of that 100, so that the client would take it for body.
 */
function maySendBeside({ method, headers }: IncomingMessage): boolean {
  return SAFE.has(method) && headers.expect === undefined;
}

/** The waiting requests of a connection that has an unsafe request in front of other requests, or behind them. */
class PipelinedConnection {
  readonly #socket: Socket;
  /** The callback of each waiting request, which is called when the response to that request becomes the first. */
  readonly #first: Map<Key, () => void> = new Map();
  /** The callbacks of the safe requests behind each unsafe request, which are called when that one has its response. */
  readonly #behind: Map<Key, (() => void)[]> = new Map();
  /** The last unsafe request without a response. */
  #unsafe: Key | undefined;
  #watched: ServerResponse | undefined;

  constructor(socket: Socket) {
    this.#socket = socket;
  }

  /** Adds a request behind the first one. Returns a promise of its turn, or undefined if it may be sent at once. */
  enter(req: IncomingMessage, first: ServerResponse): Promise<void> | undefined {
    const { rawHeaders } = req;
    if (!SAFE.has(first.req.method)) this.#unsafe ??= first.req.rawHeaders;
    const inFront = this.#unsafe;
    const isSafe = maySendBeside(req);
    if (isSafe && inFront === undefined) return undefined;
    if (!isSafe) this.#unsafe = rawHeaders;
    this.#watch(first);
    return new Promise((resolve) => {
      const other = this.#first.get(rawHeaders);
      // An app may send one request to several upstreams: each of them waits for the same turn.
      this.#first.set(rawHeaders, () => {
        other?.();
        resolve();
      });
      if (!isSafe || inFront === undefined) return;
      const others = this.#behind.get(inFront);
      if (others === undefined) this.#behind.set(inFront, [resolve]);
      else others.push(resolve);
    });
  }

  /** Adds one listener to a response, for all requests that wait behind it. */
  #watch(response: ServerResponse): void {
    if (this.#watched === response) return;
    this.#watched = response;
    response.once("close", () => this.#advance(response));
  }

  #advance(finished: ServerResponse): void {
    // A request that arrived shortly before this event may have begun to watch the next response.
    if (this.#watched === finished) this.#watched = undefined;
    const next = responseOn(this.#socket);
    if (!this.#socket.writable || !next || next === finished) return this.#clear();
    const { rawHeaders } = finished.req;
    if (this.#unsafe === rawHeaders) this.#unsafe = undefined;
    for (const resolve of this.#behind.get(rawHeaders) ?? []) resolve();
    this.#behind.delete(rawHeaders);
    // No unfinished request is in front of the next request any more.
    this.#first.get(next.req.rawHeaders)?.();
    this.#first.delete(next.req.rawHeaders);
    if (this.#unsafe !== undefined || this.#first.size > 0) this.#watch(next);
  }

  #clear(): void {
    this.#unsafe = undefined;
    // On a closed connection, the waiting requests end because their client has disconnected.
    if (this.#socket.writable) for (const resolve of this.#first.values()) resolve();
    this.#first.clear();
    this.#behind.clear();
  }
}

const connections: WeakMap<Socket, PipelinedConnection> = new WeakMap();

/**
 * Returns when all responses on a connection are finished; undefined if they are. The answer to an upgrade is not written
 * by Node, which keeps the order of its own responses only.
 */
export function turnAfterAll(socket: Socket): Promise<void> | undefined {
  const first = responseOn(socket);
  if (!first) return undefined;
  return new Promise((resolve) => {
    const wait = (response: ServerResponse): void => {
      response.once("close", () => {
        const next = responseOn(socket);
        if (!socket.writable || !next || next === response) resolve();
        else wait(next);
      });
    };
    wait(first);
  });
}

/**
 * Returns a promise that resolves when a request may be sent; undefined if that is at once, as nearly always.
 *
 * Node emits pipelined requests as it parses them, and holds back only their responses. Safe requests are sent side by
 * side. An unsafe request, or one with `Expect`, is sent when all requests in front of it have their responses, and the requests behind it when
 * it has its own. So a `PUT` and the `GET` behind it reach the upstream in this order (RFC 9112 §9.3.2).
 */
export function turnOf(req: IncomingMessage): Promise<void> | undefined {
  const { socket } = req;
  const first = responseOn(socket);
  if (!first || first.req.rawHeaders === req.rawHeaders) return undefined;
  let connection = connections.get(socket);
  if (connection === undefined) {
    connection = new PipelinedConnection(socket);
    connections.set(socket, connection);
  }
  return connection.enter(req, first);
}
