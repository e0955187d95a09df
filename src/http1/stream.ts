import type { ProxyError } from "../error.ts";

/** Bytes held for a reader that is slow before the upstream is told to wait. */
export const HIGH_WATER_MARK = 65_536;

/** Who takes a body as it comes. */
export interface Sink {
  /** @returns false if it wants no more for now */
  write(piece: Uint8Array): boolean;
  end(): void;
  fail(error: ProxyError): void;
}

/** Where a body comes from. */
export interface Source {
  /** Hands over what is here and what will come. A sink that has refused a piece calls `resume` for more. */
  take(sink: Sink): void;
  /** The sink wants more. */
  resume(): void;
  /** Nobody wants the rest. */
  stop(): void;
}

/** What a stream of a body is to be like. */
export interface StreamOptions {
  /** Whether it fails without a reason: Bun's server prints any other. */
  readonly quiet?: boolean;
  /** Whether it begins with an empty piece: srvx sends a response's head no earlier than the first one. */
  readonly flush?: boolean;
}

/** Where a web stream has its pieces from. */
class StreamSource implements UnderlyingDefaultSource<Uint8Array>, Sink {
  readonly #source: Source;
  readonly #options: StreamOptions;
  #controller!: ReadableStreamDefaultController<Uint8Array>;

  constructor(source: Source, options: StreamOptions) {
    this.#source = source;
    this.#options = options;
  }

  start(controller: ReadableStreamDefaultController<Uint8Array>): void {
    this.#controller = controller;
    if (this.#options.flush) controller.enqueue(new Uint8Array());
    this.#source.take(this);
  }

  pull(): void {
    this.#source.resume();
  }

  cancel(): void {
    this.#source.stop();
  }

  write(piece: Uint8Array): boolean {
    this.#controller.enqueue(piece);
    return (this.#controller.desiredSize ?? 0) > 0;
  }

  end(): void {
    this.#controller.close();
  }

  fail(error: ProxyError): void {
    this.#controller.error(this.#options.quiet ? undefined : error);
  }
}

const STRATEGY: QueuingStrategy<Uint8Array> = {
  highWaterMark: HIGH_WATER_MARK,
  size: ({ byteLength }) => byteLength,
};

/** A body as a web stream. */
export function toWebStream(
  source: Source,
  options: StreamOptions = {},
): ReadableStream<Uint8Array> {
  return new ReadableStream(new StreamSource(source, options), STRATEGY);
}
