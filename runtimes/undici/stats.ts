import type { Agent, Client, Pool } from "undici";
import { Counters } from "../../src/counters.ts";
import type { OriginStats, PoolStats } from "../../src/transport.ts";

/** What the connections of an agent have been doing, counted from its events. */
export class AgentStats {
  readonly #agent: Agent;
  readonly #counters: Counters = new Counters();
  /** What the agent said last of its origins: it does not tell when that changes. */
  #last = "{}";

  constructor(agent: Agent) {
    this.#agent = agent;
    agent
      .on("connect", () => this.#count("created"))
      .on("connectionError", () => this.#count("failed"))
      .on("disconnect", (_origin, _targets, { message }) => {
        if (message === "socket idle timeout") this.#count("timedOut");
        this.#count("closed");
      });
  }

  /** A request is sent on a connection. */
  countRequest(): void {
    this.#count("requests");
  }

  read(): PoolStats {
    const origins: Record<string, OriginStats> = {};
    for (const [origin, stats] of Object.entries(this.#agent.stats)) {
      origins[origin] = toOrigin(stats);
    }
    const text = JSON.stringify(origins);
    if (text !== this.#last) this.#counters.version++;
    this.#last = text;
    return this.#counters.stats(() => origins);
  }

  #count(what: "created" | "closed" | "failed" | "timedOut" | "requests"): void {
    this.#counters[what]++;
    this.#counters.version++;
  }
}

/** Several transports over one agent share its connections. */
const known = new WeakMap<Agent, AgentStats>();

/** The counters of an agent, which count from the first call on. */
export function statsOf(agent: Agent): AgentStats {
  let stats = known.get(agent);
  if (stats === undefined) {
    stats = new AgentStats(agent);
    known.set(agent, stats);
  }
  return stats;
}

/** A pool counts its connections; a client says whether its only one is open. */
function toOrigin(stats: Pool["stats"] | Client["stats"]): OriginStats {
  const { connected, running, pending } = stats;
  const open = Number(connected);
  // On HTTP/2 one connection carries several requests. On HTTP/1.1 undici leaves it alone for a turn of the event loop.
  const idle = open - Math.min(open, running);
  const free = "free" in stats ? Math.min(stats.free, idle) : idle;
  return { inUse: open - free, free, waiting: pending };
}
