/** What Bun's readers can do beside the standard: take all that is here at once. */
export interface PieceReader extends ReadableStreamDefaultReader<Uint8Array> {
  readMany?(): Batch | Promise<Batch>;
}

interface Batch {
  done: boolean;
  value: Uint8Array[] | undefined;
}

/** The next pieces: all that are here, or the one that comes. */
export async function readMany(reader: PieceReader): Promise<Batch> {
  if (reader.readMany !== undefined) return reader.readMany();
  const { done, value } = await reader.read();
  return { done, value: value === undefined ? [] : [value] };
}
