import type { UpstreamResponse } from "../../src/transport.ts";

/** The size up to which a body goes out as bytes. Deno copies these; a longer body goes out as a stream of its chunks. */
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
