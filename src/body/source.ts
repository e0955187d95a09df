import type { HeaderList } from "../transport.ts";

/** The number of bytes that are buffered for a slow reader before the sender is paused. */
export const HIGH_WATER_MARK = 65_536;

/**
 * The destination of a body's chunks: a server's response, a request on a connection, or a web stream.
 *
 * A sink does not throw. It reports a failure on its own side, such as a closed connection, to the code that created
 * the sink, which then cancels the source.
 */
export interface Sink {
  /**
   * Takes one chunk; `memory` says what the sink may do with the chunk's memory from then on.
   * @param release called when the chunk's memory is no longer needed; given only where `memory` is `"returned"`
   * @returns whether there is room for more; after `false`, the source waits for `onDrain`
   */
  write(chunk: Uint8Array, release?: () => void): boolean;
  /** Calls back once when there is room again. A callback costs less than a promise for each request. */
  onDrain(callback: () => void): void;
  /** Sends what precedes the body, such as a message's head, alone: no chunk has arrived yet. */
  flush?(): void;
  /** Ends the body: it is complete. */
  end(trailers?: HeaderList): void;
  /** Ends the body before it is complete: what was written must not look complete to the receiver. */
  fail(reason: unknown): void;
  /**
   * What the sink does with a chunk's memory.
   *
   * - `"owned"`, the default: the sink keeps or transfers the ArrayBuffer, or passes it to other code. So the
   *   ArrayBuffer must hold no other bytes.
   * - `"borrowed"`: the sink only reads the bytes, and keeps no reference. The ArrayBuffer may hold other bytes.
   * - `"returned"`: like `"borrowed"`, but no other code can see the chunk, and the sink calls `release` when the chunk
   *   has been sent.
   */
  readonly memory?: "owned" | "borrowed" | "returned";
}

/**
 * Writes a body to a sink. Where `pipeTo` throws or rejects, the sink is told: nothing else waits for that promise, and
 * on Node a rejection without a handler ends the process. A body of an app's own may do so, and one that is taken twice does.
 */
export function pipe(body: BodySource, sink: Sink): void {
  try {
    if (body.feed !== undefined) body.feed(sink);
    else body.pipeTo(sink).catch((thrown: unknown) => sink.fail(thrown));
  } catch (thrown) {
    sink.fail(thrown);
  }
}

/** The error of a body that is taken for the second time. */
export function alreadyTaken(): TypeError {
  return new TypeError(
    "fetchway: the body has already been taken, or cancelled; a body is taken once",
  );
}

/** Options of the web stream of a body. */
export interface StreamOptions {
  /** Whether the stream fails without a reason: Bun's server prints any reason. */
  readonly quiet?: boolean;
  /** Whether the stream begins with an empty chunk while no other has arrived: srvx sends the head with the first. */
  readonly flush?: boolean;
  /** Called when the body fails, before the stream does. */
  readonly onFail?: (() => void) | undefined;
}

/**
 * The body of a request or a response.
 *
 * A body is taken once: as bytes with `whole()`, into a sink with `pipeTo()`, or as a web stream with `stream()`. The
 * first two cost less than a web stream.
 */
export interface BodySource {
  /**
   * Returns all bytes if all of them have arrived, else undefined.
   * @param limit the number of bytes up to which several chunks are joined; undefined is returned for a longer body
   * @throws ProxyError for a body that has failed
   */
  whole(limit?: number): Uint8Array | undefined;
  /** Writes the body to a sink, with backpressure. Resolves when the sink has been told of the end or the failure. */
  pipeTo(sink: Sink): Promise<void>;
  /** Does as `pipeTo` for callers that do not wait for the end: without promises, a response costs 2 % fewer bytes. */
  feed?(sink: Sink): void;
  /** Returns the body as a web stream. */
  stream(options?: StreamOptions): ReadableStream<Uint8Array>;
  /**
   * Waits a moment for the end of a body whose length nothing tells: a body that ends meanwhile is sent with its length.
   * @returns null for an empty body, else the body to send instead of this one
   */
  measure?(): Promise<BodySource | null>;
  /** Stops the body: the rest is not needed, and nothing more is written. It does nothing to a body that has ended. */
  cancel(reason?: unknown): void;
  /** The bytes of the body, if all of them were kept and can be sent again. */
  readonly replay?: Uint8Array | undefined;
  /** The length of the body in bytes, where it is known. */
  readonly length?: number | undefined;
  /** The number of bytes that have arrived and were not taken yet; undefined where the source does not tell. */
  readonly buffered?: number;
  /** Why the body failed, if it already has. */
  readonly error?: Error | undefined;
  /** The trailer fields, once the body has ended. */
  readonly trailers?: HeaderList | undefined;
}
