import type { PoolOptions } from "../../src/pool.ts";
import type { UpstreamRequest } from "../../src/transport.ts";
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

/** The HTTP/1.1 client on Node's sockets. */
export class NodeTransport extends HttpTransport {
  constructor(options: PoolOptions) {
    const reuses = options.reuseBuffers === true;
    super("node", options, {
      memory: { origins: 1000, time: 60_000 },
      chunks: reuses ? reuseChunks() : undefined,
      createConnector: (filled) =>
        new NetConnector(filled, {
          createOnRead: reuses ? createOnRead : undefined,
          allowHalfOpen: true,
        }),
      codec: bufferCodec,
    });
  }

  protected override run(attempt: Attempt, pool: Pool, { method, body }: UpstreamRequest): void {
    // Node parses a small body after the handler has run, although it is in the same packet as the head. By the first
    // `setImmediate`, it has arrived and is sent in one write with the head. By the second, Node has polled all
    // sockets, so that a request that cannot be sent twice uses no connection that the upstream has closed already.
    if (body === null && (method === "GET" || method === "HEAD")) attempt.run(pool);
    else setImmediate(runLater, attempt, pool);
  }
}
