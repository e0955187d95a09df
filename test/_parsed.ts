/** What the parser of responses makes of bytes, however they are cut. */
import { type ResponseHead, ResponseParser } from "../src/http1/parser.ts";
import { ProxyError } from "../src/error.ts";

export interface Parsed {
  heads: ResponseHead[];
  body: string;
  /** Whether the response ended, and its connection can be used again. */
  end: "open" | "clean" | "unclean";
  /** The code of what is wrong with it. */
  error: string | undefined;
}

/** Bytes as a buffer of their own each, so that nothing can be read beyond a piece. */
export function piecesOf(text: string, ...cuts: number[]): Uint8Array[] {
  const bytes = Buffer.from(text, "latin1");
  const ends = [...cuts.toSorted((a, b) => a - b), bytes.length];
  return ends.map((end, at) => new Uint8Array(bytes.subarray(ends[at - 1] ?? 0, end)));
}

/** Feeds pieces up to the first that is wrong; then the connection ends, if it is to. */
export function parse(
  pieces: Iterable<Uint8Array>,
  { method = "GET", closed = false }: { method?: string; closed?: boolean } = {},
): Parsed {
  const parsed: Parsed = { heads: [], body: "", end: "open", error: undefined };
  const parser = new ResponseParser({
    onHead: (head) => void parsed.heads.push(head),
    onChunk: (chunk) => void (parsed.body += Buffer.from(chunk).toString("latin1")),
    onEnd: (isReusable) => void (parsed.end = isReusable ? "clean" : "unclean"),
  });
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
