/** WebSocket frames for the load and the upstream (RFC 6455 §5.2): whole binary messages of one frame each. */

/** The path of the WebSockets. */
export const SOCKET_PATH = "/socket";

const FINAL_BINARY = 0x82;
const MASKED = 0x80;
/** The number of bytes of a masking key. */
export const KEY_SIZE = 4;

/** Returns the size of a frame's head without its masking key, by the second byte of the frame. */
export function headSizeOf(second: number): number {
  const short = second & 0x7f;
  return short < 126 ? 2 : short === 126 ? 4 : 10;
}

/**
 * Writes one message as a frame. A masked frame has the key zero, so that its payload is the message itself: the load has
 * nothing to compute for a frame, and the upstream nothing to undo.
 */
export function toFrame(payload: Uint8Array, isMasked: boolean): Buffer {
  const { byteLength: length } = payload;
  const head = Buffer.alloc(length < 126 ? 2 : length < 65_536 ? 4 : 10);
  head[0] = FINAL_BINARY;
  head[1] = (isMasked ? MASKED : 0) | (length < 126 ? length : length < 65_536 ? 126 : 127);
  if (head.length === 4) head.writeUInt16BE(length, 2);
  if (head.length === 10) head.writeBigUInt64BE(BigInt(length), 2);
  return Buffer.concat([head, Buffer.alloc(isMasked ? KEY_SIZE : 0), payload]);
}
