import type { IncomingMessage, ServerResponse } from "node:http";
import type { Http2ServerRequest, ServerHttp2Stream } from "node:http2";
import { concat } from "../../src/body/memory.ts";
import type { BodySource, Sink, StreamOptions } from "../../src/body/source.ts";
import { toWebStream } from "../../src/body/web.ts";
import { badRequest, ProxyError } from "../../src/error.ts";
import type { NameSet, HeaderList } from "../../src/fields/headers.ts";
import { cleanTrailerNames, cleanTrailers, MAX_TRAILERS } from "../../src/fields/trailers.ts";
import { copyOf } from "../sockets/buffercodec.ts";
import { freeing, LARGE } from "./chunkmemory.ts";
import { Audience } from "./internals/wrapped.ts";

/**
 * Whether a message has arrived over HTTP/2. Its `httpVersion` does not show this: the client chooses the version, and
 * Node's HTTP/1 parser also accepts 0.9 and 2.0.
 */
export function isHttp2(req: object): req is Http2ServerRequest {
  return "stream" in req;
}

/** The requests whose clients wait for 100 (Continue) before they send the body, if the proxy decides when the 100 is sent. */
export const awaitingContinue: WeakSet<IncomingMessage> = new WeakSet();

/** The body of a request that Node's server is receiving. */
export class IncomingBody implements BodySource {
  readonly message: IncomingMessage;
  replay: Uint8Array | undefined;
  isUntouched = true;
  #stop: (() => void) | undefined;
  /** The names of the trailer fields that are dropped. */
  #dropped: NameSet | undefined;
  /** The value of the request's `Connection`, if the request may have trailer fields. */
  #connection: string | undefined;

  /**
   * Pauses the message. Otherwise a `data` listener that other code adds before the body is sent would make chunks flow, and
   * the upstream would miss those chunks.
   * @throws TypeError for a message that other code reads as text, because its bytes are lost
   */
  constructor(message: IncomingMessage) {
    if (message.readableEncoding !== null) throw new TypeError(`fetchway: ${READ_AS_TEXT}`);
    this.message = message;
    message.pause();
    if (!isHttp2(message)) return;
    closeAfterResponse(message);
    if (!this.awaitsContinue) prefetch(message);
  }

