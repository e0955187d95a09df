/**
 * Writes bytes whose memory is read into again after the call, such as those of `sharedread.ts`: from one buffer of the
 * process, in place of a copy in new memory for each write.
 *
 * - Rests on: `writableLength` of a socket counts the bytes of a write until the system has taken all of them. If it is 0
 *   right after a write, the system has taken them during the call.
 * - Check: at every use, no other code may have wrapped the methods that see the bytes (`wrapped.ts`). A socket with TLS
 *   counts the bytes for longer, and gets a copy.
 * - Otherwise: the bytes are copied into new memory.
 * - Test: test/internals.sharedread.node.test.ts.
 */
import type { Socket } from "node:net";
import { SHARED_SIZE } from "./sharedread.ts";
import { isUnwrappedSocket } from "./wrapped.ts";

/** Below this number of bytes, a copy in Node's pool of small buffers costs less. It bounds what a slow reader keeps. */
const LARGE = 4096;

let scratch: Buffer | undefined;

/**
 * Writes bytes, whose memory is free when the call returns.
 * @returns whether there is room for more
 */
export function writeFromShared(socket: Socket, bytes: Uint8Array): boolean {
  const { byteLength } = bytes;
  const isFitting = byteLength >= LARGE && byteLength <= SHARED_SIZE;
  // Behind bytes that wait, these would wait as well.
  if (!isFitting || socket.writableLength > 0 || !isWithoutTls(socket)) {
    return socket.write(Buffer.from(bytes));
  }
  scratch ??= Buffer.allocUnsafeSlow(SHARED_SIZE);
  scratch.set(bytes);
  const hasRoom = socket.write(scratch.subarray(0, byteLength));
  // The rest is sent from this memory later.
  if (socket.writableLength > 0) scratch = undefined;
  return hasRoom;
}

function isWithoutTls(socket: Socket): boolean {
  return (socket as { encrypted?: boolean }).encrypted !== true && isUnwrappedSocket(socket);
}
