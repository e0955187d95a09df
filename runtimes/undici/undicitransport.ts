import { isIP } from "node:net";
import type { Duplex } from "node:stream";
import { Agent, buildConnector, type Dispatcher, Pool } from "undici";
import { badOption } from "../../src/misuse.ts";
import { closeWithin, poolClosed } from "../../src/transport/closing.ts";
import type { UpstreamRequest, UpstreamResponse } from "../../src/transport/message.ts";
import { ownTransports, type Capabilities, type Transport } from "../../src/transport/port.ts";
import { RunningExchanges, type Scope } from "../../src/transport/scope.ts";
import type { PoolStats } from "../../src/transport/stats.ts";
import type { AgentOptions } from "./agentoptions.ts";
import { AgentStats, shareAgentStats } from "./agentstats.ts";
import { type DispatcherUse, UndiciAttempt } from "./dispatch.ts";
import { watchConnections } from "./undicierrors.ts";

const CAPABILITIES: Capabilities = {
  decodes: [],
  host: true,
  unixSocket: false,
  tls: false,
  upgrade: true,
};

/** Sends requests through a dispatcher that the app provides. The app closes the dispatcher; this transport does not. */
export class DispatcherTransport implements Transport {
  readonly name: string = "undici";
  readonly capabilities: Capabilities = CAPABILITIES;
  readonly stats?: () => PoolStats;
  readonly #use: DispatcherUse;

