import type { PoolOptions } from "../../src/pool.ts";
import type { UpstreamRequest } from "../../src/transport.ts";
import type { Attempt } from "../../src/http1/attempt.ts";
import type { Pool } from "../../src/http1/originpool.ts";
import { HttpTransport } from "../../src/http1/client.ts";
import { bufferCodec } from "../sockets/buffercodec.ts";
import { NetConnector } from "../sockets/connect.ts";
import { createOnRead, reuseChunks } from "./reuse.ts";

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
    // A small body is in the same packet as its head, but parsed after the handler has run: by the
    // check phase it is here, and goes out in one write with the head. By the one after that all
    // sockets have been looked at: no connection that has been closed by now is used for what
    // cannot be sent twice.
    if (body === null && (method === "GET" || method === "HEAD")) attempt.run(pool);
    else setImmediate(runLater, attempt, pool);
  }
}
