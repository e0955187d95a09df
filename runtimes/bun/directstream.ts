/**
 * Passes response bodies to Bun's server as direct streams. A direct stream has no queue: a chunk goes to the client's
 * connection when it is written. With an ordinary stream, the reader that empties its queue creates promises for each chunk.
 *
 * Bun documents direct streams (docs/runtime/streams.mdx). Bun's server calls `pull` once when it sends the body, and the body
 * lasts until the promise that `pull` returns is settled. `write` returns a promise if the client is slow.
 */
import type { BodySource, Sink } from "../../src/body/source.ts";

/** The methods of a direct stream's controller that the sink calls. */
interface DirectController {
  /**
   * Returns the number of bytes that were written (0 after a disconnect), or a promise that resolves when the client has taken
   * the chunk.
   */
  write(chunk: Uint8Array): number | Promise<unknown>;
  close(): void;
}

/** A sink that is also the underlying source of a direct stream: the stream emits the chunks that are written to the sink. */
class DirectSink implements Sink {
  readonly type = "direct";
  readonly #source: BodySource;
  #controller!: DirectController;
  #resolve!: () => void;
  #reject!: (reason?: unknown) => void;
  #onDrain: (() => void) | undefined;
  #isCancelled = false;

  constructor(source: BodySource) {
    this.#source = source;
  }

  /** Starts the body. Bun does not call `pull` again before the promise of the first call has settled. */
  pull(controller: DirectController): Promise<void> {
    this.#controller = controller;
    const ended = new Promise<void>((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
    // If `pipeTo` throws, the body was taken twice. Bun breaks the response off, and prints the exception.
    const piped = this.#source.pipeTo(this);
    if (piped !== undefined) piped.catch(() => this.fail());
    return ended;
  }

  cancel(reason: unknown): void {
    this.#isCancelled = true;
    this.#source.cancel(reason);
  }

  write(chunk: Uint8Array): boolean {
    if (this.#isCancelled) return true;
    const written = this.#controller.write(chunk);
    if (typeof written === "number") return true;
    void written.then(() => this.#drain());
    return false;
  }

  onDrain(callback: () => void): void {
    this.#onDrain = callback;
  }

  end(): void {
    if (this.#isCancelled) return;
    this.#controller.close();
    this.#resolve();
  }

  /** Breaks the response off: Bun resets the connection. Bun would print any reason except `undefined`. */
  fail(): void {
    if (!this.#isCancelled) this.#reject();
  }

  #drain(): void {
    const onDrain = this.#onDrain;
    this.#onDrain = undefined;
    onDrain?.();
  }
}

/** Whether direct streams are reliable on this runtime; undefined before the first stream. */
let isReliable: boolean | undefined;

/**
 * Returns whether cancelling a direct stream calls `cancel` of its source, as in Bun 1.4.3 and later. Earlier versions of Bun
 * send the last chunk `0\r\n\r\n` of the body a second time, in front of the next response, and may end a failed body as if it
 * were complete. These two faults cannot be checked here, so this function checks `cancel` instead (oven-sh/bun#41757, #41894).
 */
function checkDirectStreams(): boolean {
  let isCancelled = false;
  const source = { type: "direct", pull() {}, cancel: () => void (isCancelled = true) };
  try {
    void new ReadableStream(source as unknown as UnderlyingDefaultSource).cancel();
  } catch {
    // Tests run this code on other runtimes as well, which throw for the type `direct`.
  }
  return isCancelled;
}

/**
 * Returns a stream of a body that is still arriving, for Bun's server. If the body fails, the stream fails with the reason
 * `undefined`, because Bun prints any other reason.
 */
export function toClientStream(body: BodySource): ReadableStream<Uint8Array> {
  isReliable ??= checkDirectStreams();
  if (!isReliable) return body.stream({ quiet: true });
  return new ReadableStream(new DirectSink(body) as unknown as UnderlyingDefaultSource<Uint8Array>);
}