  /** The trailer fields that may be forwarded, once the body has ended; undefined for none. */
  get trailers(): HeaderList | undefined {
    const trailers = trailersOf(this.message);
    if (trailers.length === 0) return undefined;
    return cleanTrailers(trailers, this.#dropped, this.#connection);
  }

  /** Whether the client sends the body only after a 100 (Continue), which it gets when the body is taken. */
  get awaitsContinue(): boolean {
    return awaitingContinue.has(this.message);
  }

  restrictTrailers(dropped: NameSet | undefined, connection: string | undefined): void {
    this.#dropped = dropped;
    this.#connection = connection;
  }

  announceTrailers(names: string): string | undefined {
    return cleanTrailerNames(names, this.#dropped);
  }

  /**
   * Returns the whole body, if all of it has arrived.
   * @throws ProxyError if other code has read from it or called `setEncoding`, or if it has too many trailer fields
   */
  whole(): Uint8Array | undefined {
    const { message } = this;
    assertUnread(message);
    if (!isComplete(message)) return undefined;
    if (trailersOf(message).length > 2 * MAX_TRAILERS) throw tooManyTrailers();
    this.isUntouched = false;
    const chunks: Uint8Array[] = [];
    // From Node 26 on, `read()` returns one buffered chunk instead of all of them.
    for (let chunk; (chunk = message.read() as Buffer | null) !== null;) chunks.push(chunk);
    this.replay = concat(chunks);
    return this.replay;
  }

  async pipeTo(sink: Sink): Promise<void> {
    const { message } = this;
    this.isUntouched = false;
    try {
      assertUnread(message);
    } catch (error) {
      this.cancel();
      return sink.fail(error);
    }
    // If a chunk has arrived, the sink sends it in one write with the head. Otherwise send the head now.
    if (message.readableLength === 0) sink.flush?.();
    // `audience` is needed even if `sink.memory` is not "returned" now: `memory` may change when the sink's connection is
    // established.
    const audience = new Audience(message);
    // The number of bytes that are buffered already. Other code may have added them by `unshift` or `push`, in memory that it
    // still uses.
    let early = message.readableLength;
    await new Promise<void>((resolve) => {
      let isWaiting = false;
      const goOn = (): void => {
        isWaiting = false;
        message.resume();
      };
      const onData = (chunk: Buffer): void => {
        // Other code may have called `setEncoding` during the upload: chunks are then strings, and their bytes are lost.
        if (!((chunk as unknown) instanceof Uint8Array)) return finish(readAsText());
        const isEarly = early > 0;
        early -= chunk.byteLength;
        if (writeChunk(message, chunk, sink, isEarly ? undefined : audience)) return;
        message.pause();
        // Wait only once: other code may have resumed the message while the callback of `onDrain` is pending.
        if (isWaiting) return;
        isWaiting = true;
        sink.onDrain(goOn);
      };
      const finish = (error?: Error): void => {
        stop();
        if (error !== undefined) sink.fail(error);
        else if (trailersOf(message).length > 2 * MAX_TRAILERS) sink.fail(tooManyTrailers());
        else sink.end(this.trailers);
      };
      const stopListening = onceOver(message, finish);
      const stop = (): void => {
        stopListening();
        drain(message, onData);
        resolve();
      };
      this.#stop = stop;
      message.on("data", onData);
      message.resume();
    });
  }

  stream(options?: StreamOptions): ReadableStream<Uint8Array> {
    return toWebStream(this, options);
  }

  /** Reads the rest of the body and drops it, because the next request on the connection comes after this body. */
  cancel(): void {
    this.isUntouched = false;
    if (this.#stop !== undefined) this.#stop();
    // If the client awaits 100 (Continue), do not read: reading would ask the client for a body that nothing needs. Node closes
    // the connection after the response.
    else if (!this.awaitsContinue) this.message.resume();
  }
}

/** Returns the trailer fields as they arrived. Requests that test tools make without a server have none. */
function trailersOf({ rawTrailers }: Partial<IncomingMessage>): HeaderList {
  return rawTrailers ?? [];
}

function tooManyTrailers(): ProxyError {
  return badRequest("trailer section of so many fields");
}

const READ_AS_TEXT = "the request's body is read as text; leave out req.setEncoding()";

function readAsText(): ProxyError {
  return new ProxyError("proxy_internal_error", { message: READ_AS_TEXT });
}

/** The error of a body that other code has read before the handler was called. */
export function alreadyRead(): TypeError {
  return new TypeError(
    "fetchway: the request's body has already been read; put the proxy before body parsers such as express.json()",
  );
}

/**
 * Throws if other code has called `setEncoding`, or has read from the body: the upstream would take the rest for the whole
 * body.
 */
function assertUnread(message: IncomingMessage): void {
  if (message.readableEncoding !== null) throw readAsText();
  if (!message.readableDidRead) return;
  throw new ProxyError("proxy_internal_error", {
    message:
      "other code has read from the request's body before it was sent, or the handler did not return the proxy's promise; " +
      "add `data` listeners only, and leave out req.resume(), req.read() and req.pipe()",
  });
}

/**
 * Makes an HTTP/2 message buffer the beginning of its body. Otherwise, its stream takes no bytes before the first read
 * and while the message is paused, so that even a small body would never arrive with its head.
 */
function prefetch(message: Http2ServerRequest): void {
  message.read(0);
  message.stream.resume();
}

/** Milliseconds between two checks of whether the end of a response has been sent. */
const SENT_INTERVAL = 100;

/**
 * Closes the stream of an HTTP/2 message once the response is complete, if the rest of the request is not needed (RFC 9113
 * §8.1). Otherwise an upload that is refused keeps its stream, and the number of streams that a client may have is limited.
 * Node does this itself only for a body that no code has begun to read.
 */
function closeAfterResponse(message: Http2ServerRequest): void {
  const { stream } = message;
  stream.once("finish", () => closeWhenSent(stream, message));
}

/**
 * Closes the stream of a finished response after its last frame is sent. Does nothing if the client has ended its direction.
 * @param reader reads the remaining bytes of the client
 */
export function closeWhenSent(
  stream: ServerHttp2Stream,
  reader: { resume(): unknown } = stream,
): void {
  const check = (): void => {
    if (stream.destroyed || stream.readableEnded) return;
    // Before the last frame of the response is sent, RST_STREAM would cut the response off.
    if (stream.state.localClose !== 1 && !stream.closed) {
      setTimeout(check, SENT_INTERVAL).unref();
      return;
    }
    stream.close();
    // Unread bytes would keep the stream open as well.
    reader.resume();
  };
  // Node sends the trailer fields, which end the response, in the second turn of the event loop from now.
  setImmediate(setImmediate, check);
}

/**
 * Whether all of a body has arrived. Over HTTP/2, `complete` does not show this: it is false until the body is read, and true
 * for a stream that the client has reset.
 */
function isComplete(message: IncomingMessage): boolean {
  if (!isHttp2(message)) return message.complete;
  const { stream } = message;
  return stream.readableEnded && !stream.aborted;
}

/**
 * Writes a chunk to a sink. `sink.memory` decides whether the sink gets a copy, and whether the chunk's memory is freed once it
 * is sent.
 * @param audience shows whether other code sees the chunk; undefined if other code may see it
 */
function writeChunk(
  message: IncomingMessage,
  chunk: Buffer,
  sink: Sink,
  audience: Audience | undefined,
): boolean {
  const { memory = "owned" } = sink;
  if (memory === "owned") {
    const isAlone = chunk.byteLength === chunk.buffer.byteLength;
    return sink.write(isAlone && message.listenerCount("data") === 1 ? chunk : copyOf(chunk));
  }
  const mayFree = memory === "returned" && chunk.byteLength >= LARGE && audience?.isEmpty === true;
  return sink.write(chunk, mayFree ? freeing(chunk) : undefined);
}

/**
 * Calls back once when the message has ended, or has failed.
 * @returns a function that stops listening
 */
function onceOver(message: IncomingMessage, callback: (error?: Error) => void): () => void {
  // An HTTP/2 stream that the client has reset with NO_ERROR emits `end` like a complete one.
  const onEnd = (): void =>
    done(isHttp2(message) && message.stream.aborted ? endedEarly() : undefined);
  const onError = (error: Error): void => done(error);
  const onClose = (): void => {
    if (!message.readableEnded) done(endedEarly());
  };
  const stop = (): void => {
    message.off("end", onEnd).off("error", onError).off("close", onClose);
    // Keep a listener for `error`: a message that is destroyed later still emits `error`, and Node throws an error that has no
    // listener.
    message.on("error", () => {});
  };
  const done = (error?: Error): void => {
    stop();
    callback(error);
  };
  message.on("end", onEnd).on("error", onError).on("close", onClose);
  if (message.destroyed && !message.readableEnded) queueMicrotask(onClose);
  return stop;
}

function endedEarly(): Error {
  return new Error("the client ended the request body before it was complete");
}

/**
 * After the response has been sent, reads the rest of a request body that other code has begun to read, so that the next
 * request on the connection is read. Node itself does this only for a body that no code has begun to read.
 * @param idle removes listeners that would pause the message again
 */
export function resumeAfter(
  res: ServerResponse,
  message: IncomingMessage,
  idle: () => void = () => {},
): void {
  res.on("finish", () => {
    idle();
    message.resume();
  });
}

/** Removes the proxy's listener, and reads the rest of the body: the next request on the connection comes after the body. */
function drain(message: IncomingMessage, onData: (chunk: Buffer) => void): void {
  message.off("data", onData);
  message.resume();
}
