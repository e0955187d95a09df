import { getHeader, type HeaderList } from "../fields/headers.ts";

/**
 * Returns a body for a response to HEAD without `Content-Length`; undefined for any other response.
 *
 * To a response without a body, the servers of Bun and Deno add `Content-Length: 0`, which a response to HEAD must not
 * have unless GET has no content either (RFC 9110 §8.6). They add no `Content-Length` for a stream, even if the stream
 * ends at the first read.
 */
export function bodyOfHead(
  { method }: { readonly method: string },
  status: number,
  headers: HeaderList,
): ReadableStream<Uint8Array> | undefined {
  if (method !== "HEAD" || status === 204 || status === 205 || status === 304) return undefined;
  if (getHeader(headers, "content-length") !== undefined) return undefined;
  return new ReadableStream({ pull: (controller) => controller.close() }, { highWaterMark: 0 });
}
