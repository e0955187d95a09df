import type { Duplex } from "node:stream";
import type { Agent, Client, Pool } from "undici";
import {
  addOrigin,
  Counters,
  type OriginStats,
  type PoolStats,
} from "../../src/transport/stats.ts";

/** Counts the connections of agents, from the agents' events, and the requests and tunnels on these connections. */
export class AgentStats {
  /** The connections that carry a tunnel, each with its origin. undici no longer manages these connections. */
  readonly tunnels: Map<Duplex, string> = new Map();
  readonly #agents: Agent[] = [];
  readonly #counters: Counters;
  /**
   * The statistics by origin at the last call of `read`, as JSON. An agent has no event for a change of its statistics, so
   * `read` compares them.
   */
  #last = "{}";

  /** @param maxSockets the maximum number of connections to one origin, if this transport has made the agent */
  constructor(maxSockets?: number) {
    this.#counters = new Counters(maxSockets);
  }

  /** Counts the connections of an agent from now on. */
  watch(agent: Agent): void {
    this.#agents.push(agent);
    agent
      .on("connect", () => this.#count("created"))
      .on("connectionError", () => this.#count("failed"))
      .on("disconnect", (_origin, _targets, { message }) => {
        // undici reports this when it hands a connection over to a tunnel. The connection is still open.
        if (message === "upgrade") return;
        if (message === "socket idle timeout") this.#count("timedOut");
        this.#count("closed");
      });
  }

  /** Counts a request that undici begins to send. */
  countRequest(): void {
    this.#count("requests");
  }

  /** Counts a connection that has become a tunnel, until it is closed. */
  countTunnel(socket: Duplex, origin: string): void {
    this.tunnels.set(socket, origin);
    this.#count("tunnels");
    socket.once("close", () => {
      this.tunnels.delete(socket);
      this.#count("closed");
    });
  }

  /** Returns the statistics: the same object until something changes. */
  read(): PoolStats {
    const origins: Record<string, OriginStats> = {};
    for (const agent of this.#agents) {
      for (const [origin, stats] of Object.entries(agent.stats)) {
        addOrigin(origins, origin, toOriginStats(stats));
      }
    }
    for (const origin of this.tunnels.values()) addOrigin(origins, origin, ONE_TUNNEL);
    const text = JSON.stringify(origins);
    if (text !== this.#last) this.#counters.version++;
    this.#last = text;
    return this.#counters.stats(() => origins);
  }

  #count(what: "created" | "closed" | "failed" | "timedOut" | "requests" | "tunnels"): void {
    this.#counters[what]++;
    this.#counters.version++;
  }
}

const ONE_TUNNEL: OriginStats = { inUse: 0, free: 0, waiting: 0, tunnels: 1 };

/**
 * The counters of each agent that the app has made. Several transports over one agent share its connections, and so its
 * counters.
 */
const known = new WeakMap<Agent, AgentStats>();

/** Returns the counters of an agent that the app has made. Counting begins with the first call for that agent. */
export function shareAgentStats(agent: Agent): AgentStats {
  let stats = known.get(agent);
  if (stats === undefined) {
    stats = new AgentStats();
    stats.watch(agent);
    known.set(agent, stats);
  }
  return stats;
}

/** Converts undici's statistics of one origin. `connected` is a number for a `Pool`, and a boolean for a `Client`. */
function toOriginStats(stats: Pool["stats"] | Client["stats"]): OriginStats {
  const { connected, running, pending } = stats;
  const open = Number(connected);
  // `running` may exceed `open`, because an HTTP/2 connection carries several requests at the same time. For one turn of the
  // event loop after its response, undici still counts an HTTP/1.1 connection as busy, and so does `inUse`.
  const idle = open - Math.min(open, running);
  const free = "free" in stats ? Math.min(stats.free, idle) : idle;
  return { inUse: open - free, free, waiting: pending, tunnels: 0 };
}
