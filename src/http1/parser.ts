import { ProxyError, type ProxyErrorCode } from "../error.ts";
import type { HeaderList } from "../fields/headers.ts";
import { TOKEN } from "../fields/token.ts";
import { MAX_TRAILERS } from "../fields/trailers.ts";
import { MAX_INTERIM } from "../transport/scope.ts";
import type { Codec } from "./codec.ts";

/** The value of `length` for a body in the chunked transfer coding, whose length is not known in advance. */
const CHUNKED = -1;
/** The value of `length` for a body that ends when the upstream closes the connection. */
const UNTIL_CLOSE = -2;

/** The head of a response, and the length and persistence that follow from its fields. */
export interface ParsedHead {
  readonly status: number;
  readonly statusText: string;
  readonly headers: HeaderList;
  /** The length of the body in bytes; below 0 if the head does not state it. */
  readonly length: number;
  /** Whether the HTTP version and the fields let the connection carry another request after this response. */
  readonly isPersistent: boolean;
  /** Milliseconds for which the upstream keeps an idle connection, according to `Keep-Alive`; `Infinity` without it. */
  readonly keepAliveTimeout: number;
}

/** The object to which a parser passes the parts of a response. */
export interface ResponseHandler {
  /** Called with each interim response (1xx), except 101. */
  onInterim?(status: number, headers: HeaderList): void;
  /** Called with the head of the response. */
  onHead(head: ParsedHead): void;
  /** Called with each chunk of the body, which is a view of the bytes that were passed to `feed`. */
  onChunk(chunk: Uint8Array): void;
  /**
   * Called when the response has ended.
   * @param isReusable whether the connection can carry another request: it is persistent, and no byte follows
   * @param trailers the trailer fields; undefined if there are none
   */
  onEnd(isReusable: boolean, trailers?: HeaderList): void;
}

/** The rules for one kind of lines, such as the head of a response. */
interface LinesKind {
  /** The name of the lines in error messages, such as "response head". */
  readonly name: string;
  /** Whether several lines are read, up to an empty line. If not, a single line is read. */
  readonly isSection: boolean;
  /** The maximum number of bytes of all lines together. */
  readonly limit: number;
  /** The code of the error for lines that have more bytes than `limit`. */
  readonly code: ProxyErrorCode;
}

/** The head of a response. Its limit is the default of Node's own parser. */
const HEAD: LinesKind = {
  name: "response head",
  isSection: true,
  limit: 16_384,
  code: "http_response_header_section_size",
};
const TRAILERS: LinesKind = {
  ...HEAD,
  name: "trailer section",
  code: "http_protocol_error",
};
/** The line before each chunk of the chunked coding: its size and its extensions. */
const CHUNK_SIZE: LinesKind = {
  name: "chunk size",
  isSection: false,
  limit: 1024,
  code: "http_protocol_error",
};
/**
 * The maximum number of bytes in the chunk extensions of one body. Without this limit, the extensions could be longer than
 * the body.
 */
const MAX_EXTENSION_BYTES = 16_384;

/** The maximum number of bytes in all interim responses to one request. */
const MAX_INTERIM_BYTES = 65_536;

const CHUNK_SIZE_LINE = /^([\da-f]+)[\t ]*(;[\t -~\u0080-\u00ff]*)?\r\n$/i;
/** A status line up to its line end. Nothing is captured, because the parts before the reason phrase have fixed positions. */
const STATUS_LINE = /^HTTP\/1\.[01] [1-9]\d\d(?: [^\r\n]*)?\r\n/;
/**
 * The maximum number of digits of a chunk size that is read directly from the bytes. A number of eight digits is always a
 * safe integer.
 */
const MAX_PLAIN_DIGITS = 8;
/**
 * Control characters, and CR without LF. Another parser could take one of them for a line end, and would then see other
 * fields. LF without CR is refused by `LineReader`.
 */
const UNCLEAR = /[^\t\r\n -~\u0080-\u00ff]|\r(?!\n)/;
const LENGTH_VALUE = /^\d{1,15}$/;

