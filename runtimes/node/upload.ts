import type { IncomingMessage, ServerResponse } from "node:http";
import type { Lifetime } from "../../src/deadline.ts";
import type { SelfSending } from "../http/upload.ts";
import type { Writer } from "../http/writer.ts";
import { Audience } from "./unseen.ts";

/** The body of a request that Node's server is receiving. */
export class IncomingBody implements SelfSending {
  readonly message: IncomingMessage;
  kept: Buffer | undefined;

  /** @throws TypeError for one that is read as text: its bytes cannot be had any more */
  constructor(message: IncomingMessage) {
    if (message.readableEncoding !== null) {
      throw new TypeError(
        "fetchway: the request's body is read as text; leave out req.setEncoding() before the proxy",
      );
    }
    this.message = message;
  }

  /** The whole body, if all of it has arrived. */
  whole(): Buffer | undefined {
    if (!this.message.complete) return undefined;
    this.kept = (this.message.read() as Buffer | null) ?? Buffer.alloc(0);
    return this.kept;
  }

  sendTo(writer: Writer, lifetime: Lifetime): Promise<void> {
    const { message } = this;
    // With data here, head and data leave in one write; without, the upstream should have the head now.
    if (message.readableLength === 0) writer.flush();
    return new Promise((resolve, reject) => {
      const stop = (): void => {
        stopListening();
        drain(message);
        resolve();
      };
      const attempt = (step: () => void): void => {
        try {
          step();
        } catch (error) {
          reject(error);
          stop();
        }
      };
      writer.onStop(stop);
      const stopListening = onceOver(message, (error) =>
        attempt(() => {
          if (error !== undefined) throw error;
          writer.end();
          resolve();
        }),
      );
      const hadListeners = message.listenerCount("data") + message.listenerCount("readable") > 0;
      message.on("data", (chunk: Buffer) =>
        attempt(() => {
          lifetime.touch();
          if (writer.write(chunk, freeing(audience, chunk))) return;
          message.pause();
          void writer.connection.drained().then(() => message.resume());
        }),
      );
      const audience = new Audience(message, hadListeners);
      // Somebody may have paused it.
      message.resume();
    });
  }

  stream(): ReadableStream<Uint8Array> {
    const { message } = this;
    let stopListening: () => void;
    return new ReadableStream<Uint8Array>(
      {
        start(controller) {
          message.on("data", (chunk: Buffer) => {
            controller.enqueue(chunk);
            if ((controller.desiredSize ?? 0) <= 0) message.pause();
          });
          message.resume();
          stopListening = onceOver(message, (error) =>
            error ? controller.error(error) : controller.close(),
          );
        },
        pull: () => void message.resume(),
        cancel() {
          stopListening();
          drain(message);
        },
      },
      { highWaterMark: 65_536, size: (chunk) => chunk.byteLength },
    );
  }
}

/** Bytes from which on it is worth it. */
const LARGE = 16_384;

/**
 * What gives a chunk's memory back when it has been sent. The collector would do so much later:
 * each chunk's memory would be new then, and to touch that costs more than to copy into it.
 */
function freeing(audience: Audience, chunk: Buffer): (() => void) | undefined {
  const buffer = chunk.buffer as ArrayBuffer & { transfer(length: number): ArrayBuffer };
  const isAll = chunk.byteLength === buffer.byteLength && chunk.byteLength >= LARGE;
  return isAll && audience.isEmpty ? () => void buffer.transfer(0) : undefined;
}

/** Calls back when the message has ended, or cannot any more. */
function onceOver(message: IncomingMessage, callback: (error?: Error) => void): () => void {
  const onEnd = (): void => done();
  const onError = (error: Error): void => done(error);
  const onClose = (): void => {
    if (!message.readableEnded) done(new Error("the client broke off its request body"));
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

/** Keeps what comes before it is sent, where somebody else listens already; what is left when the response is over flows on. */
export function holdBack(message: IncomingMessage, res: ServerResponse): void {
  message.pause();
  res.on("finish", () => message.resume());
}

/** Reads on and throws away: the next request on the connection comes after this body. */
function drain(message: IncomingMessage): void {
  message.removeAllListeners("data");
  message.resume();
}
