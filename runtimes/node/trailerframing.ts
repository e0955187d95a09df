import type { IncomingMessage, ServerResponse } from "node:http";
import { getHeader, type HeaderList } from "../../src/fields/headers.ts";
import { isHttp2 } from "./incomingbody.ts";
import { responseOn } from "./internals/pipelining.ts";

/** Whether trailer fields can reach the client of a request: HTTP/2 and the chunked coding carry them, HTTP/1.0 does not. */
export function understandsChunks({ httpVersion }: IncomingMessage): boolean {
  return httpVersion !== "1.0";
}

/**
 * Returns the fields of a response with the announcement of its trailer fields, if the framing towards the client carries
 * trailers: Node throws for `Trailer` beside any other framing.
 * @param trailer the names to announce
 */
export function announceTrailers(
  headers: HeaderList,
  trailer: string,
  message: IncomingMessage,
): HeaderList {
  if (message.method === "HEAD" || !understandsChunks(message)) return headers;
  if (!isHttp2(message) && getHeader(headers, "content-length") !== undefined) return headers;
  return [...headers, "Trailer", trailer];
}

/**
 * Sets the trailer fields of a response; Node sends them at the end of the response, or drops them if the framing carries none.
 * Call this function once, because a second call replaces the fields of the first.
 */
export function sendTrailers(res: ServerResponse, trailers: HeaderList): void {
  const pairs: [string, string][] = [];
  for (let i = 0; i < trailers.length; i += 2) {
    pairs.push([trailers[i] as string, trailers[i + 1] as string]);
  }
  res.addTrailers(pairs);
}

/** Sets the trailer fields of the response that a server writes from a web stream. */
export function sendTrailersOf(message: IncomingMessage, trailers: HeaderList): void {
  const res = responseOn(message.socket);
  // A pipelined request behind another one has no response on its connection yet.
  if (res?.req.rawHeaders === message.rawHeaders && !res.writableEnded) sendTrailers(res, trailers);
}