const LF = 0x0a;
const CR = 0x0d;
const COLON = 0x3a;
/** Within a line without `UNCLEAR` characters, the only characters with a code up to this one are spaces and tabs. */
const SPACE = 0x20;
/** The first bytes of every status line. */
const START = Array.from("HTTP/1.", (character) => character.charCodeAt(0));

type Phase =
  /** No response is expected. */
  | "idle"
  | "head"
  /** The body has a known length. */
  | "fixed-length"
  /** The body ends when the upstream closes the connection. */
  | "until-close"
  | "chunk-size"
  | "chunk-data"
  /** The line end after the data of a chunk. */
  | "chunk-end"
  | "trailers"
  /** The connection has switched to another protocol: all further bytes belong to that protocol. */
  | "switched";

/**
 * Parses the responses on one connection, one at a time. The bytes that are fed may be split anywhere.
 *
 * The parser repairs nothing: if two parsers could read the bytes in two ways, it throws (RFC 9112 §11.1, §11.2).
 */
export class ResponseParser {
  #phase: Phase = "idle";
  /** Whether the request was a HEAD request, whose response has no body. */
  #isHeadRequest = false;
  #isPersistent = false;
  /** The number of bytes still to be read of the body, or of the current chunk's data. */
  #remaining = 0;
  /** The total number of bytes that further chunk extensions may have. */
  #extensionBytesLeft = 0;
  /** The number of interim responses that may still arrive. */
  #interimLeft = 0;
  /** The total number of bytes that further interim responses may have. */
  #interimBytesLeft = 0;
  /** How many bytes of the line end after a chunk have been read: 0 or 1. */
  #lineEndBytes = 0;
  /** The number of bytes of the present head that were compared with `START`. */
  #startLength = 0;
  /** The fields of the last head; `parseFields` reuses their strings for the next head. */
  readonly #lastFields: HeaderList = [];
  readonly #lines: LineReader;
  readonly #handler: ResponseHandler;
  /** Whether the request asks to switch protocols, so that the upstream may answer 101. */
  readonly #maySwitch: boolean;

  constructor(handler: ResponseHandler, codec: Codec, maySwitch = false) {
    this.#handler = handler;
    this.#maySwitch = maySwitch;
    this.#lines = new LineReader(codec);
  }

  /** Whether the end of the connection is the end of the body. */
  get isUntilClose(): boolean {
    return this.#phase === "until-close";
  }

  /** Whether the connection has switched to another protocol: all further bytes are passed on as chunks. */
  get isSwitched(): boolean {
    return this.#phase === "switched";
  }

  /** Prepares for the response to a request that is being sent. */
  expectResponse(method: string): void {
    this.#phase = "head";
    this.#isHeadRequest = method === "HEAD";
    this.#extensionBytesLeft = MAX_EXTENSION_BYTES;
    this.#interimLeft = MAX_INTERIM;
    this.#interimBytesLeft = MAX_INTERIM_BYTES;
  }

  /**
   * Parses bytes as they arrive. Bytes after the end of the response are dropped.
   * @throws ProxyError for a malformed response; the parser must not be used afterwards
   */
  feed(bytes: Uint8Array): void {
    for (let at = 0; at >= 0 && at < bytes.length;) at = this.#parseNext(bytes, at);
  }

  /**
   * Handles the end of the connection.
   * @returns whether the response is complete
   */
  finish(): boolean {
    if (this.#phase === "until-close") this.#end(false);
    return this.#phase === "idle";
  }

  /** Parses the next part of a response; returns the index after it, or -1 if all bytes were used and more are needed. */
  #parseNext(bytes: Uint8Array, at: number): number {
    switch (this.#phase) {
      case "head":
        return this.#parseHead(bytes, at);
      case "until-close":
      case "switched":
        this.#handler.onChunk(at === 0 ? bytes : bytes.subarray(at));
        return bytes.length;
      case "fixed-length":
      case "chunk-data":
        return this.#parseData(bytes, at);
      case "chunk-end":
        return this.#parseChunkEnd(bytes, at);
      case "chunk-size":
        return this.#parseChunkSize(bytes, at);
      case "trailers":
        return this.#parseTrailers(bytes, at);
      case "idle":
        return bytes.length;
    }
  }

