import type { BeginLater } from "../../src/http1/pool.ts";
import type { PoolOptions } from "../../src/options/pooloptions.ts";
import type { Transport } from "../../src/transport/port.ts";
import { createSocketTransport } from "../sockets/sockettransport.ts";
import { freedChunks } from "./chunkmemory.ts";
import { watchReads } from "./internals/wrapped.ts";

/** Creates the transport that sends requests over Node's sockets. */
export function createNodeTransport(options: PoolOptions): Transport {
  return createSocketTransport("Node", process.versions.node, options, {
    sockets: { takeMemory: takeShared, watchReads, allowHalfOpen: true },
    schedule: beginAfterArrival,
    chunkMemory: freedChunks,
  });
}

/**
 * The number of bytes that one read can return. It is large enough for a body of 64 KiB to arrive in one read with its head.
 */
const SHARED_SIZE = 131_072;

let shared: Buffer | undefined;

/**
 * Returns the memory into which all connections to upstreams read, by the documented option `onread` of `net.connect`
 * (`MemoryReader`, whose bytes are copied before its callback returns). By default, Node allocates 64 KiB for each read, and
 * copies the bytes into smaller memory if the read returns fewer. A body of 64 KiB with its head then needs two reads.
 *
 * - Rests on: on Unix, libuv reads from a socket when bytes have arrived, and calls back synchronously, so that several sockets
 *   can read into the same memory. On Windows, several reads wait at the same time, each with its own memory. Deno does not use
 *   libuv; `runtimes/deno/internals/readbuffers.ts` has its counterpart.
 * - Check: at every use, the system is not Windows and the runtime not Deno.
 * - Otherwise: undefined. The socket emits `data`, with new memory for each read.
 * - Test: test/runtimes/node/nodetransport.test.ts.
 */
export function takeShared(): Buffer | undefined {
  if (process.platform === "win32" || "Deno" in globalThis) return undefined;
  return (shared ??= Buffer.allocUnsafeSlow(SHARED_SIZE));
}

/**
 * Begins an attempt after two turns of the event loop: by then, a small request body has arrived.
 *
 * - Rests on: Node parses a small request body after the handler has run, although it is in the same packet as the head.
 *   By the first `setImmediate`, the body has arrived. By the second, Node has polled all sockets, so that the transport
 *   has noticed which idle connections the upstream has closed.
 * - Check: `BodySource.whole()` shows after the wait whether the body has arrived. The pool checks whether a connection is
 *   usable.
 * - Otherwise: the body is streamed. A request on a closed connection is retried if that is safe, else it gets 502.
 * - Test: test/runtimes/node/nodetransport.test.ts, and test/runtimes/sockets/stale.test.ts, "no request fails, not even a
 *   POST".
 */
const beginAfterArrival: BeginLater = (pool, attempt) => {
  setImmediate(beginInNextTurn, pool, attempt);
};

/** Waits for the second turn. It is not a closure, which would be allocated for each request. */
const beginInNextTurn: BeginLater = (pool, attempt) => {
  setImmediate(beginAttempt, pool, attempt);
};

const beginAttempt: BeginLater = (pool, attempt) => {
  pool.begin(attempt);
};
