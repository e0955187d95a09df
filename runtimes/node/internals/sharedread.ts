/**
 * Makes sockets read into one buffer of the process. By default, Node allocates 64 KiB for each read of a socket, and copies
 * the bytes into smaller memory if the read returns fewer. For a small message, this allocation costs more than forwarding
 * it. For a large one, the first access to new memory costs more than the read; and 64 KiB with a head need two reads.
 *
 * - Connections to upstreams read into it by the documented option `onread` of `net.connect` (`MemoryReader`), the clients'
 *   sockets of tunnels by this module. What is read is copied before the callback returns.
 * - Rests on: on Unix, libuv reads from a socket when bytes have arrived, and calls back at once, so that several sockets
 *   can read into the same memory. On Windows, several reads wait at the same time, each with its memory. Deno does not use
 *   libuv; `runtimes/deno/internals/readbuffers.ts` is its counterpart to this module.
 *   For clients' sockets, which cannot be given `onread`: the members that this option sets, `kBuffer`, `kBufferCb` and
 *   `kBufferGen` of a socket, which are symbols, and the method `useUserBuffer` of its handle. `pause`, `resume` and the end
 *   of a socket with `onread` are Node's own code.
 * - Check: at every use, the system is not Windows and the runtime not Deno. A client's socket must have these members,
 *   unset, its handle must have the method, and the method must not throw. A client's socket with TLS, or with bytes that
 *   were read and not taken, is left as it is. At every read, no other code may listen to the client's socket or have
 *   wrapped the methods that see the bytes (`wrapped.ts`).
 * - Otherwise: the socket emits `data`, with new memory for each read.
 * - Test: test/internals.sharedread.node.test.ts.
 */
import type { Socket } from "node:net";
import { copyOf, copyToRead } from "../../sockets/buffercodec.ts";

/** The number of bytes of one read: a message of 64 KiB arrives in one read with its head. */
const SHARED_SIZE = 131_072;

const NAMES = ["kBuffer", "kBufferCb", "kBufferGen"] as const;

let shared: Buffer | undefined;

/** Returns the memory into which all sockets read; undefined where several reads wait at the same time. */
export function takeShared(): Buffer | undefined {
  if (process.platform === "win32" || "Deno" in globalThis) return undefined;
  return (shared ??= Buffer.allocUnsafeSlow(SHARED_SIZE));
}

/**
 * Makes a socket pass copies of what it reads to a callback instead of emitting `data`. If other code sees what the socket
 * reads, the socket emits `data`.
 * @param isSeen whether other code sees the bytes that arrive now (`watchReads`)
 * @returns whether the socket does so; otherwise it goes on emitting `data`
 */
export function readIntoShared(
  socket: Socket,
  take: (bytes: Uint8Array) => void,
  isSeen: () => boolean,
): boolean {
  const isEncrypted = (socket as { encrypted?: boolean }).encrypted === true;
  const memory = takeShared();
  if (memory === undefined || isEncrypted || socket.readableLength > 0) return false;
  const [buffer, callback, generator] = NAMES.map((name) => findUnset(socket, name));
  const { _handle: handle } = socket as { _handle?: { useUserBuffer?(memory: Buffer): void } };
  if (!buffer || !callback || !generator || handle?.useUserBuffer === undefined) return false;
  try {
    handle.useUserBuffer(memory);
  } catch {
    return false;
  }
  return (
    Object.assign(socket, {
      [buffer]: memory,
      [callback](length: number) {
        // What other code gets has an ArrayBuffer of its own. Node itself calls `push` with what it has read, and stops
        // reading if the result is false.
        if (isSeen()) return socket.push(copyOf(memory.subarray(0, length)));
        take(copyToRead(memory.subarray(0, length)));
        return true;
      },
    }) === socket
  );
}

/** Returns the symbol with this description, if the socket has such a member, and it is unset. */
function findUnset(socket: Socket, name: string): symbol | undefined {
  return Object.getOwnPropertySymbols(socket).find(
    (symbol) => symbol.description === name && Reflect.get(socket, symbol) === null,
  );
}
