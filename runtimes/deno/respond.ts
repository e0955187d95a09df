import type { UpstreamResponse } from "../../src/transport.ts";

/** A body up to this number of bytes is sent as bytes, which Deno copies. A longer body is sent as a stream of chunks. */
const SMALL = 16_384;

/** Builds the `Response` that a handler returns to Deno. */
export function respond({ status, statusText, headers, body }: UpstreamResponse): Response {
  const bytes = body?.whole({ joinUpTo: SMALL });
  const fields: [string, string][] = [];
  for (let i = 0; i < headers.length; i += 2) {
    fields.push([headers[i] as string, headers[i + 1] as string]);
  }
  return new Response((bytes as BodyInit | undefined) ?? body?.stream() ?? null, {
    status,
    statusText,
    headers: fields,
  });
}
