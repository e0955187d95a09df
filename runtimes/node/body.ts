import type { IncomingMessage, ServerResponse } from "node:http";
import type { Http2ServerResponse } from "node:http2";
import type { Socket } from "node:net";
import { type BodySource, pipe, type Sink } from "../../src/body/source.ts";
import type { HeaderList } from "../../src/transport.ts";
import { returnsMemory } from "./reuse.ts";

/** A body on its way to a response of Node's: srvx calls `pipe` when it has written the head, as `sendResponse` does. */
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
    // Bytes and end go to Node in one call, unless their memory is used again.
    const isWanted = body.error === undefined && this.memory === "borrowed";
    const bytes = isWanted ? body.whole() : undefined;
    if (bytes !== undefined) return void res.end(bytes);
    // A body that was made by the app's code is not told otherwise that its client has left.
    res.on("close", () => body.cancel());
    // Where the body does not tell whether chunks have arrived, the client gets the head at once.
    if (body.buffered === undefined) this.flush();
    pipe(body, this);
  }

  /** Called by srvx instead of `pipe` where the client has left, or sent HEAD. */
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
 * Sends the head before there is any of the body.
 *
 * `flushHeaders()` encodes the head as UTF-8, which changes bytes above 0x7f; before a chunk of bytes, even an empty
 * one, Node writes it as latin1. The first is the rule: middleware that compresses waits for a chunk that is not empty.
 */
export function flushHead(res: ServerResponse, headers: HeaderList): void {
  if (hasObsText(headers)) res.write(EMPTY);
  else res.flushHeaders();
}

/** Whether there are bytes above 0x7f in header fields (RFC 9110 §5.5). */
export function hasObsText(headers: HeaderList): boolean {
  return headers.some((text) => /[\u0080-\u00ff]/.test(text));
}

/** RFC 9113 §7: the stream ends for a fault that is not the client's. */
const INTERNAL_ERROR = 2;

/** Ends a response so that its body cannot seem whole. */
export function breakOff(res: ServerResponse | Http2ServerResponse): void {
  if ("stream" in res) return res.stream.close(INTERNAL_ERROR);
  if (res.destroyed || res.writableFinished) return;
  // A pipelined response has no connection before the ones in front of it are sent, and nothing to destroy.
  if (res.socket === null) {
    // What was written of it is flushed first.
    return void res.once("socket", () => queueMicrotask(() => breakOff(res)));
  }
  if (endsWithConnection(res)) resetSocket(res.socket);
  else res.destroy();
}

/** Whether the connection's end is the end of the body (RFC 9112 §6.3): an orderly one says that the body is whole. */
function endsWithConnection(res: ServerResponse): boolean {
  return !res.chunkedEncoding && !res.useChunkedEncodingByDefault;
}

/**
 * Ends a request's connection where the server under a web stream may not: it ends the connection of HTTP/1.0 in
 * order, as after a whole body; it ends a response as if it were whole, with the error's message in the last chunk
 * (@hono/node-server); and it leaves a pipelined response open that has no connection yet.
 */
export function breakOffRequest(request: IncomingMessage): void {
  const { socket } = request;
  if (request.httpVersion === "1.0") return resetSocket(socket);
  const sent = responseOn(socket);
  if (sent === undefined) return;
  if (sent.req === request) {
    // What the server writes after this is not sent. Where nothing was, it answers with something else.
    if (sent.headersSent) socket.end();
    return;
  }
  // Before Node's own listener, which gives the connection to the next response and writes what that has waiting.
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
 * The response that is being sent on a connection. Node does not document `_httpMessage`: without it, a pipelined
 * response that breaks off leaves its connection open.
 */
function responseOn(socket: Socket): ServerResponse | undefined {
  return (socket as { _httpMessage?: ServerResponse | null })._httpMessage ?? undefined;
}

function resetSocket(socket: Socket): void {
  try {
    socket.resetAndDestroy();
  } catch {
    // Only TCP has resets. A TLS connection ends without close_notify.
    socket.destroy();
  }
}
