import type { IncomingMessage, ServerResponse } from "node:http";
import type { Http2ServerResponse } from "node:http2";
import type { Socket } from "node:net";
import { type BodySource, pipe, type Sink } from "../../src/body/source.ts";
import type { HeaderList } from "../../src/transport.ts";
import { returnsMemory } from "./reuse.ts";

/** Writes a body to a response of Node's. srvx and `sendResponse` call `pipe` after they have written the head. */
export class PipedBody implements Sink {
  readonly #body: BodySource;
  readonly #headers: HeaderList;
  #res!: ServerResponse;
  #onDrain: (() => void) | undefined;
  #isListening = false;

  /** @param headers the fields of the head */
  constructor(body: BodySource, headers: HeaderList) {
    this.#body = body;
    this.#headers = headers;
  }

  /** Sends the body after the head, and ends the response. */
  pipe(res: ServerResponse): void {
    const body = this.#body;
    this.#res = res;
    // Write the bytes and the end in one call, unless the response returns pooled memory: `whole()` would copy it.
    const isWanted = body.error === undefined && this.memory === "borrowed";
    const bytes = isWanted ? body.whole() : undefined;
    if (bytes !== undefined) return void res.end(bytes);
    // A body without `buffered`, such as a web stream of the app's, does not tell whether chunks have arrived: send the
    // head now. No transport fills it either, so nothing else tells it that the client has disconnected.
    if (body.buffered === undefined) {
      this.flush();
      res.on("close", () => body.cancel());
    }
    pipe(body, this);
  }

  /** Cancels the body. srvx calls this instead of `pipe` if the client has disconnected, or sent HEAD. */
  destroy(): void {
    this.#body.cancel();
  }

  get memory(): "borrowed" | "returned" {
    return returnsMemory(this.#res) ? "returned" : "borrowed";
  }

  flush(): void {
    flushHead(this.#res, this.#headers);
  }

  write(chunk: Uint8Array, release?: () => void): boolean {
    return release === undefined ? this.#res.write(chunk) : this.#res.write(chunk, release);
  }

  onDrain(callback: () => void): void {
    this.#onDrain = callback;
    if (this.#isListening) return;
    this.#isListening = true;
    this.#res.on("drain", () => this.#onDrain?.());
  }

  end(): void {
    this.#res.end();
  }

  fail(): void {
    breakOff(this.#res);
  }
}

const EMPTY = new Uint8Array();

/**
 * Sends the head before any chunk of the body has arrived.
 *
 * `flushHeaders()` encodes the head as UTF-8, which changes bytes above 0x7f; before a chunk, even an empty one, Node
 * writes the head as latin1. An empty chunk is written only for such bytes, because middleware that compresses sends
 * nothing before a chunk that is not empty.
 */
export function flushHead(res: ServerResponse, headers: HeaderList): void {
  if (hasObsText(headers)) res.write(EMPTY);
  else res.flushHeaders();
}

/** Whether header fields contain bytes above 0x7f (`obs-text`, RFC 9110 §5.5). */
export function hasObsText(headers: HeaderList): boolean {
  return headers.some((text) => /[\u0080-\u00ff]/.test(text));
}

/** The HTTP/2 error code for a fault that is not the client's (RFC 9113 §7). */
const INTERNAL_ERROR = 2;

/** Aborts a response, so that its body cannot look complete. */
export function breakOff(res: ServerResponse | Http2ServerResponse): void {
  if ("stream" in res) return res.stream.close(INTERNAL_ERROR);
  if (res.destroyed || res.writableFinished) return;
  // A pipelined response has no socket to destroy until the responses in front of it have been sent.
  if (res.socket === null) {
    // Node flushes what was written of the response before the microtask runs.
    return void res.once("socket", () => queueMicrotask(() => breakOff(res)));
  }
  if (endsWithConnection(res)) resetSocket(res.socket);
  else res.destroy();
}

/** Whether the body ends with the connection (RFC 9112 §6.3): an orderly close would then say that it is complete. */
function endsWithConnection(res: ServerResponse): boolean {
  return !res.chunkedEncoding && !res.useChunkedEncodingByDefault;
}

/**
 * Closes the connection of a request whose response failed as a web stream, where the server may not close it. A server
 * may close an HTTP/1.0 connection in order, as after a complete body. It may end the response as if it were complete,
 * with the error's message in the last chunk (@hono/node-server). It may leave a pipelined response open that has no
 * connection yet.
 */
export function breakOffRequest(request: IncomingMessage): void {
  const { socket } = request;
  if (request.httpVersion === "1.0") return resetSocket(socket);
  const sent = responseOn(socket);
  if (sent === undefined) return;
  if (sent.req === request) {
    // Nothing that the server writes after this is sent. If no head was sent yet, the server sends another response.
    if (sent.headersSent) socket.end();
    return;
  }
  // Run before Node's own listener, which assigns the connection to the next response and writes its buffered chunks.
  sent.prependOnceListener("finish", () => {
    socket.cork();
    queueMicrotask(() => {
      if (responseOn(socket)?.req === request) return void socket.destroy();
      breakOffRequest(request);
      socket.uncork();
    });
  });
}

/**
 * Returns the response that is being sent on a connection. Node does not document `_httpMessage`; without it, a
 * pipelined response that fails leaves its connection open.
 */
function responseOn(socket: Socket): ServerResponse | undefined {
  return (socket as { _httpMessage?: ServerResponse | null })._httpMessage ?? undefined;
}

function resetSocket(socket: Socket): void {
  try {
    socket.resetAndDestroy();
  } catch {
    // Only a TCP socket can be reset. A TLS connection is closed without close_notify instead.
    socket.destroy();
  }
}
