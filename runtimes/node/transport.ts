import type { PoolOptions } from "../../src/options/pooloptions.ts";
import type { Transport, UpstreamRequest } from "../../src/transport.ts";
import type { Attempt } from "../../src/http1/attempt.ts";
import type { Pool } from "../../src/http1/originpool.ts";
import { HttpTransport } from "../../src/http1/client.ts";
import { bufferCodec } from "../sockets/buffercodec.ts";
import { NetConnector } from "../sockets/connect.ts";
import { createOnRead, reuseChunks } from "./reuse.ts";

/** Runs an attempt in the next check phase; a function of the module, so that a request makes no closure. */
function runLater(attempt: Attempt, pool: Pool): void {
  setImmediate(run, attempt, pool);
}

function run(attempt: Attempt, pool: Pool): void {
  attempt.run(pool);
}

/**
 * Starts an attempt when its body has arrived, if that is small.
 *
 * Node parses a small body after the handler has run, although it is in the same packet as the head. By the first
 * `setImmediate`, it has arrived and is sent in one write with the head. By the second, Node has polled all sockets, so
 * that a request that cannot be sent twice uses no connection that the upstream has closed already.
 */
function schedule(attempt: Attempt, pool: Pool, { method, body }: UpstreamRequest): void {
  if (body === null && (method === "GET" || method === "HEAD")) attempt.run(pool);
  else setImmediate(runLater, attempt, pool);
}

/** The HTTP/1.1 client on Node's sockets. */
export function createNodeTransport(options: PoolOptions): Transport {
  const reuses = options.reuseBuffers === true;
  return new HttpTransport("node", options, {
    memory: { origins: 1000, time: 60_000 },
    schedule,
    chunks: reuses ? reuseChunks() : undefined,
    createConnector: (filled) =>
      new NetConnector(filled, {
        createOnRead: reuses ? createOnRead : undefined,
        allowHalfOpen: true,
      }),
    codec: bufferCodec,
  });
}
