import type { HeaderList } from "../fields/headers.ts";
import { MisuseError } from "../misuse.ts";
import { copyBytes } from "./memory.ts";
import type { BodySource, Sink, StreamOptions } from "./source.ts";
import { toWebStream } from "./web.ts";

/** A body whose bytes are all in memory; it can be sent more than once. */
export class BytesBody implements BodySource {
  /** The bytes. */
  readonly replay: Uint8Array;
  /** The trailer fields; undefined for none. */
  readonly trailers: HeaderList | undefined;

  /**
   * Makes a body of these bytes, which must not change afterwards.
   * @throws TypeError for any other value, such as an ArrayBuffer: it may have a length, but its bytes would not be sent
   */
  constructor(bytes: Uint8Array, trailers?: HeaderList) {
    if (!(bytes instanceof Uint8Array)) {
      throw new MisuseError(
        "fetchway: the body of `onRequest` or new BytesBody(bytes) must be a Uint8Array; " +
          "use `await new Response(body).bytes()`",
      );
    }
    this.replay = bytes;
    this.trailers = trailers;
  }

  /** The number of bytes. */
  get length(): number {
    return this.replay.byteLength;
  }

  /** The number of bytes that have arrived: all bytes of the body. */
  get buffered(): number {
    return this.replay.byteLength;
  }

  /** Returns the bytes, which the caller must not change or transfer. */
  whole(): Uint8Array {
    return this.replay;
  }

  /** Writes the bytes to a sink in one chunk. */
  pipeTo(sink: Sink): void {
    // A sink that owns its chunks may transfer them. It gets a copy, because the body may be sent again.
    const isOwned = (sink.memory ?? "owned") === "owned";
    if (this.length > 0) sink.write(isOwned ? copyBytes(this.replay) : this.replay);
    sink.end(this.trailers);
  }

  /** Returns a web stream of one chunk, which is a copy of the bytes. */
  stream(options?: StreamOptions): ReadableStream<Uint8Array> {
    return toWebStream(this, options);
  }

  /** Does nothing: the body has no source to stop. */
  cancel(): void {}
}
