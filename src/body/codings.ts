import { trimOws } from "../fields/headers.ts";
import { concat, copyBytes } from "./memory.ts";

/** The content codings, and the names by which `DecompressionStream` knows them. */
const FORMATS: Readonly<Record<string, string>> = {
  gzip: "gzip",
  "x-gzip": "gzip",
  deflate: "deflate",
  br: "brotli",
  zstd: "zstd",
};

/**
 * The codings that replace `*` in `Accept-Encoding`. `deflate` is missing, because some servers send it without the zlib
 * header (RFC 9110 §8.4.1.2).
 */
const REQUESTED = ["gzip", "br", "zstd"];

/**
 * The maximum number of content codings that are undone for one body. Senders apply one; a list of thousands would block
 * the event loop.
 */
export const MAX_CODINGS = 5;

/**
 * The maximum number of bytes that a decoder gets at a time. Deno's decoder decodes all of them before it returns the
 * first result. This many bytes of gzip expand to at most 4 MiB (1032 : 1).
 */
const DECODER_CHUNK_SIZE = 4096;

const MIB = 1_048_576;

/**
 * The formats in which a few bytes expand too far for `DECODER_CHUNK_SIZE` to limit the result: about ten bytes of
 * brotli can expand to 16 MiB, and four bytes of zstd to 128 KiB (RFC 7932 §9.2, RFC 8878 §3.1.1.2). Each value decodes
 * to 4 MiB of zeros, with which `isBounded` tests the runtime's decoder.
 */
const BOMBS: Readonly<Record<string, readonly number[]>> = {
  brotli: [155, 255, 255, 63, 248, 39, 0, 226, 177, 64, 32, 247, 254, 7],
  zstd: [40, 181, 47, 253, 128, 88, 0, 0, 64, 0].concat(
    ...Array.from({ length: 31 }, () => [2, 0, 16, 0]),
    [3, 0, 16, 0],
  ),
};

/** The result of `findDecodable`; undefined before its first call, so that Workers start without the test. */
let decodable: ReadonlySet<string> | undefined;

/**
 * Returns the codings that the runtime can undo with bounded memory: gzip and deflate on every runtime, br and zstd on
 * some runtimes.
 */
export async function findDecodable(): Promise<ReadonlySet<string>> {
  // Do not share a promise between requests: on Workers, a promise of a request whose client has disconnected may never
  // settle.
  return (decodable ??= await filterFormats());
}

async function filterFormats(): Promise<ReadonlySet<string>> {
  const codings = Object.keys(FORMATS);
  const areBounded = await Promise.all(codings.map((coding) => isBounded(FORMATS[coding] ?? "")));
  return new Set(codings.filter((_, i) => areBounded[i]));
}

/**
 * Whether the runtime has a decoder for this format that returns a first result of at most 1 MiB, before it has decoded its
 * whole input. For a format that is not in `BOMBS`, the result is true without a test.
 */
async function isBounded(format: string): Promise<boolean> {
  const bomb = BOMBS[format];
  if (bomb === undefined) return true;
  try {
    const reader = decodeSlowly(Uint8Array.from(bomb), format).getReader();
    const { value } = await reader.read();
    await reader.cancel();
    return value !== undefined && value.byteLength <= MIB;
  } catch {
    // The runtime has no such format.
    return false;
  }
}

/** Decodes bytes. The decoder gets a chunk only when its output for the previous chunk has been read. */
function decodeSlowly(bytes: Uint8Array, format: string): ReadableStream<Uint8Array> {
  let at = 0;
  const input = new ReadableStream<Uint8Array<ArrayBuffer>>(
    {
      pull(controller) {
        if (at >= bytes.byteLength) return controller.close();
        // Pass a copy: a decoder that was cancelled may still read the chunk while the original bytes are sent to the
        // client.
        controller.enqueue(copyBytes(bytes.subarray(at, (at += DECODER_CHUNK_SIZE))));
      },
    },
    { highWaterMark: 0 },
  );
  return input.pipeThrough(new DecompressionStream(format as CompressionFormat));
}

/** Returns the codings in a value of `Content-Encoding`, in the order in which they were applied. */
export function readCodings(value: string): string[] {
  const codings = value.split(",").map((coding) => trimOws(coding).toLowerCase());
  return codings.filter((coding) => coding !== "" && coding !== "identity");
}

/**
 * Returns a value of `Accept-Encoding` without the codings that the runtime cannot undo; `identity` if none is left. No coding
 * is added that the client does not accept, because a response that is not changed reaches the client still encoded.
 * @param value the client's value; undefined for none
 * @param decodableCodings the codings that the runtime can undo
 */
export function narrowAcceptEncoding(
  value: string | undefined,
  decodableCodings: ReadonlySet<string>,
): string {
  const members = (value ?? "").split(",").map(trimOws);
  const names = members.map((member) => codingNameOf(member));
  const narrowed = members.flatMap((member, i) => {
    const name = names[i] as string;
    // Drop even `identity;q=0`: a changed body has no coding, whether or not the client accepts that.
    if (name === "identity" || name === "") return [];
    if (name !== "*") return decodableCodings.has(name) ? [member] : [];
    const others = REQUESTED.filter(
      (coding) => !names.includes(coding) && decodableCodings.has(coding),
    );
    return others.map((coding) => coding + member.slice(1));
  });
  return narrowed.length === 0 ? "identity" : narrowed.join(", ");
}

function codingNameOf(member: string): string {
  return trimOws(member.split(";", 1)[0] as string).toLowerCase();
}

/**
 * Undoes the content codings of a body, one after the other, so that the limit applies to the result of each.
 * @param codings the codings in the order in which they were applied, all of which the runtime can undo
 * @param maxBytes the maximum length of each result: a few kilobytes may expand to gigabytes
 * @returns undefined for a longer result
 * @throws the runtime's own error for bytes that are not encoded as `codings` says
 */
export async function decodeBytes(
  bytes: Uint8Array,
  codings: readonly string[],
  maxBytes: number,
): Promise<Uint8Array | undefined> {
  let decoded = bytes;
  for (const coding of codings.toReversed()) {
    if (decoded.byteLength === 0) return decoded;
    const result = await readUpTo(maxBytes, decodeSlowly(decoded, FORMATS[coding] ?? ""));
    if (result === undefined) return undefined;
    decoded = result;
  }
  return decoded;
}

/** Reads a stream to its end; returns undefined if it is longer than `maxBytes`. */
async function readUpTo(
  maxBytes: number,
  stream: ReadableStream<Uint8Array>,
): Promise<Uint8Array | undefined> {
  const reader = stream.getReader();
  const chunks: Uint8Array[] = [];
  let length = 0;
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return concat(chunks);
    length += value.byteLength;
    if (length > maxBytes) {
      await reader.cancel();
      return undefined;
    }
    chunks.push(value);
  }
}
