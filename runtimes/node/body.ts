import type { ServerResponse } from "node:http";
import type { Http2ServerResponse } from "node:http2";
import type { ProxyError } from "../../src/error.ts";
import type { NativeBody } from "../../src/transport.ts";

/** Bytes held for a reader that is slow before the upstream is told to wait. */
const HIGH_WATER_MARK = 65_536;

/** Who takes a body as it comes. */
interface Sink {
  /** @returns false if it wants no more for now */
  write(chunk: Buffer): boolean;
  end(): void;
  fail(error: ProxyError): void;
}

/** Where a body comes from. */
export interface Source {
  /** The reader wants more. */
  resume(): void;
  /** Nobody wants the rest. */
  stop(): void;
}

/** What a body wants of its source after a piece. */
export type Want =
  | "more"
  /** The reader is slow. */
  | "hold"
  /** Nobody reads yet. */
  | "wait";

/**
 * A response body between undici, which pushes it, and whoever takes it.
 *
 * Pushed to a reader that is there already it is not kept; without one it is, up to the high-water mark.
 */
export class ResponseBody implements NativeBody {
  #chunks: Buffer[] = [];
  #buffered = 0;
  #ended = false;
  #error: ProxyError | undefined;
  #sink: Sink | undefined;
  readonly #source: Source;

  constructor(source: Source) {
    this.#source = source;
  }

  push(chunk: Buffer): Want {
    if (this.#sink !== undefined) return this.#sink.write(chunk) ? "more" : "hold";
    this.#chunks.push(chunk);
    this.#buffered += chunk.length;
    return this.#buffered < HIGH_WATER_MARK ? "more" : "wait";
  }

  end(): void {
    this.#ended = true;
    this.#sink?.end();
  }

  fail(error: ProxyError): void {
    this.#error = error;
    this.#chunks = [];
    this.#sink?.fail(error);
  }

  /** The whole body, if all of it is here already. */
  whole(): Buffer | undefined {
    if (!this.#ended) return undefined;
    return this.#chunks.length === 1 ? this.#chunks[0] : Buffer.concat(this.#chunks);
  }

  /** Writes the body to a Node response whose head is written, and ends it. */
  pipe(res: ServerResponse): void {
    const whole = this.whole();
    if (whole !== undefined) {
      res.end(whole);
      return;
    }
    res.on("drain", () => this.#source.resume());
    // With data here, head and data leave in one write; without, the client should have the head now.
    if (this.#chunks.length === 0) res.flushHeaders();
    this.#take({
      write: (chunk) => res.write(chunk),
      end: () => res.end(),
      fail: () => breakOff(res),
    });
  }

  /** @param flush whether to begin with an empty piece while nothing is here, so that the head is sent */
  stream(flush = false): ReadableStream<Uint8Array> {
    return new ReadableStream<Uint8Array>(
      {
        start: (controller) => {
          if (flush && this.#chunks.length === 0 && !this.#ended) {
            controller.enqueue(new Uint8Array());
          }
          this.#take({
            write: (chunk) => {
              controller.enqueue(chunk);
              return (controller.desiredSize ?? 0) > 0;
            },
            end: () => controller.close(),
            fail: (error) => controller.error(error),
          });
        },
        pull: () => this.#source.resume(),
        cancel: () => this.destroy(),
      },
      { highWaterMark: HIGH_WATER_MARK, size: (chunk) => chunk.byteLength },
    );
  }

  /** Nobody wants the body (any more). */
  destroy(): void {
    this.#sink = undefined;
    this.#chunks = [];
    if (!this.#ended) this.#source.stop();
  }

  #take(sink: Sink): void {
    const chunks = this.#chunks;
    this.#chunks = [];
    let wantsMore = true;
    for (const chunk of chunks) wantsMore = sink.write(chunk);
    if (this.#error !== undefined) return sink.fail(this.#error);
    if (this.#ended) return sink.end();
    this.#sink = sink;
    if (wantsMore) this.#source.resume();
  }
}

/** RFC 9113 §7: the stream ends for a fault that is not the client's. */
const INTERNAL_ERROR = 2;

/** Ends a response so that its body cannot seem whole. */
export function breakOff(res: ServerResponse | Http2ServerResponse): void {
  if ("stream" in res) res.stream.close(INTERNAL_ERROR);
  else res.destroy();
}
