/**
 * The pool option `reuseBuffers`: sockets read into buffers that are used again once Node has written what is in them.
 * Without it, each read has new memory, and to touch that costs more than the read itself for large bodies.
 *
 * A pooled chunk goes to nothing but the client's response, and only if no other code can see it there. Everything
 * else gets a copy in memory of its own.
 */
import type { ServerResponse } from "node:http";
import type { SocketParts } from "../sockets/connect.ts";
import { copyOf } from "../sockets/buffercodec.ts";
import type { Sink } from "../../src/http1/stream.ts";
import { NodeExchange } from "./body.ts";
import { isUnwrappedResponse } from "./wrapped.ts";

/** Bytes that one read takes at most: a body of 64 KiB arrives in one read with its head. */
const READ_SIZE = 131_072;
/** Bytes of a read below which its chunks are copied, and the socket keeps its buffer. */
const LARGE = 32_768;
/** Number of buffers that wait for a socket. */
const MAX_SPARES = 64;

const spares: Uint8Array[] = [];
/** The memory of every buffer made here. */
const pooled: WeakSet<ArrayBufferLike> = new WeakSet();

function takeBuffer(): Uint8Array {
  const spare = spares.pop();
  if (spare !== undefined) return spare;
  const buffer = Buffer.allocUnsafeSlow(READ_SIZE);
  pooled.add(buffer.buffer);
  return buffer;
}

/** Puts the memory of a chunk back. Nothing may read the chunk any more, nor another one of the same memory. */
function release({ buffer }: Uint8Array): void {
  // A `Buffer` and not only a `Uint8Array`: middleware asks `Buffer.isBuffer`.
  if (spares.length < MAX_SPARES) spares.push(Buffer.from(buffer));
}

/** A chunk that its receiver may keep. */
function toOwned(chunk: Uint8Array): Uint8Array {
  if (!pooled.has(chunk.buffer)) return chunk;
  const copy = copyOf(chunk);
  release(chunk);
  return copy;
}

/** Has a socket read into a buffer of its own, and into another one when a chunk has kept that. */
export const createOnRead: NonNullable<SocketParts["createOnRead"]> = (onData) => {
  let next = takeBuffer();
  return {
    buffer: () => next,
    callback(length, bytes) {
      if (onData(bytes.subarray(0, length), length >= LARGE)) next = takeBuffer();
      return true;
    },
  };
};

/** Gives each chunk to a sink in memory of its own. */
class OwnedSink implements Sink {
  readonly #sink: Sink;

  constructor(sink: Sink) {
    this.#sink = sink;
  }

  write(chunk: Uint8Array): boolean {
    return this.#sink.write(toOwned(chunk));
  }

  end(): void {
    this.#sink.end();
  }

  fail(...reason: Parameters<Sink["fail"]>): void {
    this.#sink.fail(...reason);
  }
}

/** An exchange whose chunks may lie in pooled memory. */
export class ReusingExchange extends NodeExchange {
  #isPiped = false;

  override get freesChunks(): boolean {
    return true;
  }

  override pipe(res: ServerResponse): void {
    this.#isPiped = true;
    super.pipe(res);
  }

  override whole(limit?: number): Uint8Array | undefined {
    const bytes = super.whole(limit);
    return bytes === undefined || this.#isPiped ? bytes : toOwned(bytes);
  }

  override take(sink: Sink): void {
    super.take(this.#isPiped ? sink : new OwnedSink(sink));
  }

  protected override write(res: ServerResponse, chunk: Uint8Array): boolean {
    if (!pooled.has(chunk.buffer)) return res.write(chunk);
    if (!isUnwrappedResponse(res)) return res.write(toOwned(chunk));
    return res.write(chunk, () => release(chunk));
  }

  protected override end(res: ServerResponse, chunk: Uint8Array): void {
    if (!pooled.has(chunk.buffer)) res.end(chunk);
    else if (!isUnwrappedResponse(res)) res.end(toOwned(chunk));
    else res.end(chunk, () => release(chunk));
  }
}
