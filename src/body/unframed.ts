import { toRequestBodyError } from "../error.ts";
import { BytesBody } from "./bytes.ts";
import { cancelLater, notBytes } from "./chunks.ts";
import { concat } from "./memory.ts";
import type { BodySource } from "./source.ts";
import { StreamBody } from "./stream.ts";

/** The number of bytes above which a body of several chunks is no longer held back, but streamed. */
const MAX_BYTES = 1_048_576;
/** The number of chunks at which a body is streamed: each chunk costs memory in addition to its bytes. */
const MAX_CHUNKS = 1024;
/**
 * A body is streamed after this many timers in a row have fired without a new chunk, which takes about 3 ms. Timers are
 * counted instead of milliseconds, because Node needs up to two turns of the event loop for each part of a `Blob`: a timer
 * waits for one turn, however long the turn takes.
 */
const MAX_SILENT_TIMERS = 3;
/** A body is streamed after this many timers in all, even if a chunk arrives in every turn. */
const MAX_TIMERS = 12;

type ReadResult = ReadableStreamReadResult<Uint8Array>;

/**
 * The body of a request without message framing, which declares neither a length nor chunked coding: a `Request` that
 * code has constructed, a stream that `onRequest` has set, or an HTTP/2 request. In HTTP/1, a request without framing
 * has no body (RFC 9112 §6.3).
 *
 * A `Request` does not expose the length of the value that it was constructed from. But the stream of a string, of bytes,
 * of a `Blob` or of a form ends within a few turns of the event loop. A body that ends in that time is sent with its
 * length, and can be sent again.
 */
export class UnframedBody extends StreamBody {
  /** The reader with which `measure` reads the stream; undefined before its call. */
  #measurer: ReadableStreamDefaultReader<Uint8Array> | undefined;

  /** Cancels the stream, even while `measure` reads it. */
  override cancel(reason?: unknown): void {
    if (this.#measurer === undefined) super.cancel(reason);
    else void cancelLater(this.#measurer, reason);
  }

  /**
   * Waits for the first chunk without a time limit, and then at most a few turns of the event loop for the end.
   * @returns `null` for an empty body, the bytes of a body that has ended, and otherwise a stream of the whole body
   * @throws ProxyError for a body that failed
   * @throws TypeError for a chunk that is not bytes
   */
  async measure(): Promise<BodySource | null> {
    const reader = (this.#measurer = this.stream().getReader());
    const chunks: Uint8Array[] = [];
    let size = 0;
    // There is no time limit here, because an HTTP/2 client may open a request long before it sends the body.
    let next: ReadResult | undefined = await readNext(reader);
    const turns = new TurnTimer();
    try {
      while (!next.done) {
        const { byteLength } = next.value;
        if (byteLength > 0) chunks.push(next.value);
        size += byteLength;
        const isTooMuch = chunks.length > 1 && size > MAX_BYTES;
        if (isTooMuch || chunks.length >= MAX_CHUNKS) return resumeBody(chunks, reader);
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
  /** The number of timers that have fired since the last call of `wait`. */
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
    if (this.#silent >= MAX_SILENT_TIMERS || this.#fired >= MAX_TIMERS) this.#giveUp?.();
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
  throw notBytes();
}

/**
 * Returns a body of the chunks that have arrived, followed by the rest of the stream.
 * @param pending a read that has not settled yet
 */
function resumeBody(
  chunks: Uint8Array[],
  reader: ReadableStreamDefaultReader<Uint8Array>,
  pending?: Promise<ReadResult>,
): BodySource {
  let late = pending;
  // The pending read may reject before code reads the new stream. Without this handler, Node would report an unhandled
  // rejection.
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
