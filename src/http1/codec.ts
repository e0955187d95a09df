/** Converts between bytes and text, and copies bytes. Each runtime has its own codec. */
export interface Codec {
  /** Decodes each byte as the character with the same number (ISO-8859-1). */
  decode(bytes: Uint8Array, start: number, end: number): string;
  /** Encodes each character as the byte with the same number. The text must not contain a character above U+00FF. */
  encode(text: string): Uint8Array;
  /**
   * Returns memory whose bytes are not set yet; the caller sets all of them. The memory may be a part of a larger
   * ArrayBuffer.
   */
  allocate(length: number): Uint8Array;
  /** Copies bytes into an ArrayBuffer that holds no other bytes, so that the receiver may transfer it. */
  copy(bytes: Uint8Array): Uint8Array;
  /** Copies bytes for a receiver that only reads them. Several copies may share an ArrayBuffer. */
  copyToRead(bytes: Uint8Array): Uint8Array;
}
