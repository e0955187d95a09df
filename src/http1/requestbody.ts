import type { NativeBody } from "../transport.ts";

/** The body of a request, as the server streams it. */
export class RequestBody implements NativeBody {
  /** All of it, where it was here in one piece: then it can be sent again. */
  kept: Uint8Array | undefined;
  readonly #stream: ReadableStream<Uint8Array>;

  constructor(stream: ReadableStream<Uint8Array>) {
    this.#stream = stream;
  }

  stream(): ReadableStream<Uint8Array> {
    return this.#stream;
  }
}
