/**
 * The memory into which Deno's sockets read.
 *
 * By default, Deno reads at most 64 KiB in one read, and allocates memory for each read. With the option `onread`, a socket
 * reads up to 256 KiB into one buffer, and each chunk is copied out of that buffer. So a body of 64 KiB arrives in one read
 * with its head, and a body of 1 MB in five to seven. All sockets share the buffer, so that it stays in the processor's cache.
 *
 * - Rests on: a Deno socket reads only when bytes have arrived, and then calls back synchronously (`poll_tcp_handle` in
 *   libs/core/uv_compat/tcp.rs, `poll_pipe_handle` in pipe.rs). If a socket instead waited for bytes with the buffer in use,
 *   several sockets could read into it at the same time.
 * - Check: `Deno.version` must be one of `KNOWN_VERSIONS`, whose source has the functions above, and the system must not be
 *   Windows.
 * - Otherwise: each socket has its own buffer.
 * - Test: test/runtimes/deno/readbuffers.test.ts.
 */
import { bufferCodec } from "../../sockets/buffercodec.ts";

/** The number of bytes of the buffer that all sockets share. */
export const READ_SIZE = 262_144;
/**
 * The number of bytes of a socket's own buffer. It is large enough for a body of 64 KiB to arrive in one read with its head.
 */
export const OWN_READ_SIZE = 131_072;

/** The versions of Deno whose sockets call back synchronously. */
const KNOWN_VERSIONS = /^2\.[89]\./;

interface DenoGlobal {
  readonly version: { readonly deno: string };
  readonly build: { readonly os: string };
}

let shared: Uint8Array | undefined;

/**
 * Returns the memory into which a socket reads: the buffer that all sockets share, or a new buffer where several sockets may
 * wait for bytes at the same time.
 */
export function takeReadBuffer(): Uint8Array {
  const { Deno } = globalThis as unknown as { Deno?: DenoGlobal };
  const mayShare = Deno && KNOWN_VERSIONS.test(Deno.version.deno) && Deno.build.os !== "windows";
  if (mayShare !== true) return bufferCodec.allocate(OWN_READ_SIZE);
  return (shared ??= bufferCodec.allocate(READ_SIZE));
}
