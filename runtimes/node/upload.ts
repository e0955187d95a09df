import type { IncomingMessage, ServerResponse } from "node:http";
import { concat } from "../../src/body.ts";
import type { Lifetime } from "../../src/deadline.ts";
import { ProxyError } from "../../src/error.ts";
import { copyOf } from "../sockets/buffercodec.ts";
import { NetSocket } from "../sockets/netsocket.ts";
import type { SelfSending } from "../../src/http1/sendbody.ts";
import type { Writer } from "../../src/http1/writer.ts";
import { isHttp2 } from "./message.ts";
import { Audience, isUnwrappedSocket } from "./wrapped.ts";

/** The body of a request that Node's server is receiving. */
export class IncomingBody implements SelfSending {
  readonly message: IncomingMessage;
  kept: Uint8Array | undefined;

  /**
   * Pauses the message: code that begins to listen before the body is sent gets no chunk that the upstream does not.
   * @throws TypeError for a body that is read as text: its bytes are lost
   */
  constructor(message: IncomingMessage) {
    if (message.readableEncoding !== null) throw new TypeError(`fetchway: ${READ_AS_TEXT}`);
    this.message = message;
    message.pause();
  }

  /**
   * The whole body, if all of it has arrived.
   * @throws ProxyError if other code has read some of it
   */
  whole(): Uint8Array | undefined {
    const { message } = this;
    assertUnread(message);
    if (!isComplete(message)) return undefined;
    const chunks: Uint8Array[] = [];
    // From Node 26 on, `read()` returns one chunk of several.
    for (let chunk; (chunk = message.read() as Buffer | null) !== null;) chunks.push(chunk);
    this.kept = concat(chunks);
    return this.kept;
  }

  sendTo(writer: Writer, lifetime: Lifetime): Promise<void> {
    const { message } = this;
    assertUnread(message);
    // With data here, head and data leave in one write; without, the upstream should have the head now.
    if (message.readableLength === 0) writer.flush();
    const audience = writer.freesChunks ? new Audience(message) : undefined;
    return new Promise((resolve, reject) => {
      const attempt = (step: () => void): void => {
        try {
          step();
        } catch (error) {
          reject(error);
          stop();
        }
      };
      let isDraining = false;
      const onData = (chunk: Buffer): void =>
        attempt(() => {
          assertBytes(chunk);
          lifetime.touch();
          if (writer.write(chunk, audience && freeing(audience, chunk, writer))) return;
          message.pause();
          // Other code may have the message flow on meanwhile.
          if (isDraining) return;
          isDraining = true;
          void writer.connection.drained().then(goOn);
        });
      const goOn = (): void => {
        isDraining = false;
        message.resume();
      };
      const stopListening = onceOver(message, (error) =>
        attempt(() => {
          if (error !== undefined) throw error;
          writer.end();
          resolve();
        }),
      );
      const stop = (): void => {
        stopListening();
        drain(message, onData);
        resolve();
      };
      writer.onStop(stop);
      message.on("data", onData);
      message.resume();
    });
  }

  stream(): ReadableStream<Uint8Array> {
    const { message } = this;
    let stop: (() => void) | undefined;
    return new ReadableStream<Uint8Array>(
      {
        start(controller) {
          try {
            assertUnread(message);
          } catch (error) {
            message.resume();
            return controller.error(error);
          }
          const onData = (chunk: Buffer): void => {
            try {
              assertBytes(chunk);
            } catch (error) {
              controller.error(error);
              return stop?.();
            }
            controller.enqueue(toOwned(message, chunk));
            if ((controller.desiredSize ?? 0) <= 0) message.pause();
          };
          const stopListening = onceOver(message, (error) =>
            error ? controller.error(error) : controller.close(),
          );
          stop = (): void => {
            stopListening();
            drain(message, onData);
          };
          message.on("data", onData);
          message.resume();
        },
        pull: () => void message.resume(),
        cancel: () => stop?.(),
      },
      { highWaterMark: 65_536, size: (chunk) => chunk.byteLength },
    );
  }
}

const READ_AS_TEXT = "the request's body is read as text; leave out req.setEncoding()";

/** Other code may call `setEncoding` when the upload has begun: then the bytes of a chunk are lost. */
function assertBytes(chunk: unknown): void {
  if (chunk instanceof Uint8Array) return;
  throw new ProxyError("proxy_internal_error", { message: READ_AS_TEXT });
}

/** What is left of a body that other code has read from would look whole to the upstream. */
function assertUnread(message: IncomingMessage): void {
  if (!message.readableDidRead) return;
  throw new ProxyError("proxy_internal_error", {
    message:
      "other code has read from the request's body before it was sent; " +
      "add `data` listeners only, and leave out req.resume(), req.read() and req.pipe()",
  });
}

/** Whether all of a body has arrived. Node calls a stream of HTTP/2 complete that the client has reset. */
function isComplete(message: IncomingMessage): boolean {
  if (!message.complete) return false;
  return !isHttp2(message) || (message.stream.readableEnded && !message.stream.aborted);
}

/** A chunk that the reader of a stream may transfer: nothing else is in its memory, and no other listener has it. */
function toOwned(message: IncomingMessage, chunk: Buffer): Uint8Array {
  const isShared = message.listenerCount("data") > 1;
  return isShared || chunk.byteLength < chunk.buffer.byteLength ? copyOf(chunk) : chunk;
}

/** Chunks below this number of bytes are left to the garbage collector. */
const LARGE = 16_384;

/**
 * Frees a chunk's memory when the chunk is sent. The collector would do so much later, so that each
 * chunk's memory would be new, and to touch that costs more than to copy into it.
 */
function freeing(
  audience: Audience,
  chunk: Buffer,
  { connection }: Writer,
): (() => void) | undefined {
  const buffer = chunk.buffer as ArrayBuffer & { transfer(length: number): ArrayBuffer };
  const isAll = chunk.byteLength === buffer.byteLength && chunk.byteLength >= LARGE;
  return isAll &&
    audience.isEmpty &&
    connection.socket instanceof NetSocket &&
    isUnwrappedSocket(connection.socket.raw)
    ? () => void buffer.transfer(0)
    : undefined;
}

/** Calls back when the message has ended, or cannot any more. */
function onceOver(message: IncomingMessage, callback: (error?: Error) => void): () => void {
  // A stream of HTTP/2 that the client has reset with NO_ERROR ends as a whole one does.
  const onEnd = (): void =>
    done(isHttp2(message) && message.stream.aborted ? brokenOff() : undefined);
  const onError = (error: Error): void => done(error);
  const onClose = (): void => {
    if (!message.readableEnded) done(brokenOff());
  };
  const stop = (): void => {
    message.off("end", onEnd).off("error", onError).off("close", onClose);
    // A message that is destroyed later still emits its error: nobody else listens.
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

function brokenOff(): Error {
  return new Error("the client broke off its request body");
}

/**
 * Has a body that other code has touched flow on when the response is over, so that the next request on the connection
 * is read: Node sees only to bodies that nobody has read.
 * @param idle takes listeners away that would only pause it again
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

/** Reads on: the next request on the connection comes after this body. Other listeners get the rest. */
function drain(message: IncomingMessage, onData: (chunk: Buffer) => void): void {
  message.off("data", onData);
  message.resume();
}
