import { getHeader } from "../../src/headers.ts";
import type { Body, HeaderList } from "../../src/transport.ts";
import { RequestBody } from "./body.ts";

/** The body of a request with these fields, as they say whether there is one. */
export function toRequestBody(
  stream: ReadableStream<Uint8Array>,
  headers: HeaderList,
): RequestBody {
  const isFramed =
    getHeader(headers, "content-length") !== undefined ||
    getHeader(headers, "transfer-encoding") !== undefined;
  return isFramed ? new RequestBody(stream) : new UnframedBody(stream);
}

/**
 * The body of a request that says neither how long it is nor that it comes in
 * chunks: there is none in HTTP/1 (RFC 9112 §6.3), but there may be one in HTTP/2.
 */
export class UnframedBody extends RequestBody {
  /** The body with its first piece already here; null if it ends without one. */
  async unlessEmpty(): Promise<Body | null> {
    const reader = this.stream().getReader();
    let next = await reader.read();
    while (!next.done && next.value.byteLength === 0) next = await reader.read();
    if (next.done) {
      this.kept = new Uint8Array();
      return null;
    }
    return new ReadableStream({
      async pull(controller) {
        if (next.done) return controller.close();
        controller.enqueue(next.value);
        next = await reader.read();
      },
      cancel: (reason) => reader.cancel(reason),
    });
  }
}
