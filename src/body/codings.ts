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

/** The codings to ask an upstream for. Not `deflate`: some servers send it without the zlib header (RFC 9110 §8.4.1.2). */
const REQUESTED = ["gzip", "br", "zstd"];

/** The number of codings of one body that are undone: a sender applies one, and a list of thousands blocks the event loop. */
export const MAX_CODINGS = 5;

/**
 * Length of the pieces in bytes in which a decoder gets a body. Deno's decoder expands all bytes of a write before it
 * passes any on; gzip expands these to at most 4 MiB (1032 : 1).
 */
const PIECE = 4096;

const MIB = 1_048_576;

/**
 * 4 MiB of zeros in formats that expand without such a limit: 16 MiB need some ten bytes of brotli, 128 KiB need four of
 * zstd (RFC 7932 §9.2, RFC 8878 §3.1.1.2).
 */
const BOMBS: Readonly<Record<string, readonly number[]>> = {
  brotli: [155, 255, 255, 63, 248, 39, 0, 226, 177, 64, 32, 247, 254, 7],
  zstd: [40, 181, 47, 253, 128, 88, 0, 0, 64, 0].concat(
    ...Array.from({ length: 31 }, () => [2, 0, 16, 0]),
    [3, 0, 16, 0],
  ),
};

/** The codings that the runtime can undo; undefined before the first request, because Workers start faster then. */
let decodable: ReadonlySet<string> | undefined;

/** Returns the codings that the runtime can undo with bounded memory: gzip and deflate everywhere, br and zstd on some. */
export async function findDecodable(): Promise<ReadonlySet<string>> {
  // No promise is shared: on Workers, one that belongs to a request of a client that has left may never settle.
  return (decodable ??= await filterFormats());
}

async function filterFormats(): Promise<ReadonlySet<string>> {
  const codings = Object.keys(FORMATS);
  const areBounded = await Promise.all(codings.map((coding) => isBounded(FORMATS[coding] ?? "")));
  return new Set(codings.filter((_, i) => areBounded[i]));
}

/** Whether the runtime has a decoder of the format, and it passes on what it has decoded before it decodes all. */
async function isBounded(format: string): Promise<boolean> {
  const bomb = BOMBS[format];
  if (bomb === undefined) return true;
  try {
    const reader = decodePieces(Uint8Array.from(bomb), format).getReader();
    const { value } = await reader.read();
    await reader.cancel();
    return value !== undefined && value.byteLength <= MIB;
  } catch {
    // The runtime has no such format.
    return false;
  }
}

/** Returns what the decoder of a format makes of bytes, and gives it a piece only when its output has been read. */
function decodePieces(bytes: Uint8Array, format: string): ReadableStream<Uint8Array> {
  let at = 0;
  const pieces = new ReadableStream<Uint8Array<ArrayBuffer>>(
    {
      pull(controller) {
        if (at >= bytes.byteLength) return controller.close();
        // A copy: a decoder that is cancelled may still read it while the body passes on unchanged.
        controller.enqueue(copyBytes(bytes.subarray(at, (at += PIECE))));
      },
    },
    { highWaterMark: 0 },
  );
  return pieces.pipeThrough(new DecompressionStream(format as CompressionFormat));
}

/** Returns the codings in a value of `Content-Encoding`, in the order in which they were applied. */
export function readCodings(value: string): string[] {
  const codings = value.split(",").map((coding) => trimOws(coding).toLowerCase());
  return codings.filter((coding) => coding !== "" && coding !== "identity");
}

/**
 * Returns a value of `Accept-Encoding` without the codings that the runtime cannot undo. It never asks for more than the
 * client does, because a response that is not changed reaches the client as it is.
 * @param value the client's value; undefined for none
 * @param decodableCodings those that the runtime can undo
 */
export function narrowAcceptEncoding(
  value: string | undefined,
  decodableCodings: ReadonlySet<string>,
): string {
  const members = (value ?? "").split(",").map(trimOws);
  const names = members.map((member) => codingNameOf(member));
  const narrowed = members.flatMap((member, i) => {
    const name = names[i] as string;
    // The changed body has the coding `identity`, whatever the client thinks of it.
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
 * Undoes the content codings of a body, one after the other, so that the limit bounds what each of them yields.
 * @param codings the codings in the order in which they were applied, all of which the runtime can undo
 * @param most the maximum length in bytes of what each coding yields: a few kilobytes may expand to gigabytes
 * @returns undefined for a longer result
 * @throws what the runtime throws for bytes that do not have the coding
 */
export async function decodeBytes(
  bytes: Uint8Array,
  codings: readonly string[],
  most: number,
): Promise<Uint8Array | undefined> {
  let decoded = bytes;
  for (const coding of codings.toReversed()) {
    if (decoded.byteLength === 0) return decoded;
    const yielded = await readUpTo(most, decodePieces(decoded, FORMATS[coding] ?? ""));
    if (yielded === undefined) return undefined;
    decoded = yielded;
  }
  return decoded;
}

/** Reads a stream to its end; returns undefined if it is longer than so many bytes. */
async function readUpTo(
  most: number,
  stream: ReadableStream<Uint8Array>,
): Promise<Uint8Array | undefined> {
  const reader = stream.getReader();
  const chunks: Uint8Array[] = [];
  let length = 0;
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return concat(chunks);
    length += value.byteLength;
    if (length > most) {
      await reader.cancel();
      return undefined;
    }
    chunks.push(value);
  }
}
