import { isIP } from "node:net";
import { Agent, buildConnector, type Dispatcher, Pool } from "undici";
import { badOption } from "../../src/misuse.ts";
import { poolDefaults } from "../../src/options/pooloptions.ts";
import { closeWithin } from "../../src/transport/closing.ts";
import type { UpstreamRequest, UpstreamResponse } from "../../src/transport/message.ts";
import { ownTransports, type Capabilities, type Transport } from "../../src/transport/port.ts";
import type { Scope } from "../../src/transport/scope.ts";
import type { PoolStats } from "../../src/transport/stats.ts";
import { type AgentStats, shareAgentStats } from "./agentstats.ts";
import { type DispatcherUse, UndiciAttempt } from "./dispatch.ts";
import { watchConnections } from "./undicierrors.ts";

const CAPABILITIES: Capabilities = { decodes: [], host: true, unixSocket: false, tls: false };

/** Sends requests through a dispatcher that the app provides. The app closes the dispatcher; this transport does not. */
export class DispatcherTransport implements Transport {
  readonly name: string = "undici";
  readonly capabilities: Capabilities = CAPABILITIES;
  readonly stats?: () => PoolStats;
  readonly #use: DispatcherUse;

  /** @throws TypeError for a value that is not a dispatcher of undici */
  constructor(dispatcher: Dispatcher, isOwn: boolean = false) {
    if (typeof (dispatcher as Partial<Dispatcher> | null)?.dispatch !== "function") {
      throw badOption("dispatcher", "use a Dispatcher of undici, such as `new Agent()`");
    }
    watchConnections();
    const stats = dispatcher instanceof Agent ? shareAgentStats(dispatcher) : undefined;
    if (stats !== undefined) this.stats = () => stats.read();
    this.#use = toDispatcherUse(dispatcher, isOwn, stats);
  }

  send(request: UpstreamRequest, scope: Scope): Promise<UpstreamResponse> {
    return new Promise((resolve, reject) => {
      const attempt = new UndiciAttempt(this.chooseUse(request), request, scope, resolve, reject);
      // Node parses a small body after the handler has run, although the body is in the same packet as the head. By the
      // check phase of the event loop, the body has arrived, and undici sends it in one write with the head.
      if (request.body === null) attempt.dispatch();
      else setImmediate(dispatchAttempt, attempt);
    });
  }

  /** Chooses the dispatcher for a request. */
  protected chooseUse(_request: UpstreamRequest): DispatcherUse {
    return this.#use;
  }
}

/** Sends requests through agents that the transport makes and closes itself. */
export class UndiciTransport extends DispatcherTransport {
  readonly #agent: OwnAgent;
  /** The agent for requests that must not use an idle connection: it opens a connection for each of them. */
  #freshAgent: OwnAgent | undefined;
  #freshUse: DispatcherUse | undefined;
  #isClosed = false;

  constructor() {
    const agent = new OwnAgent(true);
    super(agent, true);
    ownTransports.add(this);
    this.#agent = agent;
  }

  protected override chooseUse(request: UpstreamRequest): DispatcherUse {
    if (request.newConnection !== true || this.#isClosed) return super.chooseUse(request);
    if (this.#freshUse === undefined) {
      const agent = (this.#freshAgent = new OwnAgent(false));
      this.#freshUse = toDispatcherUse(agent, true, shareAgentStats(agent));
    }
    return this.#freshUse;
  }

  async close(timeout = 0): Promise<void> {
    const closing = (): Promise<unknown> => {
      this.#isClosed = true;
      const open = this.#agents.filter(({ destroyed }) => !destroyed);
      return Promise.all(open.map((each) => each.close()));
    };
    await closeWithin(timeout, closing, () => this.destroy());
  }

  destroy(): void {
    this.#isClosed = true;
    for (const each of this.#agents) each.destroyConnections();
  }

  get #agents(): OwnAgent[] {
    return this.#freshAgent === undefined ? [this.#agent] : [this.#agent, this.#freshAgent];
  }
}

function toDispatcherUse(
  dispatcher: Dispatcher,
  isOwn: boolean,
  stats: AgentStats | undefined,
): DispatcherUse {
  if (stats === undefined) return { dispatcher, isOwn };
  return { dispatcher, isOwn, onStart: () => stats.countRequest() };
}

function dispatchAttempt(attempt: UndiciAttempt): void {
  attempt.dispatch();
}

/** The number of pools at which an agent first removes closed pools from its list. */
const FIRST_CLEANUP = 100;

/** An agent that keeps connections by the same rules as the proxy's own HTTP/1.1 transport. */
class OwnAgent extends Agent {
  /** All pools that may have connections. */
  readonly #pools: Set<Pool>;
  /** The latest pool of each origin. */
  readonly #latest: Map<string, Pool>;

  /** @param keepAlive whether connections are kept for further requests */
  constructor(keepAlive: boolean) {
    const pools = new Set<Pool>();
    const latest = new Map<string, Pool>();
    let limit = FIRST_CLEANUP;
    const { maxSockets, freeSocketTimeout, connectTimeout, keepAliveInitialDelay } = poolDefaults;
    // HTTP/2 loses repeated fields, the case of names and the reason phrase. An app that accepts this passes its own agent.
    const allowH2 = false;
    const connect = buildConnector({ timeout: connectTimeout, keepAliveInitialDelay, allowH2 });
    super({
      connections: maxSockets,
      pipelining: keepAlive ? 1 : 0,
      keepAliveTimeout: freeSocketTimeout,
      // An upstream's hint may shorten the time, but never lengthen it.
      keepAliveMaxTimeout: freeSocketTimeout,
      connect(options, callback) {
        // An IP address is not a name for SNI (RFC 6066 §3). Without a name, TLS checks the certificate for the address.
        const { servername: _, ...unnamed } = options;
        const isAddress = isIP(options.hostname.replace(/^\[|\]$/g, "")) !== 0;
        connect(isAddress ? unnamed : options, callback);
      },
      factory(origin, options): Dispatcher {
        if (pools.size >= limit) {
          for (const each of pools) if (each.closed) pools.delete(each);
          for (const [key, each] of latest) if (each.closed) latest.delete(key);
          limit = Math.max(FIRST_CLEANUP, 2 * pools.size);
        }
        // `allowH2` is set here, because as an option of the agent it would make a string for each request.
        const pool = new Pool(origin, { ...(options as Pool.Options), allowH2 });
        pools.add(pool);
        latest.set(String(origin), pool);
        return pool;
      },
    });
    this.#pools = pools;
    this.#latest = latest;
  }

  /**
   * Passes a request to the open pool of its origin, and does not look the pool up a second time as `Agent` does. `Agent`
   * closes a pool that has no connection left, makes pools, and refuses requests when it is closed itself.
   */
  override dispatch(
    options: Dispatcher.DispatchOptions,
    handler: Dispatcher.DispatchHandler,
  ): boolean {
    const pool = this.#latest.get(options.origin as string);
    const isOpen = pool !== undefined && !pool.closed && !pool.destroyed;
    return isOpen ? pool.dispatch(options, handler) : super.dispatch(options, handler);
  }

  /** Closes all connections. A closed agent has already forgotten pools whose requests are still running. */
  destroyConnections(): void {
    for (const each of [...this.#pools, this]) void each.destroy().catch(() => {});
  }
}
