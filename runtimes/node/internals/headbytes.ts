/**
 * The encoding in which Node writes a head.
 *
 * - Rests on: `flushHeaders()` encodes a head as UTF-8, which changes bytes above 0x7f. A head that is sent with the first
 *   chunk, even an empty one, is encoded as latin1.
 * - Check: `hasObsText` looks for such bytes, so that no other head depends on this.
 * - Otherwise: the head is sent by `flushHeaders()`, which Node documents. An empty chunk would not make middleware that
 *   compresses send the head, because such middleware sends nothing before a chunk that is not empty.
 * - Test: test/internals.headbytes.node.test.ts.
 */
import type { ServerResponse } from "node:http";
import type { HeaderList } from "../../../src/fields/headers.ts";

const EMPTY = new Uint8Array();

/** Sends the head of a response before any chunk of its body has arrived. */
export function flushHead(res: ServerResponse, headers: HeaderList): void {
  if (hasObsText(headers)) res.write(EMPTY);
  else res.flushHeaders();
}

/** Whether header fields contain bytes above 0x7f (`obs-text`, RFC 9110 §5.5). */
export function hasObsText(headers: HeaderList): boolean {
  return headers.some((text) => /[\u0080-\u00ff]/.test(text));
}
