import type { PoolOptions } from "../../src/options/pooloptions.ts";
import type { Transport } from "../../src/transport.ts";
import { HttpTransport } from "../../src/http1/client.ts";
import { bufferCodec } from "../sockets/buffercodec.ts";
import { NetConnector } from "../sockets/connect.ts";
import { loadHttp2 } from "../sockets/loadhttp2.ts";
import { beginAfterArrival } from "./internals/arrival.ts";
import { takeShared } from "./internals/sharedread.ts";
import { watchReads } from "./internals/wrapped.ts";
import { freedChunks } from "./chunkmemory.ts";

/** Creates the transport that sends requests by HTTP/1.1 over Node's sockets. */
export function createNodeTransport(options: PoolOptions): Transport {
  return new HttpTransport("node", options, {
    schedule: beginAfterArrival,
    chunkMemory: freedChunks,
    createConnector: (filled) =>
      new NetConnector(filled, {
        takeMemory: takeShared,
        watchReads,
        allowHalfOpen: true,
      }),
    codec: bufferCodec,
    loadHttp2,
  });
}