  #parseHead(bytes: Uint8Array, at: number): number {
    // Check the first bytes without waiting for the rest: a server of another protocol may never send a whole head.
    if (!this.#lines.isPartial) this.#startLength = 0;
    if (this.#startLength < START.length) this.#checkStart(bytes, at);
    const end = this.#lines.read(bytes, at, HEAD);
    if (end < 0) return end;
    const head = parseHead(this.#lines.text, this.#isHeadRequest, this.#lastFields);
    // A 101 ends HTTP on this connection. All other interim responses are followed by a final response (RFC 9110 §15.2).
    if (head.status === 101) {
      // HTTP/1.0 has no upgrade (RFC 9110 §7.8).
      if (!this.#maySwitch || this.#lines.text.startsWith("HTTP/1.0")) throw malformed("upgrade");
      this.#phase = "switched";
      this.#handler.onHead(head);
      return end;
    }
    if (head.status < 200) {
      this.#countInterim(this.#lines.text.length);
      this.#handler.onInterim?.(head.status, head.headers);
      return end;
    }
    this.#isPersistent = head.isPersistent;
    this.#remaining = head.length;
    if (head.length === CHUNKED) this.#phase = "chunk-size";
    else if (head.length === UNTIL_CLOSE) this.#phase = "until-close";
    else this.#phase = "fixed-length";
    this.#handler.onHead(head);
    if (head.length === 0) this.#end(end === bytes.length);
    return end;
  }

  /**
   * Compares the first bytes of a head, which may arrive in several chunks, with those of every status line.
   * @throws ProxyError for the first byte that differs
   */
  #checkStart(bytes: Uint8Array, at: number): void {
    for (let i = at; i < bytes.length && this.#startLength < START.length; i++) {
      if (bytes[i] === START[this.#startLength++]) continue;
      throw (this.#startLength === 1 && explainFirst(bytes[i])) || malformed("status line");
    }
  }

  #countInterim(bytes: number): void {
    this.#interimLeft -= 1;
    this.#interimBytesLeft -= bytes;
    if (this.#interimLeft >= 0 && this.#interimBytesLeft >= 0) return;
    throw new ProxyError("http_protocol_error", {
      message: `the upstream sent more than ${MAX_INTERIM} interim responses, or ${MAX_INTERIM_BYTES} bytes of them`,
    });
  }

  /** Passes on bytes of a body of known length, or of the data of a chunk. */
  #parseData(bytes: Uint8Array, at: number): number {
    const end = Math.min(bytes.length, at + this.#remaining);
    this.#remaining -= end - at;
    this.#handler.onChunk(at === 0 && end === bytes.length ? bytes : bytes.subarray(at, end));
    if (this.#remaining > 0) return end;
    if (this.#phase === "chunk-data") this.#phase = "chunk-end";
    else this.#end(end === bytes.length);
    return end;
  }

  #parseChunkEnd(bytes: Uint8Array, at: number): number {
    if (bytes[at] !== (this.#lineEndBytes === 0 ? CR : LF)) throw malformed("chunk");
    this.#lineEndBytes = 1 - this.#lineEndBytes;
    if (this.#lineEndBytes === 0) this.#phase = "chunk-size";
    return at + 1;
  }

  #parseChunkSize(bytes: Uint8Array, at: number): number {
    if (!this.#lines.isPartial) {
      const end = this.#readPlainSize(bytes, at);
      if (end >= 0) return end;
    }
    const end = this.#lines.read(bytes, at, CHUNK_SIZE);
    if (end < 0) return end;
    const [, digits, extension] = CHUNK_SIZE_LINE.exec(this.#lines.text) ?? [];
    if (digits === undefined) throw malformed("chunk size");
    this.#remaining = Number.parseInt(digits, 16);
    this.#extensionBytesLeft -= extension?.length ?? 0;
    if (this.#remaining > Number.MAX_SAFE_INTEGER || this.#extensionBytesLeft < 0) {
      throw malformed("chunk size");
    }
    this.#phase = this.#remaining === 0 ? "trailers" : "chunk-data";
    return end;
  }

  /**
   * Reads the line of a chunk size without making a text of it, if the line has at most `MAX_PLAIN_DIGITS` digits and no
   * extension, and has arrived in one part. Most such lines do.
   * @returns the index after the line; -1 for any other line, which is left unread
   */
  #readPlainSize(bytes: Uint8Array, start: number): number {
    let size = 0;
    let at = start;
    for (; at < start + MAX_PLAIN_DIGITS; at++) {
      const digit = hexValueOf(bytes[at]);
      if (digit < 0) break;
      size = size * 16 + digit;
    }
    if (at === start || bytes[at] !== CR || bytes[at + 1] !== LF) return -1;
    this.#remaining = size;
    this.#phase = size === 0 ? "trailers" : "chunk-data";
    return at + 2;
  }

  #parseTrailers(bytes: Uint8Array, at: number): number {
    const end = this.#lines.read(bytes, at, TRAILERS);
    if (end < 0) return end;
    const trailers = parseFields(this.#lines.text, 0, []);
    if (trailers.length > 2 * MAX_TRAILERS) throw malformed("trailer section");
    this.#end(end === bytes.length, trailers.length === 0 ? undefined : trailers);
    return end;
  }

  #end(isLastByte: boolean, trailers?: HeaderList): void {
    this.#phase = "idle";
    this.#handler.onEnd(this.#isPersistent && isLastByte, trailers);
  }
}

/** Returns the value of a hexadecimal digit; -1 for any other byte, and for the end of the bytes. */
function hexValueOf(byte = 0): number {
  if (byte >= 0x30 && byte <= 0x39) return byte - 0x30;
  const lowerCase = byte | 0x20;
  return lowerCase >= 0x61 && lowerCase <= 0x66 ? lowerCase - 0x57 : -1;
}

// ── lines ──

/**
 * Reads lines from bytes that may be split anywhere. Lines that arrive in one part are read without a copy.
 *
 * A line ends with CR LF and with nothing else: if one parser accepts a lone CR or LF as a line end, and another does not, the
 * two see different fields (RFC 9112 §2.2).
 */
class LineReader {
  /** The lines that were read last, including their line ends. */
  text = "";
  /** Whether only a part of the lines has arrived so far. */
  isPartial = false;
  /** The bytes of lines that are not complete. */
  #buffer: Uint8Array | undefined;
  /** The number of bytes in the buffer. */
  #buffered = 0;
  /** The index at which the current line begins: in the buffer if there is one, and otherwise in the last chunk. */
  #lineStart = 0;
  readonly #codec: Codec;

  constructor(codec: Codec) {
    this.#codec = codec;
  }

  /**
   * Continues reading at an index, and sets `text` when the lines are complete.
   * @returns the index after the lines; -1 if all bytes were used and more are needed
   * @throws ProxyError for lines that are too long, or do not end with CR LF
   */
  read(bytes: Uint8Array, at: number, kind: LinesKind): number {
    if (this.isPartial) return this.#readOn(bytes, at, kind);
    const to = Math.min(bytes.length, at + kind.limit);
    this.#lineStart = at;
    const end = this.#findEnd(bytes, at, to, kind.isSection);
    if (end >= 0) this.text = this.#codec.decode(bytes, at, end);
    else if (to < bytes.length || to - at === kind.limit) throw tooLong(kind);
    else {
      this.#buffer = new Uint8Array(kind.limit);
      this.#buffer.set(bytes.subarray(at));
      this.#buffered = to - at;
      this.#lineStart -= at;
      this.isPartial = true;
    }
    return end;
  }

  #readOn(bytes: Uint8Array, at: number, kind: LinesKind): number {
    const buffer = this.#buffer as Uint8Array;
    const from = this.#buffered;
    const taken = Math.min(bytes.length - at, kind.limit - from);
    buffer.set(bytes.subarray(at, at + taken), from);
    const end = this.#findEnd(buffer, from, from + taken, kind.isSection);
    if (end < 0) {
      this.#buffered += taken;
      if (this.#buffered === kind.limit) throw tooLong(kind);
      return -1;
    }
    this.text = this.#codec.decode(buffer, 0, end);
    this.#buffer = undefined;
    this.isPartial = false;
    return at + end - from;
  }

  #findEnd(bytes: Uint8Array, from: number, to: number, isSection: boolean): number {
    for (let at = from; at < to; at++) {
      if (bytes[at] !== LF) continue;
      if (at === this.#lineStart || bytes[at - 1] !== CR) throw malformed("line end");
      if (!isSection || at === this.#lineStart + 1) return at + 1;
      this.#lineStart = at + 1;
    }
    return -1;
  }
}

// ── heads ──

/**
 * Parses the head of a response, including its line ends.
 * @param isHeadRequest whether the request was a HEAD request: the response then has no body, whatever its fields say
 * @param lastFields the fields of the last head on the same connection, which this call updates: see `parseFields`
 * @throws ProxyError for a head that is malformed, could be read in two ways, or names an unknown transfer coding
 * @see https://www.rfc-editor.org/rfc/rfc9112#section-6.3
 */
export function parseHead(
  text: string,
  isHeadRequest: boolean,
  lastFields: HeaderList = [],
): ParsedHead {
  // Unlike `exec`, `test` does not allocate an array for each response.
  if (!STATUS_LINE.test(text)) throw malformed("status line");
  const end = text.indexOf("\r\n");
  const isHttp10 = text[7] === "0";
  const status = Number(text.slice(9, 12));
  const statusText = text.slice(13, end);
  const headers = parseFields(text, end + 2, lastFields);
  let connection = "";
  let length: number | undefined;
  let coding: string | undefined;
  let keepAliveTimeout = Infinity;
  for (let i = 0; i < headers.length; i += 2) {
    const name = headers[i] as string;
    const value = headers[i + 1] as string;
    switch (name.length) {
      case 10:
        if (/^connection$/i.test(name)) connection += `${value},`;
        else if (/^keep-alive$/i.test(name)) keepAliveTimeout = parseKeepAlive(value);
        break;
      case 14:
        if (!/^content-length$/i.test(name)) break;
        if (length !== undefined || !LENGTH_VALUE.test(value)) throw malformed("Content-Length");
        length = Number(value);
        break;
      case 17:
        if (/^transfer-encoding$/i.test(name)) {
          coding = coding === undefined ? value.toLowerCase() : `${coding}, ${value}`;
        }
        break;
    }
  }
  if (coding !== undefined && length !== undefined) throw malformed("framing");
  if (coding !== undefined && coding !== "chunked" && coding !== "identity") {
    throw new ProxyError("http_response_transfer_coding", {
      message: `the upstream sent Transfer-Encoding: ${coding}`,
    });
  }
  const isBodyless = isHeadRequest || status === 204 || status === 304 || status < 200;
  const framedLength = coding === "chunked" ? CHUNKED : (length ?? UNTIL_CLOSE);
  // HTTP/1.0 has no Transfer-Encoding: the message framing may be wrong, so close the connection (RFC 9112 §6.1).
  const isPersistent = readPersistence(connection, !isHttp10) && !(isHttp10 && coding);
  return {
    status,
    statusText,
    headers,
    length: isBodyless ? 0 : framedLength,
    isPersistent,
    keepAliveTimeout,
  };
}

/**
 * The maximum number of fields of a head whose strings are kept for the next head. This limits the memory of a connection.
 */
const MAX_KEPT_FIELDS = 32;
/** The maximum length of a head whose fields are kept. The string of a field keeps the text of its whole head in memory. */
const MAX_KEPT_HEAD = 2048;

/**
 * Parses field lines, each with its line end, and the empty line after them.
 *
 * Responses on one connection mostly have the same fields in the same order, and many equal values. So each name and
 * value is compared with the one at the same position in the last head. If they are equal, the string of the last head is
 * used again, which needs no new memory, and a name need not be checked again.
 * @param lastFields the names and values of the last head, which are replaced by those of this one
 * @throws ProxyError for a line that is not a field, such as a folded line (RFC 9112 §5.2), and for unclear characters
 */
function parseFields(text: string, from: number, lastFields: HeaderList): HeaderList {
  if (UNCLEAR.test(text)) throw malformed("head");
  const fields: HeaderList = [];
  for (let at = from; at < text.length - 2;) {
    const end = text.indexOf("\r\n", at);
    const place = fields.length;
    const isKept = place < 2 * MAX_KEPT_FIELDS && text.length <= MAX_KEPT_HEAD;
    let name = lastFields[place];
    if (
      name === undefined ||
      !text.startsWith(name, at) ||
      text.charCodeAt(at + name.length) !== COLON
    ) {
      name = text.slice(at, text.indexOf(":", at));
      // If this line has no colon, the name reaches into the next line: it contains a line end, which `TOKEN` refuses.
      if (!TOKEN.test(name)) throw malformed("field");
      if (isKept) lastFields[place] = name;
    }
    let first = at + name.length + 1;
    let last = end;
    while (first < last && text.charCodeAt(first) <= SPACE) first++;
    while (last > first && text.charCodeAt(last - 1) <= SPACE) last--;
    let value = lastFields[place + 1];
    if (value?.length !== last - first || !text.startsWith(value, first)) {
      value = text.slice(first, last);
      if (isKept) lastFields[place + 1] = value;
    }
    fields.push(name, value);
    at = end + 2;
  }
  return fields;
}

/**
 * Returns whether the connection stays open after the response (RFC 9112 §9.3).
 * @param connection the values of all `Connection` fields, each followed by a comma
 */
function readPersistence(connection: string, byDefault: boolean): boolean {
  const options = connection.toLowerCase();
  // Skip the loop for the most frequent value.
  if (options === "keep-alive,") return true;
  let isPersistent = byDefault;
  // Do not split with a regular expression: one that matches commas with white space around them takes quadratic time.
  for (let at = 0; at < options.length;) {
    const end = options.indexOf(",", at);
    let last = end;
    // `trim()` would also remove characters that are not white space in HTTP.
    while (options.charCodeAt(at) <= SPACE) at++;
    while (last > at && options.charCodeAt(last - 1) <= SPACE) last--;
    const option = options.slice(at, last);
    if (option === "close") return false;
    if (option === "keep-alive") isPersistent = true;
    at = end + 1;
  }
  return isPersistent;
}

function parseKeepAlive(value: string): number {
  const seconds = /timeout=(\d+)/i.exec(value)?.[1];
  return seconds === undefined ? Infinity : Number(seconds) * 1000;
}

// ── errors ──

/** Returns the error for a response that breaks the rules of HTTP/1.1. */
function malformed(what: string): ProxyError {
  return new ProxyError("http_protocol_error", { message: `the upstream's ${what} is malformed` });
}

/** The messages for upstreams whose first byte shows that they speak another protocol than HTTP/1.1. */
const OTHER_PROTOCOLS: Readonly<Record<number, string>> = {
  // A SETTINGS frame of HTTP/2 (RFC 9113 §4.1).
  0: "the upstream speaks HTTP/2 only: set the option `http2: true` of the target or the pool",
  // A TLS alert (RFC 8446 §6), with which a TLS server answers a request that is not encrypted.
  21: "the upstream speaks TLS: begin the target with https://",
};

/** Returns the error for an upstream with this first byte; undefined if the byte shows nothing. */
function explainFirst(byte: number | undefined): ProxyError | undefined {
  const message = OTHER_PROTOCOLS[byte ?? -1];
  return message === undefined ? undefined : new ProxyError("http_protocol_error", { message });
}

function tooLong({ name, code, limit }: LinesKind): ProxyError {
  return new ProxyError(code, { message: `the upstream's ${name} is longer than ${limit} bytes` });
}
