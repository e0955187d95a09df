import { isIP } from "node:net";
import { Agent, buildConnector, type Dispatcher, Pool } from "undici";
import { poolDefaults } from "../../src/options/pooloptions.ts";

/** Pools that are remembered before those that have been closed are forgotten. */
const FEW = 100;

/** An agent that keeps connections as the proxy's own client does. */
export class OwnAgent extends Agent {
  readonly #pools: Set<Pool>;

  /** @param keepAlive whether connections are kept */
  constructor(keepAlive: boolean) {
    const pools = new Set<Pool>();
    let limit = FEW;
    const { maxSockets, freeSocketTimeout, connectTimeout, keepAliveInitialDelay } = poolDefaults;
    // HTTP/2 loses repeated fields, their case and the reason phrase; an agent of the app's may allow it.
    const allowH2 = false;
    const connect = buildConnector({ timeout: connectTimeout, keepAliveInitialDelay, allowH2 });
    super({
      connections: maxSockets,
      pipelining: keepAlive ? 1 : 0,
      keepAliveTimeout: freeSocketTimeout,
      // An upstream's hint may shorten the time, never lengthen it.
      keepAliveMaxTimeout: freeSocketTimeout,
      connect(options, callback) {
        // An address is no name for SNI (RFC 6066 §3): the certificate is checked against the address itself.
        const { servername: _, ...unnamed } = options;
        const isAddress = isIP(options.hostname.replace(/^\[|\]$/g, "")) !== 0;
        connect(isAddress ? unnamed : options, callback);
      },
      factory(origin, options): Dispatcher {
        if (pools.size >= limit) {
          for (const each of pools) if (each.closed) pools.delete(each);
          limit = Math.max(FEW, 2 * pools.size);
        }
        // As an option of the agent, it would make a string for each request.
        const pool = new Pool(origin, { ...(options as Pool.Options), allowH2 });
        pools.add(pool);
        return pool;
      },
    });
    this.#pools = pools;
  }

  /** Closes every connection. undici's agent forgets its pools when it is closed, before their requests are over. */
  cutOff(): void {
    for (const each of [...this.#pools, this]) void each.destroy().catch(() => {});
  }
}
