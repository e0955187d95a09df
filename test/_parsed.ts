/** Parses responses, split into chunks in any way. */
import type { ResponseHead } from "../src/http1/head.ts";
import { ResponseParser } from "../src/http1/parser.ts";
import { ProxyError } from "../src/error.ts";

export interface Parsed {
  heads: ResponseHead[];
  body: string;
  /** Whether the response ended, and its connection can be used again. */
  end: "open" | "clean" | "unclean";
  /** The error code, if the response is refused. */
  error: string | undefined;
}

/** Copies each chunk into a buffer of its own, so that the parser cannot read beyond it. */
export function piecesOf(text: string, ...cuts: number[]): Uint8Array[] {
  const bytes = Buffer.from(text, "latin1");
  const ends = [...cuts.toSorted((a, b) => a - b), bytes.length];
  return ends.map((end, at) => new Uint8Array(bytes.subarray(ends[at - 1] ?? 0, end)));
}

/** Feeds chunks until one is refused, and ends the connection afterwards if asked to. */
export function parse(
  pieces: Iterable<Uint8Array>,
  { method = "GET", closed = false }: { method?: string; closed?: boolean } = {},
): Parsed {
  const parsed: Parsed = { heads: [], body: "", end: "open", error: undefined };
  const parser = new ResponseParser({
    onHead: (head) => void parsed.heads.push(head),
    onPiece: (piece) => void (parsed.body += Buffer.from(piece).toString("latin1")),
    onEnd: (clean) => void (parsed.end = clean ? "clean" : "unclean"),
  });
  parser.begin(method);
  try {
    for (const piece of pieces) parser.feed(piece);
    if (closed && !parser.finish()) parsed.error = "incomplete";
  } catch (error) {
    if (!(error instanceof ProxyError)) throw error;
    parsed.error = error.code;
  }
  return parsed;
}
