import type { IncomingMessage, ServerResponse } from "node:http";
import type { Http2ServerResponse } from "node:http2";
import type { Socket } from "node:net";
import type { HeaderList } from "../../src/transport.ts";
import { Exchange } from "../../src/http1/exchange.ts";
import type { StreamOptions } from "../../src/http1/stream.ts";

/** An exchange whose response body writes itself to a response of Node's: srvx asks for that, too. */
export class NodeExchange extends Exchange {
  /** The header fields that are sent, where they are not the upstream's own. */
  sentHeaders: HeaderList | undefined;
  /** The client's request, if it is known. */
  request: IncomingMessage | undefined;
  /** Whether a server sends the body as a web stream. */
  #isStream = false;

  /** Writes the body to a response whose head is written, and ends it. */
  pipe(res: ServerResponse): void {
    const whole = this.error === undefined ? this.whole() : undefined;
    if (whole !== undefined) return this.end(res, whole);
    res.on("drain", () => this.resume());
    // With data here, head and data leave in one write; without, the client should have the head now.
    if (this.isSilent || this.error !== undefined) flushHead(res, this.sentHeaders ?? this.headers);
    this.take({
      write: (chunk) => this.write(res, chunk),
      end: () => res.end(),
      fail: () => breakOff(res),
    });
  }

  override stream(options?: StreamOptions): ReadableStream<Uint8Array> {
    this.#isStream = true;
    return super.stream(options);
  }

  override stop(): void {
    this.#isStream = false;
    super.stop();
  }

  override fail(thrown: unknown): void {
    super.fail(thrown);
    if (!this.#isStream || this.error === undefined || this.request === undefined) return;
    this.#isStream = false;
    breakOffRequest(this.request);
  }

  protected write(res: ServerResponse, chunk: Uint8Array): boolean {
    return res.write(chunk);
  }

  protected end(res: ServerResponse, chunk: Uint8Array): void {
    res.end(chunk);
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
function breakOffRequest(request: IncomingMessage): void {
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

/** A body of another client's: where it fails, the connection of its request ends as that of an exchange does. */
export function guardStream(
  stream: ReadableStream<Uint8Array>,
  request: IncomingMessage,
): ReadableStream<Uint8Array> {
  const reader = stream.getReader();
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        try {
          const { done, value } = await reader.read();
          if (done) controller.close();
          else controller.enqueue(value);
        } catch (error) {
          breakOffRequest(request);
          controller.error(error);
        }
      },
      cancel: (reason) => reader.cancel(reason),
    },
    { highWaterMark: 0 },
  );
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
