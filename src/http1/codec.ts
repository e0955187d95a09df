/** Converts between bytes and text, and copies bytes. A runtime may have a faster codec than the portable one. */
export interface Codec {
  /** Decodes each byte as the character with the same number (ISO-8859-1). */
  decode(bytes: Uint8Array, start: number, end: number): string;
  /** Encodes each character as the byte with the same number; the text has no character above U+00FF. */
  encode(text: string): Uint8Array;
  /** Returns memory whose bytes are not set yet; the caller sets all of them. It may share its ArrayBuffer. */
  allocate(length: number): Uint8Array;
  /** Copies bytes into an ArrayBuffer that holds no other bytes, so that the receiver may transfer it. */
  copy(bytes: Uint8Array): Uint8Array;
  /** Copies bytes for a receiver that only reads them: copies may share an ArrayBuffer. */
  copyToRead(bytes: Uint8Array): Uint8Array;
}

/** The number of arguments that one call of `String.fromCharCode` gets: JavaScript engines limit this number. */
const BATCH = 4096;

/**
 * The codec for every runtime. It does not use `TextDecoder`: its "latin1" means windows-1252, which has other characters
 * than ISO-8859-1 for the bytes 0x80 to 0x9f.
 */
export const portableCodec: Codec = {
  decode(bytes, start, end) {
    let text = "";
    for (let at = start; at < end; at += BATCH) {
      text += String.fromCharCode(...bytes.subarray(at, Math.min(end, at + BATCH)));
    }
    return text;
  },
  encode(text) {
    const bytes = new Uint8Array(text.length);
    for (let at = 0; at < text.length; at++) bytes[at] = text.charCodeAt(at);
    return bytes;
  },
  allocate: (length) => new Uint8Array(length),
  copy: (bytes) => new Uint8Array(bytes),
  copyToRead: (bytes) => new Uint8Array(bytes),
};
