/** A sink that keeps the chunks of a body, and a log of all calls. */
import type { Release } from "../../src/body/memory.ts";
import type { Sink } from "../../src/body/source.ts";
import type { HeaderList } from "../../src/fields/headers.ts";

export class FakeSink implements Sink {
  readonly memory: NonNullable<Sink["memory"]>;
  /** The calls in order: each chunk as text, and `flush`, `end` or `fail <reason>`. */
  readonly log: string[] = [];
  readonly chunks: Uint8Array[] = [];
  /** The function that releases the memory of each chunk, in the order of `chunks`. */
  readonly releases: (Release | undefined)[] = [];
  reason: unknown;
  trailers: HeaderList | undefined;
  /** The return value of `write`: whether there is room for more. */
  hasRoom = true;
  readonly #waiting: (() => void)[] = [];

  constructor(memory: NonNullable<Sink["memory"]> = "owned") {
    this.memory = memory;
  }

  flush(): void {
    this.log.push("flush");
  }

  write(chunk: Uint8Array, release?: Release): boolean {
    this.log.push(Buffer.from(chunk).toString("latin1"));
    this.chunks.push(chunk);
    this.releases.push(release);
    return this.hasRoom;
  }

  onDrain(callback: () => void): void {
    this.#waiting.push(callback);
  }

  end(trailers?: HeaderList): void {
    this.log.push("end");
    this.trailers = trailers;
  }

  fail(reason: unknown): void {
    this.reason = reason;
    this.log.push(`fail ${(reason as Error).message}`);
  }

  /** The number of sources that wait for room. */
  get waiting(): number {
    return this.#waiting.length;
  }

  /** Makes room, and calls the sources that wait for it. */
  drain(): void {
    this.hasRoom = true;
    for (const callback of this.#waiting.splice(0)) callback();
  }
}
