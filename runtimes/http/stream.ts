import type { ProxyError } from "../../src/error.ts";

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

/** A body as a web stream. */
export function toWebStream(
  source: Source,
  { quiet = false, flush = false }: StreamOptions = {},
): ReadableStream<Uint8Array> {
  return new ReadableStream<Uint8Array>(
    {
      start(controller) {
        if (flush) controller.enqueue(new Uint8Array());
        source.take({
          write: (piece) => {
            controller.enqueue(piece);
            return (controller.desiredSize ?? 0) > 0;
          },
          end: () => controller.close(),
          fail: (error) => controller.error(quiet ? undefined : error),
        });
      },
      pull: () => source.resume(),
      cancel: () => source.stop(),
    },
    { highWaterMark: HIGH_WATER_MARK, size: (chunk) => chunk.byteLength },
  );
}
