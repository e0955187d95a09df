import type { HeaderList } from "../fields/headers.ts";
import { concat, encodeText, type Release } from "./memory.ts";
import { PassBody, PassSink } from "./pass.ts";
import { type BodySource, pipe, type Sink, type WholeOptions } from "./source.ts";

/** A comment and an empty line, because some clients split the stream at empty lines before they look for comments. */
const COMMENT = ":\n\n";

const LF = 0x0a;
const CR = 0x0d;
/** The byte order mark with which an event stream may begin. */
const MARK = [0xef, 0xbb, 0xbf];

/** An event stream into which a comment is inserted after each interval of silence, but never within an event. */
export class HeartbeatBody extends PassBody {
  readonly #interval: number;
  #sink: HeartbeatSink | undefined;

  /** @param interval milliseconds of silence */
  constructor(source: BodySource, interval: number) {
    super(source);
    this.#interval = interval;
  }

  override whole(options?: WholeOptions): Uint8Array | undefined {
    return this.source.whole(options);
  }

  override pipeTo(sink: Sink): void {
    this.#sink = new HeartbeatSink(sink, this.#interval);
    pipe(this.source, this.#sink);
  }

  override cancel(reason?: unknown): void {
    this.#sink?.stop();
    super.cancel(reason);
  }
}

class HeartbeatSink extends PassSink {
  readonly #interval: number;
  #timer: ReturnType<typeof setTimeout>;
  #writtenAt: number = performance.now();
  /** The last three bytes of the stream. Initially LF, so that the start of the stream counts as a place between events. */
  #last: readonly (number | undefined)[] = [LF, LF, LF];
  /**
   * The first bytes of the stream while they may be the start of a byte order mark; undefined afterwards. After an inserted
   * comment, a mark would be a part of a line, so the sink holds these bytes back, and drops the mark.
   */
  #mark: Uint8Array | undefined = new Uint8Array();
  #isAfterComment = false;
  /** Whether the sink waits for a slow client. The client then still has chunks to read, and needs no comment. */
  #isFull = false;

  constructor(sink: Sink, interval: number) {
    super(sink);
    this.#interval = interval;
    this.#timer = this.#start(interval);
  }

  override write(chunk: Uint8Array, release?: Release): boolean {
    this.#writtenAt = performance.now();
    this.#last = [...this.#last, ...chunk.subarray(-3)].slice(-3);
    if (!this.#isAfterComment || this.#mark === undefined) {
      this.#mark = undefined;
      return super.write(chunk, release);
    }
    const first = concat([this.#mark, chunk]);
    release?.();
    const length = MARK.findIndex((byte, i) => first[i] !== byte);
    this.#mark = length === first.byteLength ? first : undefined;
    const rest = length < 0 ? first.slice(MARK.length) : first;
    return this.#mark !== undefined || rest.byteLength === 0 || super.write(rest);
  }

  override onDrain(callback: () => void): void {
    this.#isFull = true;
    super.onDrain(() => {
      this.#isFull = false;
      callback();
    });
  }

  override end(trailers?: HeaderList): void {
    this.stop();
    super.end(trailers);
  }

  override fail(reason: unknown): void {
    this.stop();
    super.fail(reason);
  }

  stop(): void {
    clearTimeout(this.#timer);
  }

  #start(wait: number): ReturnType<typeof setTimeout> {
    return setTimeout(() => this.#beat(), wait);
  }

  #beat(): void {
    const silence = performance.now() - this.#writtenAt;
    const isSilent = silence >= this.#interval;
    this.#timer = this.#start(isSilent ? this.#interval : this.#interval - silence);
    if (!isSilent || this.#isFull || !this.#isBetweenEvents) return;
    this.#isAfterComment = true;
    if (!super.write(encodeText(COMMENT))) this.onDrain(() => {});
  }

  /**
   * Whether the stream so far ends with an empty line. If its last byte is CR, the result is false, because an LF of the same
   * line break may follow.
   */
  get #isBetweenEvents(): boolean {
    const [first, second, third] = this.#last;
    const before = second === CR ? first : second;
    return third === LF && (before === LF || before === CR);
  }
}
