import { concat } from "./body.ts";
import type { Body, NativeBody } from "./transport.ts";

/**
 * What can be sent again of a body: all of it, or nothing.
 * @returns undefined for a body that is not kept, or not as a whole
 */
export function keptBody(body: Body | null): Uint8Array | null | undefined {
  if (body === null || body instanceof Uint8Array) return body;
  return body instanceof ReadableStream ? undefined : body.kept;
}

/** A body that is kept while it streams, up to a limit, so that it can be sent again. */
export class KeptBody implements NativeBody {
  readonly #source: ReadableStream<Uint8Array>;
  readonly #limit: number;
  readonly #length: number | undefined;
  #chunks: Uint8Array[] | undefined = [];
  #size = 0;
  #complete = false;

  /** @param length its length in bytes where it is known */
  constructor(source: ReadableStream<Uint8Array>, limit: number, length: number | undefined) {
    this.#source = source;
    this.#limit = limit;
    this.#length = length;
  }

  /** The whole body; undefined before its last byte has passed, and if it was over the limit. */
  get kept(): Uint8Array | undefined {
    return this.#complete ? this.#chunks && concat(this.#chunks) : undefined;
  }

  stream(): ReadableStream<Uint8Array> {
    return this.#source.pipeThrough(
      new TransformStream<Uint8Array, Uint8Array>(
        {
          transform: (chunk, controller): void => {
            this.#keep(chunk);
            controller.enqueue(chunk);
          },
          flush: (): void => {
            this.#complete = true;
          },
        },
        undefined,
        { highWaterMark: 0 },
      ),
    );
  }

  #keep(chunk: Uint8Array): void {
    this.#size += chunk.byteLength;
    // An answer can come before anybody has asked for the end.
    this.#complete = this.#size === this.#length;
    if (this.#size > this.#limit) this.#chunks = undefined;
    // A copy: who reads the stream may write over the bytes.
    else this.#chunks?.push(chunk.slice());
  }
}
