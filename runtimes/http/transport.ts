import type { Lifetime } from "../../src/deadline.ts";
import type { PoolOptions } from "../../src/pool.ts";
import type { Hop, Reply } from "../../src/transport.ts";
import { PooledTransport } from "../pool/transport.ts";
import { Exchange } from "./exchange.ts";
import { Pool } from "./pool.ts";
import { UnframedBody } from "./unframed.ts";

/** Connections of an HTTP/1.1 client on the plain sockets of a runtime that is not Node: it writes what it is told, once. */
export class HttpTransport extends PooledTransport<Pool> {
  readonly name: string;

  constructor(name: string, options: PoolOptions) {
    super(Pool, options, { origins: 100 });
    this.name = name;
  }

  send(hop: Hop, lifetime: Lifetime): Promise<Reply> {
    if (hop.body instanceof UnframedBody) return this.#sendUnframed(hop, hop.body, lifetime);
    return new Promise((resolve, reject) => {
      new Exchange(hop, lifetime, resolve, reject).run(this.poolFor(hop.upstream));
    });
  }

  async #sendUnframed(hop: Hop, unframed: UnframedBody, lifetime: Lifetime): Promise<Reply> {
    const body = await lifetime.orAbort(unframed.unlessEmpty());
    return this.send({ ...hop, body }, lifetime);
  }
}
