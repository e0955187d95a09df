import type { Incoming } from "../../src/request/incoming.ts";
import { bodyOfHead } from "../../src/response/headbody.ts";
import type { UpstreamRequest, UpstreamResponse } from "../../src/transport/message.ts";
import { respondSwitched } from "../../src/websocket/handshake.ts";
import { toFreedStream } from "./internals/freedstream.ts";

/**
 * The maximum number of bytes for which the chunks of a complete body are joined, and passed to Deno as bytes, which Deno
 * copies. A longer body is passed as a stream, unless it has only one chunk.
 */
const SMALL_RESPONSE = 16_384;

/** Builds the `Response` that a handler returns to Deno. */
export function respond(
  { status, statusText, headers, body, tunnel }: UpstreamResponse,
  incoming: Incoming,
  request?: UpstreamRequest,
): Response | Promise<Response> {
  if (tunnel !== undefined) return respondSwitched(headers, (request as UpstreamRequest).headers);
  const bytes = body?.whole({ joinUpTo: SMALL_RESPONSE });
  const fields: [string, string][] = [];
  for (let i = 0; i < headers.length; i += 2) {
    fields.push([headers[i] as string, headers[i + 1] as string]);
  }
  return new Response(
    bodyOfHead(incoming, status, headers) ??
      (bytes as BodyInit | undefined) ??
      (body && toFreedStream(body)),
    { status, statusText, headers: fields },
  );
}
