import { writeSync } from "node:fs";

const LINE_FEED = 0x0a;

/** The members of `process.stdout` and `process.stderr` that are used here. */
export interface Output {
  readonly fd: number;
  write(text: string, done: (error?: Error | null) => void): unknown;
  on(event: "error", listener: (error: Error) => void): unknown;
}

/** If more characters than this wait for a reader that is too slow, further lines are dropped. */
const MAX_PENDING = 1024 * 1024;
/** The milliseconds for which `close` and `flushNow` wait for a slow reader. */
const CLOSE_TIMEOUT = 1000;

/**
 * Writes lines to a stream. The lines of one turn of the event loop are written together, and each write waits for the previous
 * one. If the reader of a pipe is too slow, the writer keeps up to 1 MB of lines, then drops lines, and reports how many: a
 * slow reader neither holds up requests nor fills the memory. (On Deno, it does hold up requests, because stdout is synchronous
 * there.)
 *
 * Lines that cannot be written, for example because a disk is full, are dropped and counted as well. Each further line causes
 * another attempt to write.
 */
export class LineWriter {
  readonly #output: Output;
  readonly #renderDropped: (count: number) => string;
  #pending = "";
  #dropped = 0;
  #isScheduled = false;
  #isWriting = false;
  #isBroken = false;
  /** Whether lines are written directly to the file descriptor, because Node destroys the stream at its first error. */
  #isDirect = false;
  /** The number of lines that were lost since a write failed; undefined while writes succeed. */
  #lost: number | undefined;
  /** Whether the last write ended inside a line. */
  #isCut = false;
  #whenIdle: (() => void) | undefined;
  readonly #report: (text: string) => void;

  /**
   * @param renderDropped renders the line that says how many lines were dropped
   * @param report receives a message when lines cannot be written, and another one when they can be written again
   */
  constructor(
    output: Output,
    renderDropped: (count: number) => string,
    report: (text: string) => void = () => {},
  ) {
    this.#output = output;
    this.#renderDropped = renderDropped;
    this.#report = report;
    output.on("error", (error) => this.#onError(error));
  }

  #onError(error: NodeJS.ErrnoException): void {
    if (error.code !== "EPIPE") {
      this.#isDirect = true;
      return;
    }
    // The reader of a pipe may end before this process, as `head` does. The server then continues without a log.
    this.#isBroken = true;
    this.#pending = "";
    this.#whenIdle?.();
  }

  /** Writes a line, or several with line feeds between them. */
  write(line: string): void {
    if (this.#isBroken) return;
    if (this.#pending.length > MAX_PENDING) {
      this.#dropped += line.split("\n").length;
      return;
    }
    this.#pending += `${line}\n`;
    this.#schedule();
  }

  /** Resolves when all lines have been written, or after a second if the reader is too slow. */
  async close(): Promise<void> {
    let timer: ReturnType<typeof setTimeout> | undefined;
    await new Promise<void>((resolve) => {
      this.#whenIdle = resolve;
      timer = setTimeout(resolve, CLOSE_TIMEOUT);
      this.#flush();
    });
    clearTimeout(timer);
  }

  /** Writes the remaining lines synchronously, because no callback runs after the process's `exit`. */
  flushNow(): void {
    const lines = this.#takeLines();
    if (lines === "") return;
    // The previous write may have ended inside a line, so begin with a line feed.
    let bytes = Buffer.from(this.#isWriting || this.#isCut ? `\n${lines}` : lines);
    const deadline = performance.now() + CLOSE_TIMEOUT;
    while (bytes.length > 0 && performance.now() < deadline) {
      try {
        bytes = bytes.subarray(writeSync(this.#output.fd, bytes));
      } catch (error) {
        // The pipe is full (`EAGAIN`). Try again until its reader has read, or until `CLOSE_TIMEOUT` has passed.
        if ((error as NodeJS.ErrnoException).code !== "EAGAIN") return;
        Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1);
      }
    }
  }

  #schedule(): void {
    if (this.#isScheduled || this.#isWriting) return;
    this.#isScheduled = true;
    setImmediate(() => {
      this.#isScheduled = false;
      this.#flush();
    });
  }

  #flush(): void {
    if (this.#isWriting) return;
    const dropped = this.#dropped;
    const lines = this.#takeLines();
    if (lines === "" || this.#isBroken) return this.#whenIdle?.();
    if (this.#isDirect) {
      this.#writeDirectly(lines, dropped);
      return this.#whenIdle?.();
    }
    this.#isWriting = true;
    this.#output.write(lines, (error) => {
      this.#isWriting = false;
      if (error) {
        this.#onError(error);
        this.#lose(lines, dropped, error);
      }
      if (this.#whenIdle !== undefined) this.#flush();
      else if (this.#pending !== "") this.#schedule();
    });
  }

  /** @param dropped the number that the last of `lines` reports as dropped; 0 if it reports none */
  #writeDirectly(lines: string, dropped: number): void {
    const bytes = Buffer.from(this.#isCut ? `\n${lines}` : lines);
    let end = 0;
    try {
      while (end < bytes.length) end += writeSync(this.#output.fd, bytes, end);
    } catch (error) {
      if (end === 0) return this.#lose(lines, dropped, error as Error);
      this.#isCut = bytes.at(end - 1) !== LINE_FEED;
      return this.#lose(bytes.toString("utf8", end), dropped, error as Error);
    }
    this.#isCut = false;
    if (this.#lost === undefined) return;
    const lost = this.#lost;
    this.#lost = undefined;
    this.#report(`the log is written again; ${lost} of its lines are lost`);
  }

  #lose(lines: string, dropped: number, error: NodeJS.ErrnoException): void {
    const count = lines.split("\n").length - 1 - (dropped > 0 ? 1 : 0);
    this.#dropped += dropped + count;
    if (this.#lost === undefined) {
      this.#report(
        `the log cannot be written (${error.code ?? error.message}); its lines are lost`,
      );
    }
    this.#lost = (this.#lost ?? 0) + count;
  }

  #takeLines(): string {
    const lines = this.#pending;
    this.#pending = "";
    if (this.#dropped === 0) return lines;
    const notice = `${this.#renderDropped(this.#dropped)}\n`;
    this.#dropped = 0;
    return lines + notice;
  }
}
