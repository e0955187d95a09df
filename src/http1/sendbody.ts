import { concat, lengthOf, toStream } from "../body.ts";
import type { Lifetime } from "../deadline.ts";
import { ProxyError } from "../error.ts";
import type { Body, NativeBody } from "../transport.ts";
import { RequestBody } from "./requestbody.ts";
import { PieceReader } from "./pieces.ts";
import { badLength, type Writer } from "./writer.ts";

/** A body that its server can hand over without a stream. */
export interface SelfSending extends NativeBody {
  /** Writes it, and ends the request. Rejects if it broke off. */
  sendTo(writer: Writer, lifetime: Lifetime): Promise<void>;
}

/**
 * Sends a body piece by piece, each as soon as the one before has gone, and ends the request.
 * @throws ProxyError for a body that broke off, or was not as long as announced
 */
export async function upload(
  writer: Writer,
  body: Exclude<Body, Uint8Array>,
  contentLength: number | undefined,
  lifetime: Lifetime,
): Promise<void> {
  try {
    if ("sendTo" in body) await (body as SelfSending).sendTo(writer, lifetime);
    else await sendStream(writer, body, contentLength, lifetime);
  } catch (cause) {
    if (cause instanceof ProxyError) throw cause;
    const message = "the client broke off its request body";
    throw new ProxyError("http_request_error", { message, cause });
  }
}

async function sendStream(
  writer: Writer,
  body: Exclude<Body, Uint8Array>,
  contentLength: number | undefined,
  lifetime: Lifetime,
): Promise<void> {
  const reader = new PieceReader(toStream(body), contentLength);
  // Not at once: Node's own streams fail where they are cancelled in the tick in which they were read.
  writer.onStop(() => void setTimeout(() => void reader.cancel().catch(() => {})));
  // A small body follows its head so closely that one write takes both.
  const flush = setTimeout(() => writer.flush(), 1);
  let isFirst = true;
  try {
    for (;;) {
      const { value = [], done } = await reader.read();
      clearTimeout(flush);
      if (writer.isStopped) return;
      if (isFirst && body instanceof RequestBody && lengthOf(value) === contentLength) {
        body.kept = concat(value);
      }
      isFirst = false;
      for (const piece of value) {
        lifetime.touch();
        const gone = send(writer, piece, reader.lends);
        if (writer.isComplete) {
          // Deno closes the client's connection if nobody has seen the end.
          const more = await reader.read().catch(() => undefined);
          if (more?.value !== undefined && lengthOf(more.value) > 0) throw badLength();
          return;
        }
        if (gone === undefined) continue;
        await gone;
        if (writer.isStopped) return;
        reader.release(piece);
      }
      if (done) return writer.end();
    }
  } finally {
    clearTimeout(flush);
  }
}

/** Resolves when there is room for more, or a piece that was lent is not needed any more; undefined if at once. */
function send(writer: Writer, piece: Uint8Array, lent: boolean): Promise<void> | undefined {
  if (lent) return new Promise((resolve) => void writer.write(piece, resolve));
  return writer.write(piece) ? undefined : writer.connection.drained();
}
