/**
 * Frees the memory of a response's chunks as soon as Deno's server has taken them.
 *
 * Deno's server reads a response's stream in JavaScript, and passes each chunk to native code, which holds the chunk's memory
 * until the chunk is sent. V8 counts the bytes of each `ArrayBuffer` until the next garbage collection, and marks the whole
 * heap when the sum reaches a limit. With large bodies, this happens about every 150 MB, and takes a fifth of the CPU time of a
 * response of 1 MB. The bytes of a detached `ArrayBuffer` do not count.
 *
 * - Rests on: `readableStreamReadFn`, the function with which Deno reads a stream for native code (ext/web/06_streams.js). When
 *   this function asks for the next chunk, native code has taken the previous one, which is then not used any more.
 * - Check: at the first read of each stream of a large body, the stack trace must show that this function is the reader. Only
 *   chunks that are passed to it afterwards are freed.
 * - Otherwise: the garbage collector frees the chunks. This applies to any other reader, which owns the chunks that it reads,
 *   and to an app that has frozen `Error`.
 * - Test: test/runtimes/deno/freedstream.test.ts.
 */
import { type BodySource, HIGH_WATER_MARK } from "../../../src/body/source.ts";
import { StreamSink } from "../../../src/body/web.ts";
import { free } from "../../sockets/buffercodec.ts";

/** The function with which every reader of a Deno stream reads one chunk. */
const DENOS_READ = "readableStreamDefaultReaderRead";
/** The function that reads for native code, to which it passes each chunk. */
const NATIVE_READER = "readableStreamReadFn";
/** The number of stack frames that are read: enough to reach `NATIVE_READER` from `pull`. */
const CALLS = 7;
/** The minimum number of bytes of a body whose chunks are freed. For a shorter body, the check would cost too much. */
const LARGE = 262_144;

/**
 * Returns the stream of a body. The memory of its chunks is freed if the body arrives from an upstream, and has a known length
 * of at least `LARGE` bytes.
 */
export function toFreedStream(body: BodySource): ReadableStream<Uint8Array> {
  const isLarge = body.buffered !== undefined && (body.length ?? 0) >= LARGE;
  if (!isLarge) return body.stream();
  // With this `highWaterMark`, the stream itself holds no chunk, and calls `pull` only when its reader has taken all earlier
  // chunks.
  return new ReadableStream(new FreeingSink(body), { highWaterMark: 0 });
}

/** A sink that passes on one chunk for each read of the stream. */
class FreeingSink extends StreamSink {
  /** The chunks for later reads. */
  readonly #held: Uint8Array[] = [];
  /** The chunk that was passed to the reader last; undefined while the reader waits for the next one. */
  #passed: Uint8Array | undefined;
  /** The number of bytes in `#held` and `#passed`. */
  #length = 0;
  /**
   * Whether the reader is Deno's own, which does not use a chunk after the next read; undefined until the stack of a read has
   * shown which reader it is.
   */
  #isNative: boolean | undefined;
  #isWaiting = false;
  #isEnded = false;

  override get isUnread(): boolean {
    return !this.#isWaiting && this.#passed === undefined && this.#isNative === undefined;
  }

  override pull(): void {
    const passed = this.#passed;
    if (passed !== undefined) {
      this.#passed = undefined;
      this.#length -= passed.byteLength;
      if (this.#isNative === true) free(passed);
    }
    this.#isNative ??= isNativeReader();
    this.#isWaiting = true;
    this.#pass();
    if (this.#length < HIGH_WATER_MARK) super.pull();
  }

  override write(chunk: Uint8Array): boolean {
    if (this.isCancelled) return true;
    this.#held.push(chunk);
    this.#length += chunk.byteLength;
    if (this.#isWaiting) this.#pass();
    // A passed chunk counts as well: large chunks that are read ahead cost memory, and time for garbage collections.
    return this.#length < HIGH_WATER_MARK;
  }

  override end(): void {
    this.#isEnded = true;
    if (this.#isWaiting && !this.isCancelled) this.#pass();
  }

  /** Passes the next chunk, or the end, to the reader that waits for it. */
  #pass(): void {
    const chunk = this.#held.shift();
    if (chunk !== undefined) {
      this.#isWaiting = false;
      this.#passed = chunk;
      this.controller.enqueue(chunk);
    } else if (this.#isEnded) this.controller.close();
  }
}

/**
 * Returns whether this call of `pull` was caused by `readableStreamReadFn`, with which Deno reads for native code.
 * @returns undefined if the stack trace shows no reader; false if `Error` is frozen, so that there is no trace to check
 */
function isNativeReader(): boolean | undefined {
  const settings: { prepareStackTrace?: unknown; stackTraceLimit: number } = Error;
  const { prepareStackTrace, stackTraceLimit } = settings;
  // Deno takes 80 µs to format a stack trace as text, an eighth of the time of a body of 1 MB. Call sites take a fifth of that.
  if (!Reflect.set(settings, "prepareStackTrace", returnSites)) return false;
  settings.stackTraceLimit = CALLS;
  const trace = {} as { stack: NodeJS.CallSite[] };
  Error.captureStackTrace(trace, isNativeReader);
  const sites = trace.stack;
  Object.assign(settings, { prepareStackTrace, stackTraceLimit });
  const read = sites.findIndex((site) => isDenos(site, DENOS_READ));
  const reader = sites[read + 1];
  return read < 0 || reader === undefined ? undefined : isDenos(reader, NATIVE_READER);
}

function returnSites(_error: unknown, sites: NodeJS.CallSite[]): NodeJS.CallSite[] {
  return sites;
}

/** Whether a call site is in the function of this name in Deno's own code for streams. */
function isDenos(site: NodeJS.CallSite, name: string): boolean {
  return (
    site.getFunctionName() === name && site.getFileName()?.startsWith("ext:deno_web/") === true
  );
}
