import { Agent, type Dispatcher } from "undici";
import type { Scope } from "../../src/exchange/scope.ts";
import { badOption } from "../../src/options/misuse.ts";
import { closeWithin } from "../../src/closing.ts";
import type {
  Capabilities,
  UpstreamRequest,
  PoolStats,
  UpstreamResponse,
  Transport,
} from "../../src/transport.ts";
import { OwnAgent } from "./agent.ts";
import { Attempt, type Client } from "./attempt.ts";
import { watchConnections } from "./sockets.ts";
import { type AgentStats, statsOf } from "./stats.ts";

const CAPABILITIES: Capabilities = { decodes: [], host: true, unixSocket: false, tls: false };

/** Requests through a dispatcher of the app's, which stays the app's to close. */
export class DispatcherTransport implements Transport {
  readonly name: string = "undici";
  readonly capabilities: Capabilities = CAPABILITIES;
  readonly stats?: () => PoolStats;
  readonly #client: Client;

  /** @throws TypeError for what is no dispatcher of undici's */
  constructor(dispatcher: Dispatcher, isOwn: boolean = false) {
    if (typeof (dispatcher as Partial<Dispatcher> | null)?.dispatch !== "function") {
      throw badOption("dispatcher", "use a Dispatcher of undici's, such as `new Agent()`");
    }
    watchConnections();
    const stats = dispatcher instanceof Agent ? statsOf(dispatcher) : undefined;
    if (stats !== undefined) this.stats = () => stats.read();
    this.#client = toClient(dispatcher, isOwn, stats);
  }

  send(request: UpstreamRequest, scope: Scope): Promise<UpstreamResponse> {
    return new Promise((resolve, reject) => {
      const attempt = new Attempt(this.clientFor(request), request, scope, resolve, reject);
      // A small body is in the same packet as its head, but parsed after the handler has run: by the check phase it has
      // arrived, and leaves in one write with the head.
      if (request.body === null) attempt.run();
      else setImmediate(run, attempt);
    });
  }

  /** What sends a request. */
  protected clientFor(_hop: UpstreamRequest): Client {
    return this.#client;
  }
}

/** Requests through an agent of the transport's own. */
export class UndiciTransport extends DispatcherTransport {
  readonly #agent: OwnAgent;
  /** Makes a connection for each request that must not use an idle one. */
  #freshAgent: OwnAgent | undefined;
  #fresh: Client | undefined;
  #isClosed = false;

  constructor() {
    const agent = new OwnAgent(true);
    super(agent, true);
    this.#agent = agent;
  }

  protected override clientFor(request: UpstreamRequest): Client {
    if (request.fresh !== true || this.#isClosed) return super.clientFor(request);
    this.#freshAgent ??= new OwnAgent(false);
    return (this.#fresh ??= toClient(this.#freshAgent, true, statsOf(this.#freshAgent)));
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
    for (const each of this.#agents) each.cutOff();
  }

  get #agents(): OwnAgent[] {
    return this.#freshAgent === undefined ? [this.#agent] : [this.#agent, this.#freshAgent];
  }
}

function toClient(dispatcher: Dispatcher, isOwn: boolean, stats: AgentStats | undefined): Client {
  if (stats === undefined) return { dispatcher, isOwn };
  return { dispatcher, isOwn, onStart: () => stats.countRequest() };
}

function run(attempt: Attempt): void {
  attempt.run();
}
