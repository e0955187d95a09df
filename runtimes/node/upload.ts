import { EventEmitter } from "node:events";
import type { IncomingMessage } from "node:http";
import { toStream } from "../../src/body.ts";
import type { Lifetime } from "../../src/deadline.ts";
import type { Body, NativeBody } from "../../src/transport.ts";

/** The body of a request that Node's server is receiving. */
export class IncomingBody implements NativeBody {
  readonly message: IncomingMessage;
  kept: Buffer | undefined;

  constructor(message: IncomingMessage) {
    this.message = message;
  }

  /** The whole body, if all of it has arrived. */
  whole(): Buffer | undefined {
    if (!this.message.complete) return undefined;
    this.kept = (this.message.read() as Buffer | null) ?? Buffer.alloc(0);
    return this.kept;
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

/** Reads on and throws away: the next request on the connection comes after this body. */
function drain(message: IncomingMessage): void {
  message.removeAllListeners("data");
  message.resume();
}

/**
 * A request body as undici takes it: what looks to it like a stream, and is
 * no more than events and backpressure.
 *
 * It is not the message itself, because undici destroys a body when the upstream answers early,
 * and destroying the message would cut off the client before it has that answer.
 */
export class Upload extends EventEmitter {
  destroyed = false;
  #begun = false;
  readonly #source: Source;

  constructor(source: Source) {
    super();
    this.#source = source;
    // undici stops listening when it is done; an error after that concerns nobody.
    this.on("error", () => {});
  }

  /** undici asks for it to tell streams from iterables. It is never called. */
  pipe(): never {
    throw new Error("not a stream to pipe");
  }

  pause(): this {
    this.#source.pause();
    return this;
  }

  resume(): this {
    if (this.destroyed) return this;
    this.#begun = true;
    this.#source.resume(this);
    return this;
  }

  destroy(): this {
    if (!this.destroyed) {
      this.destroyed = true;
      if (this.#begun) this.#source.stop();
      this.emit("close");
    }
    return this;
  }

  /** It will not be sent, nor the rest of it. */
  abandon(): void {
    this.destroy();
    if (!this.#begun) this.#source.stop();
  }

  /** The same body for another request, where undici has taken nothing of it. */
  again(): Upload {
    return new Upload(this.#source);
  }
}

/** Where an upload's bytes come from. */
interface Source {
  resume(upload: Upload): void;
  pause(): void;
  stop(): void;
}

/** A body, as bytes if it is all here, as events otherwise. Every piece restarts the deadline. */
export function toUpload(body: Body, lifetime: Lifetime): Upload | Buffer | null {
  if (body instanceof IncomingBody) {
    const whole = body.whole();
    if (whole === undefined) return new Upload(fromMessage(body.message, lifetime));
    return whole.length === 0 ? null : whole;
  }
  if (body instanceof Uint8Array) {
    return body.byteLength === 0
      ? null
      : Buffer.from(body.buffer, body.byteOffset, body.byteLength);
  }
  return new Upload(fromStream(toStream(body), lifetime));
}

function fromMessage(message: IncomingMessage, lifetime: Lifetime): Source {
  let stopListening: (() => void) | undefined;
  return {
    resume(upload) {
      if (stopListening === undefined) {
        message.on("data", (chunk: Buffer) => {
          lifetime.touch();
          upload.emit("data", chunk);
        });
        stopListening = onceOver(message, (error) => {
          if (error) upload.emit("error", error);
          else upload.emit("end");
        });
      }
      message.resume();
    },
    pause: () => void message.pause(),
    stop() {
      stopListening?.();
      if (!message.readableEnded) drain(message);
    },
  };
}

function fromStream(stream: ReadableStream<Uint8Array>, lifetime: Lifetime): Source {
  const reader = stream.getReader();
  let paused = true;
  let reading = false;
  let stopped = false;

  async function read(upload: Upload): Promise<void> {
    reading = true;
    try {
      while (!paused && !stopped) {
        const { done, value } = await reader.read();
        if (stopped) return;
        if (done) {
          stopped = true;
          upload.emit("end");
          return;
        }
        lifetime.touch();
        upload.emit("data", value);
      }
    } catch (error) {
      stopped = true;
      upload.emit("error", error);
    } finally {
      reading = false;
    }
  }

  return {
    resume(upload) {
      paused = false;
      if (!reading && !stopped) void read(upload);
    },
    pause() {
      paused = true;
    },
    stop() {
      if (stopped) return;
      stopped = true;
      reader.cancel().catch(() => {});
    },
  };
}
