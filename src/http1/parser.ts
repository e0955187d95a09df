import { ProxyError } from "../error.ts";
import { CHUNKED, parseFields, parseHead, type ResponseHead, UNTIL_CLOSE } from "./head.ts";
import type { Codec } from "./codec.ts";
import { LineReader, type LinesKind, malformed } from "./lines.ts";

/** Who takes what a parser finds. */
export interface ResponseHandler {
  onHead(head: ResponseHead): void;
  /** A piece of the body. */
  onPiece(piece: Uint8Array): void;
  /** @param clean whether the connection is in step: another request can be sent on it */
  onEnd(clean: boolean): void;
}

/** As much as Node's own parser takes. */
const HEAD: LinesKind = {
  section: true,
  limit: 16_384,
  code: "http_response_header_section_size",
};
/** Fields behind a body: they are read, and go no further. */
const TRAILERS: LinesKind = { ...HEAD, code: "http_protocol_error" };
/** The size of a chunk, and what is said of it. */
const SIZE: LinesKind = { section: false, limit: 1024, code: "http_protocol_error" };
/** Bytes of all that is said of the chunks of one body; without a limit, they could be most of what is sent. */
const EXTENSIONS = 16_384;

/**
 * How many interim responses (1xx) one request may get, and how many bytes they may be in all. Each is
 * parsed, so that without a limit an upstream keeps the event loop busy until the deadline.
 */
const INTERIM = 64;
const INTERIM_BYTES = 65_536;

const SIZE_LINE = /^([\da-f]+)[\t ]*(;[\t -~\u0080-\u00ff]*)?\r\n$/i;

const START = Array.from("HTTP/1.", (character) => character.charCodeAt(0));

/** Whether a piece begins as a head does, as far as it goes. */
function startsLikeHead(piece: Uint8Array, at: number): boolean {
  return START.every((byte, i) => at + i >= piece.length || piece[at + i] === byte);
}

type Phase =
  | "idle"
  | "head"
  | "sized"
  | "until-close"
  | "size"
  | "chunk"
  | "chunk-end"
  | "trailers";

/**
 * Reads the responses of one connection, one request at a time, from bytes that may be cut anywhere.
 *
 * It mends nothing: what two parsers could read in two ways is an error (RFC 9112 §11.1, §11.2).
 */
export class ResponseParser {
  #phase: Phase = "idle";
  #isHead = false;
  #persistent = false;
  /** Bytes of the body, or of its chunk, that are still to come. */
  #left = 0;
  /** Bytes that chunk extensions may still be. */
  #extensions = 0;
  /** Interim responses, and their bytes, that may still come before the response. */
  #interim = 0;
  #interimBytes = 0;
  /** How much of the line end behind a chunk has been read. */
  #lineEnd = 0;
  readonly #lines: LineReader;
  readonly #handler: ResponseHandler;

  /** @param codec the portable one if left out */
  constructor(handler: ResponseHandler, codec?: Codec) {
    this.#handler = handler;
    this.#lines = new LineReader(codec);
  }

  /** Whether the connection's end is the end of the body. */
  get isUntilClose(): boolean {
    return this.#phase === "until-close";
  }

  /** A request was sent: what comes now is its response. */
  begin(method: string): void {
    this.#phase = "head";
    this.#isHead = method === "HEAD";
    this.#extensions = EXTENSIONS;
    this.#interim = INTERIM;
    this.#interimBytes = INTERIM_BYTES;
  }

  /**
   * Takes what has come. Bytes behind the response are nobody's.
   * @throws ProxyError for what is no response; nothing may be fed after it
   */
  feed(piece: Uint8Array): void {
    for (let at = 0; at >= 0 && at < piece.length;) at = this.#step(piece, at);
  }

  /**
   * Takes the connection's end.
   * @returns whether the response is complete
   */
  finish(): boolean {
    if (this.#phase === "until-close") this.#end(false);
    return this.#phase === "idle";
  }

  /** Reads what is next; returns the place behind it. */
  #step(piece: Uint8Array, at: number): number {
    switch (this.#phase) {
      case "head":
        return this.#readHead(piece, at);
      case "until-close":
        this.#handler.onPiece(at === 0 ? piece : piece.subarray(at));
        return piece.length;
      case "sized":
      case "chunk":
        return this.#readBytes(piece, at);
      case "chunk-end":
        return this.#readChunkEnd(piece, at);
      case "size":
        return this.#readSize(piece, at);
      case "trailers":
        return this.#readTrailers(piece, at);
      case "idle":
        return piece.length;
    }
  }

  #readHead(piece: Uint8Array, at: number): number {
    // Whoever speaks another protocol may be waiting for an answer: there will be no end of a head.
    if (!this.#lines.isWithin && !startsLikeHead(piece, at)) throw malformed("status line");
    const end = this.#lines.read(piece, at, HEAD);
    if (end < 0) return end;
    const head = parseHead(this.#lines.text, this.#isHead);
    // Nobody asked for another protocol; other interim responses are nobody's to read (RFC 9110 §15.2).
    if (head.status === 101) throw malformed("upgrade");
    if (head.status < 200) {
      this.#countInterim(this.#lines.text.length);
      return end;
    }
    this.#persistent = head.persistent;
    this.#left = head.length;
    if (head.length === CHUNKED) this.#phase = "size";
    else if (head.length === UNTIL_CLOSE) this.#phase = "until-close";
    else this.#phase = "sized";
    this.#handler.onHead(head);
    if (head.length === 0) this.#end(end === piece.length);
    return end;
  }

  #countInterim(bytes: number): void {
    this.#interim -= 1;
    this.#interimBytes -= bytes;
    if (this.#interim >= 0 && this.#interimBytes >= 0) return;
    throw new ProxyError("http_protocol_error", {
      message: `the upstream sent more than ${INTERIM} interim responses, or ${INTERIM_BYTES} bytes of them`,
    });
  }

  #readBytes(piece: Uint8Array, at: number): number {
    const end = Math.min(piece.length, at + this.#left);
    this.#left -= end - at;
    this.#handler.onPiece(at === 0 && end === piece.length ? piece : piece.subarray(at, end));
    if (this.#left > 0) return end;
    if (this.#phase === "chunk") this.#phase = "chunk-end";
    else this.#end(end === piece.length);
    return end;
  }

  #readChunkEnd(piece: Uint8Array, at: number): number {
    if (piece[at] !== (this.#lineEnd === 0 ? 0x0d : 0x0a)) throw malformed("chunk");
    this.#lineEnd = 1 - this.#lineEnd;
    if (this.#lineEnd === 0) this.#phase = "size";
    return at + 1;
  }

  #readSize(piece: Uint8Array, at: number): number {
    const end = this.#lines.read(piece, at, SIZE);
    if (end < 0) return end;
    const [, digits, extension] = SIZE_LINE.exec(this.#lines.text) ?? [];
    if (digits === undefined) throw malformed("chunk size");
    this.#left = Number.parseInt(digits, 16);
    this.#extensions -= extension?.length ?? 0;
    if (this.#left > Number.MAX_SAFE_INTEGER || this.#extensions < 0) throw malformed("chunk size");
    this.#phase = this.#left === 0 ? "trailers" : "chunk";
    return end;
  }

  #readTrailers(piece: Uint8Array, at: number): number {
    const end = this.#lines.read(piece, at, TRAILERS);
    if (end < 0) return end;
    parseFields(this.#lines.text, 0);
    this.#end(end === piece.length);
    return end;
  }

  #end(nothingBehind: boolean): void {
    this.#phase = "idle";
    this.#handler.onEnd(this.#persistent && nothingBehind);
  }
}
