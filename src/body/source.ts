import type { HeaderList } from "../transport.ts";

/** Bytes that are buffered for a slow reader before the sender is told to wait. */
export const HIGH_WATER_MARK = 65_536;

/**
 * Where the chunks of a body go: a server's response, a request on a connection, a web stream.
 *
 * A sink does not throw. What goes wrong on its own side, such as a connection that closes, it reports to
 * whoever made it, who then cancels the source.
 */
export interface Sink {
  /**
   * Takes one chunk, which is the sink's from then on, as far as `memory` says.
   * @param release called when the chunk's memory is no longer needed, where `memory` is `"returned"`
   * @returns whether there is room for more; after `false`, the source waits for `onDrain`
   */
  write(chunk: Uint8Array, release?: () => void): boolean;
  /** Calls back once when there is room again. A callback costs a request less than a promise. */
  onDrain(callback: () => void): void;
  /** No chunk has arrived yet: what goes in front of the body, such as a message's head, may be sent alone. */
  flush?(): void;
  /** The body is complete. */
  end(trailers?: HeaderList): void;
  /** The body broke off: what was written must not look complete. */
  fail(reason: unknown): void;
  /**
   * What the sink does with a chunk's memory.
   *
   * - `"owned"`, the default: it keeps or transfers the ArrayBuffer, or hands it to other code. Nothing else is in it.
   * - `"borrowed"`: it reads the bytes and lets go of them. The memory may hold other bytes beside them.
   * - `"returned"`: as borrowed, no other code can see the chunk, and `release` is called when it is sent.
   */
  readonly memory?: "owned" | "borrowed" | "returned";
}

/**
 * Writes a body to a sink. Where `pipeTo` throws or rejects, the sink is told: nothing else waits for that promise, and
 * on Node a rejection without a handler ends the process. A body of an app's own may do so, and one that is taken twice does.
 */
export function pipe(body: BodySource, sink: Sink): void {
  try {
    body.pipeTo(sink).catch((thrown: unknown) => sink.fail(thrown));
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

/** What a web stream of a body is to be like. */
export interface StreamOptions {
  /** Whether it fails without a reason: Bun's server prints any other. */
  readonly quiet?: boolean;
  /** Whether it begins with an empty chunk while no other has arrived: srvx sends a response's head with the first chunk. */
  readonly flush?: boolean;
  /** Called when the body breaks off, before the stream fails. */
  readonly onFail?: (() => void) | undefined;
}

/**
 * The body of a request or a response, which knows the shortest way to a sink.
 *
 * It is taken once: as bytes, into a sink, or as a stream.
 */
export interface BodySource {
  /**
   * All bytes, where all of them have arrived.
   * @param limit bytes up to which several chunks are joined; undefined is returned for more of them
   * @throws ProxyError for a body that has broken off
   */
  whole(limit?: number): Uint8Array | undefined;
  /** Writes the body to a sink, with backpressure. Resolves when the sink was told of the end, or of the failure. */
  pipeTo(sink: Sink): Promise<void>;
  /** The body as a web stream. */
  stream(options?: StreamOptions): ReadableStream<Uint8Array>;
  /** Nobody needs the rest. Nothing is written any more, and nothing happens to a body that has ended. */
  cancel(reason?: unknown): void;
  /** The bytes of a body that was taken as a whole, where they can be sent again. */
  readonly replay?: Uint8Array | undefined;
  /** Bytes of the body where that is known. */
  readonly length?: number | undefined;
  /** Bytes that have arrived and were not taken yet. */
  readonly buffered?: number;
  /** Why the body broke off, where it has already. */
  readonly error?: Error | undefined;
  /** The trailer fields, once the body has ended. */
  readonly trailers?: HeaderList | undefined;
}
