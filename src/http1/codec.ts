/** How bytes become text, and how they are copied. A runtime may have quicker ways than the portable ones. */
export interface Codec {
  /** Reads each byte as the character of the same number (ISO-8859-1). */
  decode(bytes: Uint8Array, start: number, end: number): string;
  /** Writes each character as the byte of the same number; no character is above U+00FF. */
  encode(text: string): Uint8Array;
  /** Copies bytes into an ArrayBuffer that holds nothing else: its receiver may transfer it. */
  copy(bytes: Uint8Array): Uint8Array;
}

/** Arguments that one call of `String.fromCharCode` gets: engines limit their number. */
const BATCH = 4096;

/** Works on every runtime. `TextDecoder` would not: its "latin1" is windows-1252, which reads 0x80–0x9f otherwise. */
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
  copy: (bytes) => new Uint8Array(bytes),
};
