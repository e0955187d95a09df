import type { Lifetime } from "../../src/deadline.ts";
import type { PoolOptions } from "../../src/pool.ts";
import type { Hop, Reply } from "../../src/transport.ts";
import { type Memory, PooledTransport } from "../pool/transport.ts";
import { Exchange } from "./exchange.ts";
import { Pool } from "./pool.ts";
import { UnframedBody } from "./unframed.ts";

/** Where a timer would hold the process, old origins are forgotten only when there are too many. */
const MEMORY: Memory = { origins: 100 };

/** Connections of an HTTP/1.1 client on the plain sockets of a runtime: it writes what it is told, once. */
export class HttpTransport extends PooledTransport<Pool> {
  readonly name: string;
  readonly #Exchange: typeof Exchange;

  /** @param Exchanges what sends and receives, with what the runtime's server can do with it beside */
  constructor(
    name: string,
    options: PoolOptions,
    memory: Memory = MEMORY,
    Exchanges: typeof Exchange = Exchange,
  ) {
    super(Pool, options, memory);
    this.name = name;
    this.#Exchange = Exchanges;
  }

  send(hop: Hop, lifetime: Lifetime): Promise<Reply> {
    if (hop.body instanceof UnframedBody) return this.#sendUnframed(hop, hop.body, lifetime);
    return new Promise((resolve, reject) => {
      const exchange = new this.#Exchange(hop, lifetime, resolve, reject);
      this.run(exchange, this.poolFor(hop.upstream), hop);
    });
  }

  protected run(exchange: Exchange, pool: Pool, _hop: Hop): void {
    exchange.run(pool);
  }

  async #sendUnframed(hop: Hop, unframed: UnframedBody, lifetime: Lifetime): Promise<Reply> {
    const body = await lifetime.orAbort(unframed.unlessEmpty());
    return this.send({ ...hop, body }, lifetime);
  }
}
