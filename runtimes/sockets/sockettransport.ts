import { type ClientParts, type Http2Client, HttpTransport } from "../../src/http1/client.ts";
import type { Codec } from "../../src/http1/codec.ts";
import { checkPoolOptions } from "../../src/options/poolcheck.ts";
import type { PoolOptions } from "../../src/options/pooloptions.ts";
import type { Transport } from "../../src/transport/port.ts";
import { bufferCodec } from "./buffercodec.ts";
import { NetConnector, type SocketParts } from "./connect.ts";
import { defaultMaxSockets } from "./openfiles.ts";
import { assertVersion } from "./versions.ts";

/** The parts of the transport that differ between Node, Bun and Deno. */
interface SocketTransportParts extends Pick<ClientParts, "schedule" | "chunkMemory"> {
  /** How the sockets of the runtime differ from those of the other runtimes. */
  readonly sockets?: SocketParts;
  /** The codec for bytes and text; `bufferCodec` by default. */
  readonly codec?: Codec;
}

/**
 * Creates a transport that sends requests over the sockets of `node:net` and `node:tls`, which Bun and Deno have as well.
 * @param version the version of `runtime`; undefined if the code runs on another runtime, as in tests
 * @throws TypeError that names a bad option and the fix, or says that this version of the runtime is too old
 */
export function createSocketTransport(
  runtime: "Node" | "Bun" | "Deno",
  version: string | undefined,
  options: PoolOptions,
  { sockets, ...parts }: SocketTransportParts,
): Transport {
  checkPoolOptions(options);
  assertVersion(runtime, version);
  const { maxSockets = defaultMaxSockets() } = options;
  return new HttpTransport(
    runtime.toLowerCase(),
    { ...options, maxSockets },
    {
      createConnector: (filled) => new NetConnector(filled, sockets),
      codec: bufferCodec,
      loadHttp2,
      ...parts,
    },
  );
}

/** Loads the HTTP/2 client with the first request that needs it, because no other request needs these modules. */
async function loadHttp2(): Promise<Http2Client> {
  return import("./http2/http2pool.ts");
}