  /**
   * @param isOwn see `DispatcherUse`
   * @throws TypeError for a value that is not a dispatcher of undici
   */
  constructor(dispatcher: Dispatcher, ownStats?: AgentStats, isOwn: boolean = false) {
    if (typeof (dispatcher as Partial<Dispatcher> | null)?.dispatch !== "function") {
      throw badOption(
        "dispatcher",
        "use a Dispatcher of undici, such as `new Agent()`, or options of an agent",
      );
    }
    watchConnections();
    const isAgent = dispatcher instanceof Agent;
    const stats = ownStats ?? (isAgent ? shareAgentStats(dispatcher) : undefined);
    if (stats !== undefined) this.stats = () => stats.read();
    this.#use = { dispatcher, isOwn, stats };
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
  readonly running: RunningExchanges = new RunningExchanges();
  readonly #options: AgentOptions;
  readonly #stats: AgentStats;
  readonly #isOwn: boolean;
  readonly #agent: OwnAgent;
  /**
   * The agent for requests that need a new connection: upgrades, and requests whose reused connection has failed. This agent
   * opens a new connection for each of them.
   */
  #freshAgent: OwnAgent | undefined;
  #isClosed = false;

  constructor(options: AgentOptions) {
    // Without a number in `connections`, an agent sets no limit.
    const stats = new AgentStats(options.connections ?? Infinity);
    const agent = new OwnAgent(options, stats);
    // The sockets of an app's `connect` function may keep the bytes that are written. If `isOwn` is false, they get copies.
    const isOwn = typeof options.connect !== "function";
    super(agent, stats, isOwn);
    ownTransports.add(this);
    this.#options = options;
    this.#stats = stats;
    this.#isOwn = isOwn;
    this.#agent = agent;
  }

  override send(request: UpstreamRequest, scope: Scope): Promise<UpstreamResponse> {
    if (this.running.admits(scope)) return super.send(request, scope);
    scope.end();
    return Promise.reject(poolClosed());
  }

  protected override chooseUse(request: UpstreamRequest): DispatcherUse {
    const { newConnection = false, upgrade } = request;
    // With HTTP/2, only upgrades go to `#freshAgent`. A request with `newConnection` stays with `#agent`: undici itself opens
    // another connection once one is closed, and the upstream may speak only HTTP/2.
    const needsOwn = upgrade !== undefined || (newConnection && this.#options.allowH2 !== true);
    if (!needsOwn || this.#isClosed) return super.chooseUse(request);
    this.#freshAgent ??= new OwnAgent(
      { ...this.#options, pipelining: 0, allowH2: false },
      this.#stats,
    );
    return { dispatcher: this.#freshAgent, isOwn: this.#isOwn, stats: this.#stats };
  }

  async close(timeout = 0): Promise<void> {
    const { tunnels } = this.#stats;
    const closing = async (): Promise<void> => {
      await this.running.close();
      this.#isClosed = true;
      const open = this.#agents.filter(({ destroyed }) => !destroyed);
      await Promise.all(open.map((each) => each.close()));
      if (timeout === 0) this.#endTunnels();
      await Promise.all(Array.from(tunnels.keys(), waitForClose));
    };
    await closeWithin(timeout, closing, () => this.destroy());
  }

  destroy(): void {
    this.running.destroy();
    this.#isClosed = true;
    for (const each of this.#agents) each.destroyConnections();
    this.#endTunnels();
  }

  #endTunnels(): void {
    for (const socket of this.#stats.tunnels.keys()) socket.destroy();
  }

  get #agents(): OwnAgent[] {
    return this.#freshAgent === undefined ? [this.#agent] : [this.#agent, this.#freshAgent];
  }
}

function waitForClose(socket: Duplex): Promise<void> {
  return new Promise((resolve) => socket.once("close", () => resolve()));
}

function dispatchAttempt(attempt: UndiciAttempt): void {
  attempt.dispatch();
}

/** Below this number of pools, an agent does not remove closed pools from `#pools`. */
const MIN_CLEANUP_SIZE = 100;

/** Whether connections may speak HTTP/2, and whether those without TLS do so with prior knowledge. */
interface Http2Options {
  readonly allowH2: boolean;
  readonly useH2c: boolean;
}

/** An agent that keeps connections by the same rules as the proxy's own HTTP/1.1 transport. */
class OwnAgent extends Agent {
  /** All pools that may have connections. */
  readonly #pools: Set<Pool>;

  constructor(given: AgentOptions, stats: AgentStats) {
    const pools = new Set<Pool>();
    let limit = MIN_CLEANUP_SIZE;
    const { connect: _, allowH2 = false, ...options } = given;
    const http2: Http2Options = { allowH2, useH2c: allowH2 && options.h2Options?.useH2c === true };
    super({
      ...options,
      ...http2,
      // A `Keep-Alive` field of the upstream may shorten the idle time, but never lengthen it.
      keepAliveMaxTimeout: options.keepAliveMaxTimeout ?? (options.keepAliveTimeout as number),
      connect: toConnector(given, http2),
      factory(origin, forPool): Dispatcher {
        if (pools.size >= limit) {
          for (const each of pools) if (each.closed) pools.delete(each);
          limit = Math.max(MIN_CLEANUP_SIZE, 2 * pools.size);
        }
        const pool = new Pool(origin, forPool);
        pools.add(pool);
        return pool;
      },
    });
    stats.watch(this);
    this.#pools = pools;
  }

  /**
   * Closes all connections, including those of pools that the agent itself no longer has: a closed agent forgets its pools
   * while their requests are still running.
   */
  destroyConnections(): void {
    for (const each of [...this.#pools, this]) void each.destroy().catch(() => {});
  }
}

/** Makes the function that opens connections, from the options of an agent that concern connections. */
function toConnector(options: AgentOptions, http2: Http2Options): buildConnector.connector {
  const { connect: given, connectTimeout, socketPath, maxCachedSessions } = options;
  if (typeof given === "function") return given;
  const { autoSelectFamily, autoSelectFamilyAttemptTimeout } = options;
  const own: Record<string, unknown> = {
    timeout: connectTimeout,
    socketPath,
    maxCachedSessions,
    ...http2,
    preferH2: http2.allowH2,
    ...(autoSelectFamily !== undefined && { autoSelectFamily, autoSelectFamilyAttemptTimeout }),
    ...given,
  };
  const connect = buildConnector(own);
  const { servername } = own as { servername?: string };
  return (target, callback) => {
    // An IP address is not a name for SNI (RFC 6066 §3). Without a name, TLS checks the certificate for the address.
    const { servername: targetName, ...unnamed } = target;
    const isAddress = isIP(target.hostname.replace(/^\[|\]$/g, "")) !== 0;
    const name = servername ?? (isAddress ? undefined : targetName);
    connect(name === undefined ? unnamed : { ...unnamed, servername: name }, callback);
  };
}
