/** Feeds bytes to the response parser, and returns what the parser has reported. */
import { type ParsedHead, ResponseParser } from "../../../src/http1/parser.ts";
import { portableCodec } from "./_codec.ts";
import { ProxyError } from "../../../src/error.ts";

export interface Parsed {
  heads: ParsedHead[];
  body: string;
  /** `open` until the response has ended; then `clean` if the connection can be reused, and otherwise `unclean`. */
  end: "open" | "clean" | "unclean";
  error: string | undefined;
}

/**
 * Splits bytes into arrays that each have their own memory, so that the parser cannot read beyond the end of an array.
 */
export function piecesOf(text: string, ...cuts: number[]): Uint8Array[] {
  const bytes = Buffer.from(text, "latin1");
  const ends = [...cuts.toSorted((a, b) => a - b), bytes.length];
  return ends.map((end, at) => new Uint8Array(bytes.subarray(ends[at - 1] ?? 0, end)));
}

/** Feeds the pieces to a parser up to its first error. If `closed` is true, the end of the connection follows. */
export function parse(
  pieces: Iterable<Uint8Array>,
  { method = "GET", closed = false }: { method?: string; closed?: boolean } = {},
): Parsed {
  const parsed: Parsed = { heads: [], body: "", end: "open", error: undefined };
  const parser = new ResponseParser(
    {
      onHead: (head) => void parsed.heads.push(head),
      onChunk: (chunk) => void (parsed.body += Buffer.from(chunk).toString("latin1")),
      onEnd: (isReusable) => void (parsed.end = isReusable ? "clean" : "unclean"),
    },
    portableCodec,
  );
  parser.expectResponse(method);
  try {
    for (const piece of pieces) parser.feed(piece);
    if (closed && !parser.finish()) parsed.error = "incomplete";
  } catch (error) {
    if (!(error instanceof ProxyError)) throw error;
    parsed.error = error.code;
  }
  return parsed;
}
