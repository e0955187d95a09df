import { copyBytes } from "../../src/body/memory.ts";
import { getHeader, toHeaders, type HeaderList } from "../../src/fields/headers.ts";
import type { Incoming } from "../../src/request/incoming.ts";
import { bodyOfHead } from "../../src/response/headbody.ts";
import type { UpstreamRequest, UpstreamResponse } from "../../src/transport/message.ts";
import { respondSwitched } from "../../src/websocket/handshake.ts";
import { toClientStream } from "./directstream.ts";

/** Builds the `Response` that a handler returns to Bun. */
export function respond(
  { status, statusText, headers, body, tunnel }: UpstreamResponse,
  incoming: Incoming,
  request?: UpstreamRequest,
): Response | Promise<Response> {
  if (tunnel !== undefined) return respondSwitched(headers, (request as UpstreamRequest).headers);
  return new Response(bodyOfHead(incoming, status, headers) ?? chooseBody(body, headers), {
    status,
    statusText,
    headers: toHeaders(headers),
  });
}

/**
 * A body with a `Content-Type` and fewer bytes than this is passed to Bun as plain bytes. Bun sends it in one write with the
 * head: both fit into Bun's write buffer, which holds more than twice as much.
 */
const SMALL = 8192;

/** Returns a body in the form that Bun sends with the fewest writes. */
function chooseBody(body: UpstreamResponse["body"], headers: HeaderList): BodyInit | null {
  if (body === null) return null;
  const bytes = body.whole();
  if (bytes === undefined) return toClientStream(body);
  const isTyped = getHeader(headers, "content-type") !== undefined;
  if (isTyped && bytes.byteLength < SMALL) return bytes as BodyInit;
  // The stream passes the ownership of its chunk to Bun. Bytes that are also in `replay` must not change, so copy them.
  return toCompleteStream(body.replay === undefined ? bytes : copyBytes(bytes));
}

/**
 * Returns a stream that already holds all its bytes. Bun sends the stream with `Content-Length`, and in one write with the
 * head.
 *
 * Plain bytes would have two drawbacks: Bun adds a `Content-Type` if there is none, and for more than 16 KB, Bun writes each
 * part of the head separately (27 writes for six fields).
 */
function toCompleteStream(bytes: Uint8Array): ReadableStream<Uint8Array> {
  return new ReadableStream(
    {
      start(controller) {
        if (bytes.byteLength > 0) controller.enqueue(bytes);
        controller.close();
      },
    },
    { highWaterMark: bytes.byteLength + 1 },
  );
}
