/** What Bun's readers can do beside the standard: take all that is here at once. */
export interface PieceReader extends ReadableStreamDefaultReader<Uint8Array> {
  readMany?(): Batch | Promise<Batch>;
}

interface Batch {
  done: boolean;
  value: Uint8Array[];
}

/** The next pieces: all that are here, or the one that comes. */
export async function readMany(reader: PieceReader): Promise<Batch> {
  if (reader.readMany !== undefined) return reader.readMany();
  const { done, value } = await reader.read();
  return { done, value: value === undefined ? [] : [value] };
}

/** How many bytes several pieces are. */
export function lengthOf(chunks: readonly Uint8Array[]): number {
  let length = 0;
  for (const chunk of chunks) length += chunk.byteLength;
  return length;
}

/** Several pieces as one. */
export function concat(chunks: readonly Uint8Array[]): Uint8Array {
  if (chunks.length === 1) return chunks[0] as Uint8Array;
  const bytes = new Uint8Array(lengthOf(chunks));
  let at = 0;
  for (const chunk of chunks) {
    bytes.set(chunk, at);
    at += chunk.byteLength;
  }
  return bytes;
}
