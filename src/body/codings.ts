import { trimOws } from "../fields/headers.ts";
import { concat } from "./memory.ts";

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

/** Whether the runtime can undo a coding. It is found out when a coding is first met, because Workers start faster then. */
const decodable = new Map<string, boolean>();

/** Returns whether the runtime can undo a content coding: gzip everywhere, br and zstd where the runtime has them. */
export function canDecode(coding: string): boolean {
  let known = decodable.get(coding);
  if (known === undefined) {
    known = coding === "identity" || createDecoder(coding) !== undefined;
    // Clients name the codings: remember only the few names that exist.
    if (known || Object.hasOwn(FORMATS, coding)) decodable.set(coding, known);
  }
  return known;
}

function createDecoder(coding: string): DecompressionStream | undefined {
  if (!Object.hasOwn(FORMATS, coding)) return undefined;
  try {
    return new DecompressionStream(FORMATS[coding] as CompressionFormat);
  } catch {
    // The runtime has no such format.
    return undefined;
  }
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
 */
export function narrowAcceptEncoding(value: string | undefined): string {
  const members = (value ?? "").split(",").map(trimOws);
  const names = members.map((member) => codingNameOf(member));
  const narrowed = members.flatMap((member, i) => {
    const name = names[i] as string;
    // The changed body has the coding `identity`, whatever the client thinks of it.
    if (name === "identity" || name === "") return [];
    if (name !== "*") return canDecode(name) ? [member] : [];
    const others = REQUESTED.filter((coding) => !names.includes(coding) && canDecode(coding));
    return others.map((coding) => coding + member.slice(1));
  });
  return narrowed.length === 0 ? "identity" : narrowed.join(", ");
}

function codingNameOf(member: string): string {
  return trimOws(member.split(";", 1)[0] as string).toLowerCase();
}

/**
 * Undoes the content codings of a body.
 * @param codings the codings in the order in which they were applied, all of which the runtime can undo
 * @param most the maximum length of the result in bytes: a few kilobytes may expand to gigabytes
 * @returns undefined for a longer result
 * @throws what the runtime throws for bytes that do not have the coding
 */
export async function decodeBytes(
  bytes: Uint8Array,
  codings: readonly string[],
  most: number,
): Promise<Uint8Array | undefined> {
  if (codings.length === 0 || bytes.byteLength === 0) return bytes;
  let stream = new Blob([bytes as Uint8Array<ArrayBuffer>]).stream();
  for (const coding of codings.toReversed()) {
    stream = stream.pipeThrough(createDecoder(coding) as DecompressionStream);
  }
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
