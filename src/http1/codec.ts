/** Converts between bytes and text, and copies bytes. Each runtime has its own. */
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
