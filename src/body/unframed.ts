import { toRequestBodyError } from "../error.ts";
import { BytesBody } from "./bytes.ts";
import { cancelLater } from "./chunks.ts";
import { concat } from "./memory.ts";
import type { BodySource, Sink, StreamOptions } from "./source.ts";
import { StreamBody } from "./stream.ts";

/** The number of bytes above which a body of several chunks is no longer held back, but streamed. */
const MOST_BYTES = 1_048_576;
/** The number of chunks from which on a body is streamed: a chunk costs memory beside its bytes, however short it is. */
const MOST_CHUNKS = 1024;
/**
 * The number of timers that fire without a chunk before the body is streamed; together they take about 3 ms. Timers are
 * counted, because each lets one turn of the event loop pass, however long that takes, and Node needs up to two turns
 * for each part of a `Blob`.
 */
const SILENT_TIMERS = 3;
/** The number of timers that fire before the body is streamed, even if every turn brings a chunk. */
const MOST_TIMERS = 12;

type ReadResult = ReadableStreamReadResult<Uint8Array>;

/**
 * The body of a request without message framing, which declares neither a length nor chunked coding: a `Request` that
 * code has constructed, a stream that `onRequest` has set, or a request of HTTP/2. In HTTP/1, a request without framing
 * has no body (RFC 9112 §6.3).
 *
 * No interface tells the length of what a `Request` was constructed from. But a stream over a string, bytes, a `Blob`
 * or a form ends within a few turns of the event loop. A body that ends by then is sent with its length, and can be
 * sent again.
 */
export class UnframedBody implements BodySource {
  /** A body of the same stream, for code that takes the body without measuring it. */
  readonly #unmeasured: StreamBody;
  /** The reader that measures the stream. */
  #reader: ReadableStreamDefaultReader<Uint8Array> | undefined;

  /** Makes a body of a stream that no other code reads. */
  constructor(stream: ReadableStream<Uint8Array>) {
    this.#unmeasured = new StreamBody(stream);
  }

  /** Returns undefined always: a stream does not tell what has arrived. */
  whole(): undefined {}

  pipeTo(sink: Sink): Promise<void> {
    return this.#unmeasured.pipeTo(sink);
  }

  stream(options?: StreamOptions): ReadableStream<Uint8Array> {
    return this.#unmeasured.stream(options);
  }

  /** Cancels the stream, also while it is measured. */
  cancel(reason?: unknown): void {
    if (this.#reader === undefined) this.#unmeasured.cancel(reason);
    else void cancelLater(this.#reader, reason);
  }

  /**
   * Waits for the first chunk for any time, and then a few turns of the event loop for the end.
   * @returns `null` for an empty body, the bytes of a body that has ended, else a stream of the whole body
   * @throws ProxyError for a body that failed
   * @throws TypeError for a chunk that is not bytes
   */
  async measure(): Promise<BodySource | null> {
    const reader = (this.#reader = this.#unmeasured.stream().getReader());
    const chunks: Uint8Array[] = [];
    let size = 0;
    // An HTTP/2 client may open a request long before it sends the body.
    let next: ReadResult | undefined = await readNext(reader);
    const turns = new TurnTimer();
    try {
      while (!next.done) {
        const { byteLength } = next.value;
        if (byteLength > 0) chunks.push(next.value);
        size += byteLength;
        const isTooMuch = chunks.length > 1 && size > MOST_BYTES;
        if (isTooMuch || chunks.length >= MOST_CHUNKS) return resumeBody(chunks, reader);
        const pending = readNext(reader);
        next = chunks.length === 0 ? await pending : await turns.wait(pending);
        if (next === undefined) return resumeBody(chunks, reader, pending);
      }
    } finally {
      turns.stop();
    }
    return chunks.length === 0 ? null : new BytesBody(concat(chunks));
  }
}

/** Waits for promises, one after the other, for no longer than a few turns of the event loop. */
class TurnTimer {
  /** The number of timers that have fired. */
  #fired = 0;
  /** The number of timers that have fired since the last promise settled. */
  #silent = 0;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #giveUp: (() => void) | undefined;

  /** @returns undefined if the time is over before the promise settles */
  wait<T>(pending: Promise<T>): Promise<T | undefined> {
    this.#silent = 0;
    this.#timer ??= setTimeout(() => this.#tick());
    return new Promise((resolve, reject) => {
      this.#giveUp = () => resolve(undefined);
      pending.then(resolve, reject);
    });
  }

  stop(): void {
    clearTimeout(this.#timer);
  }

  #tick(): void {
    this.#fired++;
    this.#silent++;
    if (this.#silent >= SILENT_TIMERS || this.#fired >= MOST_TIMERS) this.#giveUp?.();
    else this.#timer = setTimeout(() => this.#tick());
  }
}

/**
 * Reads the next chunk.
 * @throws ProxyError if the stream fails
 * @throws TypeError for a chunk that is not bytes
 */
async function readNext(reader: ReadableStreamDefaultReader<Uint8Array>): Promise<ReadResult> {
  let next: ReadResult;
  try {
    next = await reader.read();
  } catch (thrown) {
    throw toRequestBodyError(thrown);
  }
  if (next.done || next.value instanceof Uint8Array) return next;
  void reader.cancel().catch(() => {});
  throw new TypeError(
    "fetchway: the request body's stream gives chunks that are not bytes; use Uint8Array, " +
      "or body.pipeThrough(new TextEncoderStream()) for a stream of strings",
  );
}

/**
 * Returns a body of the chunks that have arrived, followed by those still to come.
 * @param pending a read that has not settled yet
 */
function resumeBody(
  chunks: Uint8Array[],
  reader: ReadableStreamDefaultReader<Uint8Array>,
  pending?: Promise<ReadResult>,
): BodySource {
  let late = pending;
  // The read may reject before the stream is read: without a handler, the rejection would be unhandled.
  late?.catch(() => {});
  const stream = new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        const chunk = chunks.shift();
        if (chunk !== undefined) return controller.enqueue(chunk);
        const next = await (late ?? readNext(reader));
        late = undefined;
        if (next.done) controller.close();
        else controller.enqueue(next.value);
      },
      cancel: (reason) => reader.cancel(reason),
    },
    { highWaterMark: 0 },
  );
  return new StreamBody(stream);
}
