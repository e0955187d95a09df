/** Bodies that are too large to keep in memory. They are generated while they are sent, and compared by their hash. */
import { createHash, randomBytes } from "node:crypto";
import type { Socket } from "node:net";
import { chunk, lastChunk } from "./wire.ts";

export const mebibyte: number = 1024 * 1024;

// A prime length, which no buffer size divides, so that lost, repeated or swapped chunks are noticed.
const pattern: Buffer = randomBytes(1_048_573);
const digests = new Map<number, string>();

function* pieces(size: number): Generator<Buffer> {
  const step = 65_536;
  for (let sent = 0; sent < size;) {
    const at = sent % pattern.length;
    const piece = pattern.subarray(at, Math.min(at + step, pattern.length, at + size - sent));
    sent += piece.length;
    yield piece;
  }
}

/** Returns the SHA-256 of the large body of `size` bytes. */
export function digestOf(size: number): string {
  const known = digests.get(size);
  if (known) return known;
  const hash = createHash("sha256");
  for (const piece of pieces(size)) hash.update(piece);
  const digest = hash.digest("hex");
  digests.set(size, digest);
  return digest;
}

/** Writes the large body of `size` bytes with backpressure; gives up when the socket closes. */
export async function pour(
  socket: Socket,
  size: number,
  options: { chunked?: boolean } = {},
): Promise<void> {
  for (const piece of pieces(size)) {
    if (socket.destroyed || !socket.writable) return;
    if (!socket.write(options.chunked ? chunk(piece) : piece)) await drained(socket);
  }
  if (options.chunked && socket.writable) socket.write(lastChunk);
}

function drained(socket: Socket): Promise<void> {
  return new Promise((resolve) => {
    const settle = (): void => {
      socket.off("drain", settle).off("close", settle);
      resolve();
    };
    socket.on("drain", settle).on("close", settle);
  });
}

/** Returns the number of written bytes that the kernel has accepted. */
export function flushed(socket: Socket): number {
  return socket.bytesWritten - socket.writableLength;
}
