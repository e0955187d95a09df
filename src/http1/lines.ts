import { ProxyError, type ProxyErrorCode } from "../error.ts";
import { type Codec, portableCodec } from "./codec.ts";

const LF = 0x0a;
const CR = 0x0d;

/** Lines that belong together, and what may be said of them. */
export interface LinesKind {
  /** Whether they end with an empty one; otherwise there is one line. */
  readonly section: boolean;
  /** Bytes that they may be. */
  readonly limit: number;
  /** What it is called when they are more. */
  readonly code: ProxyErrorCode;
}

/** The error of an upstream that does not speak HTTP/1.1. */
export function malformed(what: string): ProxyError {
  return new ProxyError("http_protocol_error", { message: `the upstream's ${what} is malformed` });
}

/**
 * Takes lines out of pieces that may end anywhere. Where they came in one piece, nothing is copied.
 *
 * A line ends with CR and LF, and with nothing else: what takes either of them alone for an
 * end, and what does not, would see different fields (RFC 9112 §2.2).
 */
export class LineReader {
  /** What was read last, line ends included. */
  text = "";
  #kept: Uint8Array | undefined;
  /** How many bytes are kept, */
  #length = 0;
  /** and where among them the last line begins. */
  #line = 0;
  readonly #codec: Codec;

  constructor(codec: Codec = portableCodec) {
    this.#codec = codec;
  }

  /** Whether the beginning of lines has come. */
  get isWithin(): boolean {
    return this.#length > 0;
  }

  /**
   * Reads on from a place.
   * @returns the place behind the lines; -1 if all was taken and more has to come
   * @throws ProxyError for lines that are too long, or end in another way
   */
  read(piece: Uint8Array, at: number, kind: LinesKind): number {
    if (this.#length > 0) return this.#readOn(piece, at, kind);
    const to = Math.min(piece.length, at + kind.limit);
    this.#line = at;
    const end = this.#find(piece, at, to, kind.section);
    if (end >= 0) this.text = this.#codec.decode(piece, at, end);
    else if (to < piece.length || to - at === kind.limit) throw tooLong(kind);
    else {
      this.#kept = new Uint8Array(kind.limit);
      this.#kept.set(piece.subarray(at));
      this.#length = to - at;
      this.#line -= at;
    }
    return end;
  }

  #readOn(piece: Uint8Array, at: number, kind: LinesKind): number {
    const kept = this.#kept as Uint8Array;
    const from = this.#length;
    const taken = Math.min(piece.length - at, kind.limit - from);
    kept.set(piece.subarray(at, at + taken), from);
    const end = this.#find(kept, from, from + taken, kind.section);
    if (end < 0) {
      this.#length += taken;
      if (this.#length === kind.limit) throw tooLong(kind);
      return -1;
    }
    this.text = this.#codec.decode(kept, 0, end);
    this.#kept = undefined;
    this.#length = 0;
    return at + end - from;
  }

  #find(bytes: Uint8Array, from: number, to: number, section: boolean): number {
    for (let at = from; at < to; at++) {
      if (bytes[at] !== LF) continue;
      if (at === this.#line || bytes[at - 1] !== CR) throw malformed("line end");
      if (!section || at === this.#line + 1) return at + 1;
      this.#line = at + 1;
    }
    return -1;
  }
}

function tooLong({ code, limit }: LinesKind): ProxyError {
  return new ProxyError(code, { message: `the upstream sent more than ${limit} bytes of them` });
}
