import type { TlsOptions } from "../../src/target/target.ts";

/** The byte order mark of UTF-8, as a text and as bytes. */
const MARK = "\uFEFF";
const BYTES = [0xef, 0xbb, 0xbf] as const;

/**
 * Removes byte order marks, which editors on Windows write, from the certificates and keys of TLS options. Node reads PEM text
 * that follows such a mark. Bun and Deno do not find the certificate there, and Deno then connects without the client
 * certificate.
 */
export function removeMarks(tls: TlsOptions): object {
  const named = Object.entries({ ca: tls.ca, cert: tls.cert, key: tls.key });
  const given = named.filter(([, value]) => value !== undefined);
  return { ...tls, ...Object.fromEntries(given.map(([name, value]) => [name, removeMark(value)])) };
}

/** Removes the mark from a string, from bytes, or from each entry of an array, all of which `tls.connect` accepts. */
function removeMark(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(removeMark);
  if (typeof value === "string") return value.startsWith(MARK) ? value.slice(1) : value;
  if (!(value instanceof Uint8Array)) return value;
  return BYTES.every((byte, i) => value[i] === byte) ? value.subarray(BYTES.length) : value;
}
