import type { HeaderList } from "../../src/transport.ts";
import { bufferCodec } from "../sockets/buffercodec.ts";

/** Fields as undici's parser has them (bytes), HTTP/2 (an object), or interceptors (either, or strings). */
type RawFields = readonly (Uint8Array | string)[] | ParsedFields | null | undefined;
type ParsedFields = Readonly<Record<string, string | string[] | undefined>>;

/**
 * The header fields of a response as a flat list.
 * @param parsed the same fields as an object: without raw ones, these are all there are
 */
export function toFields(raw: RawFields, parsed: ParsedFields): HeaderList {
  if (!Array.isArray(raw)) return fromObject((raw as ParsedFields | null | undefined) ?? parsed);
  if (raw.length === 0) return fromObject(parsed);
  const list: HeaderList = [];
  for (let i = 0; i < raw.length; i++) {
    const text = raw[i] as Uint8Array | string;
    list.push(typeof text === "string" ? text : bufferCodec.decode(text, 0, text.byteLength));
  }
  return list;
}

function fromObject(fields: ParsedFields): HeaderList {
  const list: HeaderList = [];
  for (const [name, value] of Object.entries(fields)) {
    // A pseudo-header field of HTTP/2.
    if (value === undefined || name.startsWith(":")) continue;
    if (typeof value === "string") list.push(name, value);
    else for (const each of value) list.push(name, each);
  }
  return list;
}

/** A list in which fields with the same name are one: its value is all of theirs, as undici sends on lines of their own. */
export function groupFields(list: HeaderList): (string | string[])[] {
  const grouped: (string | string[])[] = [];
  const places = new Map<string, number>();
  for (let i = 0; i < list.length; i += 2) {
    const name = list[i] as string;
    const value = list[i + 1] as string;
    const place = places.get(name);
    if (place === undefined) {
      places.set(name, grouped.length + 1);
      grouped.push(name, value);
    } else grouped[place] = [grouped[place] as string[], value].flat();
  }
  return grouped;
}

const encoder = new TextEncoder();

/** A reason phrase, which undici decodes as UTF-8, as characters of one byte each, as Node writes them. */
export function readReason(text = ""): string {
  if (/^[\t -~]*$/.test(text)) return text;
  const bytes = encoder.encode(text);
  return bufferCodec.decode(bytes, 0, bytes.byteLength);
}
