import { writeSync } from "node:fs";

/** The members of `process.stdout` and `process.stderr` that are used here. */
export interface Output {
  readonly fd: number;
  write(text: string, done: () => void): unknown;
  on(event: "error", listener: () => void): unknown;
}

/** The maximum number of characters that wait for a reader that is too slow. */
const LIMIT = 1024 * 1024;
/** The milliseconds for which `close` and `flushNow` wait for a slow reader. */
const PATIENCE = 1000;

/**
 * Writes lines to a stream, those of one turn of the event loop together, and one write at a time. If the reader of a pipe
 * is too slow, it keeps up to 1 MB of lines, then drops lines, and says how many: a slow reader neither holds up requests
 * nor fills the memory. (Deno's stdout is synchronous, so that a slow reader of a pipe does hold up requests there.)
 */
export class LineWriter {
  readonly #output: Output;
  readonly #renderDropped: (count: number) => string;
  #pending = "";
  #dropped = 0;
  #isScheduled = false;
  #isWriting = false;
  #isBroken = false;
  #whenIdle: (() => void) | undefined;

  /** @param renderDropped renders the line that says how many lines were dropped */
  constructor(output: Output, renderDropped: (count: number) => string) {
    this.#output = output;
    this.#renderDropped = renderDropped;
    // The reader of a pipe may end first, as `head` does. The server goes on without a log.
    output.on("error", () => {
      this.#isBroken = true;
      this.#pending = "";
      this.#whenIdle?.();
    });
  }

  /** Writes a line, or several with line feeds between them. */
  write(line: string): void {
    if (this.#isBroken) return;
    if (this.#pending.length > LIMIT) {
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
      timer = setTimeout(resolve, PATIENCE);
      this.#flush();
    });
    clearTimeout(timer);
  }

  /** Writes the lines that are left, when the process exits and no callback is called any more. */
  flushNow(): void {
    const lines = this.#takeLines();
    if (lines === "") return;
    // Of a write that is not complete, the stream may have written half a line.
    let bytes = Buffer.from(this.#isWriting ? `\n${lines}` : lines);
    const deadline = performance.now() + PATIENCE;
    while (bytes.length > 0 && performance.now() < deadline) {
      try {
        bytes = bytes.subarray(writeSync(this.#output.fd, bytes));
      } catch (error) {
        // A pipe that does not block is full; try again until the reader has read.
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
    const lines = this.#takeLines();
    if (lines === "" || this.#isBroken) return this.#whenIdle?.();
    this.#isWriting = true;
    this.#output.write(lines, () => {
      this.#isWriting = false;
      if (this.#whenIdle !== undefined) this.#flush();
      else if (this.#pending !== "") this.#schedule();
    });
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
