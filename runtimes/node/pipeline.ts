/** The order of pipelined requests (RFC 9112 §9.3.2). */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Socket } from "node:net";

/**
 * A connection and the response that Node writes to it now: the first of those that are not finished. Node does
 * not document this. Where it is missing, all requests are sent as they come.
 */
type Served = Socket & { readonly _httpMessage?: ServerResponse | null };

/** Stands for a message: a wrapper around the message shows the same list. */
type Key = IncomingMessage["rawHeaders"];

const SAFE: ReadonlySet<string | undefined> = new Set(["GET", "HEAD", "OPTIONS", "TRACE"]);

/** A connection on which a request that is not safe is in front of others, or behind them. */
class Line {
  readonly #socket: Served;
  /** Lets a request go when its own response is the first. */
  readonly #first: Map<Key, () => void> = new Map();
  /** Lets safe requests go when the last that is not safe in front of them has been answered. */
  readonly #behind: Map<Key, (() => void)[]> = new Map();
  /** The last request that is not safe and has not been answered. */
  #unsafe: Key | undefined;
  #watched: ServerResponse | undefined;

  constructor(socket: Served) {
    this.#socket = socket;
  }

  /** Takes in a request behind the first one; resolves when it may be sent. */
  enter({ method, rawHeaders }: IncomingMessage, first: ServerResponse): Promise<void> | undefined {
    if (!SAFE.has(first.req.method)) this.#unsafe ??= first.req.rawHeaders;
    const inFront = this.#unsafe;
    const isSafe = SAFE.has(method);
    if (isSafe && inFront === undefined) return undefined;
    if (!isSafe) this.#unsafe = rawHeaders;
    this.#watch(first);
    return new Promise((resolve) => {
      const other = this.#first.get(rawHeaders);
      // An app may send one request to several upstreams.
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

  /** One listener on each response, however many requests wait behind it. */
  #watch(response: ServerResponse): void {
    if (this.#watched === response) return;
    this.#watched = response;
    response.once("close", () => this.#advance(response));
  }

  #advance(finished: ServerResponse): void {
    // A request that came before this event may have begun to watch the next response.
    if (this.#watched === finished) this.#watched = undefined;
    const next = this.#socket._httpMessage;
    // On a closed connection the waiting requests end because their client has left.
    if (!this.#socket.writable || !next?.req || next === finished) return this.#clear();
    const { rawHeaders } = finished.req;
    if (this.#unsafe === rawHeaders) this.#unsafe = undefined;
    for (const resolve of this.#behind.get(rawHeaders) ?? []) resolve();
    this.#behind.delete(rawHeaders);
    // Nothing is in front of the next request. What it still waits for came behind it, and was taken in earlier.
    this.#first.get(next.req.rawHeaders)?.();
    this.#first.delete(next.req.rawHeaders);
    if (this.#unsafe !== undefined || this.#first.size > 0) this.#watch(next);
  }

  #clear(): void {
    this.#unsafe = undefined;
    // On an open connection nothing is in front of them any more.
    if (this.#socket.writable) for (const resolve of this.#first.values()) resolve();
    this.#first.clear();
    this.#behind.clear();
  }
}

const lines: WeakMap<Socket, Line> = new WeakMap();

/**
 * When a request may be sent; undefined for at once, as nearly always.
 *
 * Node hands out pipelined requests as it parses them, and holds back only their responses. Safe requests go
 * side by side. One that is not safe is sent when all in front of it have been answered, and what stands behind it
 * when it has been. So a `PUT` and the `GET` behind it reach the upstream in this order (RFC 9112 §9.3.2).
 */
export function turnOf(req: IncomingMessage): Promise<void> | undefined {
  const { socket } = req;
  const first = (socket as Served)._httpMessage;
  if (!first?.req || first.req.rawHeaders === req.rawHeaders) return undefined;
  let line = lines.get(socket);
  if (line === undefined) lines.set(socket, (line = new Line(socket)));
  return line.enter(req, first);
}
