import type { Agent, Client, Pool } from "undici";
import { Counters, type OriginStats, type PoolStats } from "../../src/transport/stats.ts";

/** Counts the connections of an agent, by its events, and the requests on them. */
export class AgentStats {
  readonly #agent: Agent;
  readonly #counters: Counters = new Counters();
  /** The agent's statistics by origin when they were last read, as JSON: the agent has no event for their changes. */
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

  /** Counts a request that undici begins to send. */
  countRequest(): void {
    this.#count("requests");
  }

  /** Returns the counters; the same object until something changes. */
  read(): PoolStats {
    const origins: Record<string, OriginStats> = {};
    for (const [origin, stats] of Object.entries(this.#agent.stats)) {
      origins[origin] = toOriginStats(stats);
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

/** The counters of each agent: several transports over one agent share its connections. */
const known = new WeakMap<Agent, AgentStats>();

/** Returns the counters of an agent, which count from the first call on. */
export function shareAgentStats(agent: Agent): AgentStats {
  let stats = known.get(agent);
  if (stats === undefined) {
    stats = new AgentStats(agent);
    known.set(agent, stats);
  }
  return stats;
}

/** Converts undici's statistics of one origin. `connected` is a number for a `Pool`, and a boolean for a `Client`. */
function toOriginStats(stats: Pool["stats"] | Client["stats"]): OriginStats {
  const { connected, running, pending } = stats;
  const open = Number(connected);
  // An HTTP/2 connection carries several requests at once. An HTTP/1.1 connection counts as busy in undici for one turn of
  // the event loop after its response.
  const idle = open - Math.min(open, running);
  const free = "free" in stats ? Math.min(stats.free, idle) : idle;
  return { inUse: open - free, free, waiting: pending, tunnels: 0 };
}
