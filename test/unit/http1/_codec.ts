/** A codec in plain JavaScript, for tests of the HTTP/1.1 client without a runtime's sockets. */
import type { Codec } from "../../../src/http1/codec.ts";

/** The number of arguments that one call of `String.fromCharCode` gets: JavaScript engines limit this number. */
const BATCH = 4096;

/**
 * A codec that does not use `TextDecoder`: the encoding "latin1" of `TextDecoder` is windows-1252, which has other
 * characters than ISO-8859-1 for the bytes 0x80 to 0x9f.
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
