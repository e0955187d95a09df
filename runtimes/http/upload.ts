import type { ClientRequest } from "node:http";
import { concat, lengthOf, toStream } from "../../src/body.ts";
import type { Lifetime } from "../../src/deadline.ts";
import { ProxyError } from "../../src/error.ts";
import type { Body } from "../../src/transport.ts";
import { drained } from "../pool/drained.ts";
import { RequestBody } from "./body.ts";
import { type PieceReader, readMany } from "./pieces.ts";

/**
 * Sends a body piece by piece, each as soon as the one before has gone, and ends the request.
 * @param contentLength what was announced; undefined if nothing
 * @throws ProxyError for a body that broke off, or was not as long
 */
export async function upload(
  request: ClientRequest,
  body: Exclude<Body, Uint8Array>,
  contentLength: number | undefined,
  lifetime: Lifetime,
): Promise<void> {
  const reader = toStream(body).getReader() as PieceReader;
  // A small body follows its head so closely that one write takes both.
  const flush = setTimeout(() => request.flushHeaders(), 1);
  let sent = 0;
  try {
    for (;;) {
      const { value, done } = await readMany(reader);
      clearTimeout(flush);
      if (request.destroyed) break;
      if (sent === 0 && body instanceof RequestBody && value !== undefined) {
        if (lengthOf(value) === contentLength) body.kept = concat(value);
      }
      for (const chunk of value ?? []) {
        lifetime.touch();
        sent += chunk.byteLength;
        // What goes beyond it would be the next request on the connection (RFC 9112 §6.3).
        if (contentLength !== undefined && sent > contentLength) throw badLength();
        if (sent === contentLength) {
          request.end(chunk);
          // Deno closes the client's connection if nobody has seen the end.
          await readMany(reader).catch(() => {});
          return;
        }
        if (!request.write(chunk)) await drained(request);
      }
      if (!done) continue;
      if (contentLength === undefined) return void request.end();
      throw badLength();
    }
    void reader.cancel().catch(() => {});
  } catch (cause) {
    const message = "the client broke off its request body";
    throw new ProxyError("http_request_error", { message, cause });
  } finally {
    clearTimeout(flush);
  }
}

function badLength(): Error {
  return new Error("the request body was not as long as its Content-Length");
}
