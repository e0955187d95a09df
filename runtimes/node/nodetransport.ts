import type { PoolOptions } from "../../src/options/pooloptions.ts";
import type { Transport } from "../../src/transport/port.ts";
import { createSocketTransport } from "../sockets/sockettransport.ts";
import { freedChunks } from "./chunkmemory.ts";
import { beginAfterArrival } from "./internals/arrival.ts";
import { takeShared } from "./internals/sharedread.ts";
import { watchReads } from "./internals/wrapped.ts";

/** Creates the transport that sends requests by HTTP/1.1 over Node's sockets. */
export function createNodeTransport(options: PoolOptions): Transport {
  return createSocketTransport("Node", process.versions.node, options, {
    sockets: { takeMemory: takeShared, watchReads, allowHalfOpen: true },
    schedule: beginAfterArrival,
    chunkMemory: freedChunks,
  });
}
