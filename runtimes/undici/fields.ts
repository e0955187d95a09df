import type { HeaderList } from "../../src/fields/headers.ts";
import { bufferCodec } from "../sockets/buffercodec.ts";

/** Raw header fields: undici's parser gives a list of bytes, HTTP/2 an object, and an interceptor any of these forms. */
type RawFields = readonly (Uint8Array | string)[] | ParsedFields | null | undefined;
type ParsedFields = Readonly<Record<string, string | string[] | undefined>>;

/**
 * Returns the header fields of a response as a flat list.
 * @param parsed the same fields as an object, which is read if there are no raw fields
 */
export function readFields(raw: RawFields, parsed: ParsedFields): HeaderList {
  if (!Array.isArray(raw)) return readObject((raw as ParsedFields | null | undefined) ?? parsed);
  if (raw.length === 0) return readObject(parsed);
  // A copy whose entries are replaced takes less memory than a list that grows.
  const list = raw.slice() as (Uint8Array | string)[];
  for (let i = 0; i < list.length; i++) {
    const text = list[i] as Uint8Array | string;
    if (typeof text !== "string") list[i] = bufferCodec.decode(text, 0, text.byteLength);
  }
  return list as HeaderList;
}

function readObject(fields: ParsedFields): HeaderList {
  const list: HeaderList = [];
  // Use `for…in`: nearly every response has an empty trailer section, for which `Object.entries` would make an array.
  for (const name in fields) {
    if (!Object.hasOwn(fields, name)) continue;
    const value = fields[name];
    // HTTP/2 has pseudo-header fields, whose names begin with a colon.
    if (value === undefined || name.startsWith(":")) continue;
    if (typeof value === "string") list.push(name, value);
    else for (const each of value) list.push(name, each);
  }
  return list;
}

/**
 * Returns a list in which each name occurs once. A repeated field has an array of values, which undici sends as separate lines.
 */
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
const ASCII = /^[\t -~]*$/;

/** Returns a reason phrase in which each byte is one character, as Node writes it; undici decodes the bytes as UTF-8. */
export function readReason(text = ""): string {
  if (ASCII.test(text)) return text;
  const bytes = encoder.encode(text);
  return bufferCodec.decode(bytes, 0, bytes.byteLength);
}
