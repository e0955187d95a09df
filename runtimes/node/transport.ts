import type { Lifetime } from "../../src/deadline.ts";
import type { PoolOptions } from "../../src/pool.ts";
import type { Hop, Reply } from "../../src/transport.ts";
import { PooledTransport } from "../pool/transport.ts";
import { Exchange } from "./exchange.ts";
import { OriginPool } from "./pool.ts";

function runUnlessAborted(pool: OriginPool, exchange: Exchange): void {
  if (!exchange.aborted) pool.run(exchange);
}

/**
 * undici's connections, through `dispatch` and not `fetch`: the bytes stay raw,
 * fields keep order and case, and `Host` is what it is told to be.
 */
export class NodeTransport extends PooledTransport<OriginPool> {
  readonly name = "node";

  constructor(options: PoolOptions) {
    super(OriginPool, options, { origins: 1000, time: 60_000 });
  }

  send(hop: Hop, lifetime: Lifetime): Promise<Reply> {
    return new Promise((resolve, reject) => {
      const pool = this.poolFor(hop.upstream);
      const exchange = new Exchange(hop, lifetime, pool, resolve, reject);
      const { method, body } = hop;
      // A small body is in the same packet as its head, but parsed after the handler
      // has run: by the check phase it is here, and goes out in one write with the head.
      // And undici looks at a kept connection in the check phase after that: what has been
      // closed meanwhile is known by then, and not used for what cannot be sent twice.
      if (body === null && (method === "GET" || method === "HEAD")) pool.run(exchange);
      else setImmediate(runUnlessAborted, pool, exchange);
    });
  }
}
