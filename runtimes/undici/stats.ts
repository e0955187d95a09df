import type { Agent, Client, Pool } from "undici";
import { Counters } from "../../src/stats.ts";
import type { OriginStats, PoolStats } from "../../src/transport.ts";

/** The counters of each agent: several transports over one agent share its connections. */
const counted = new WeakMap<Agent, Counters>();

/** Counts the connections of an agent from its events, from the first call on. */
export function countConnections(agent: Agent): Counters {
  let counters = counted.get(agent);
  if (counters !== undefined) return counters;
  counters = new Counters();
  counted.set(agent, counters);
  const change = (what: "created" | "closed" | "failed" | "timedOut"): void => {
    counters[what]++;
    counters.version++;
  };
  agent
    .on("connect", () => change("created"))
    .on("connectionError", () => change("failed"))
    .on("disconnect", (_origin, _targets, { message }) => {
      if (message === "socket idle timeout") change("timedOut");
      change("closed");
    });
  return counters;
}

/** What the connections of an agent have been doing. */
export function toStats(agent: Agent, counters: Counters): PoolStats {
  return counters.stats(() => {
    const origins: Record<string, OriginStats> = {};
    for (const [origin, stats] of Object.entries(agent.stats)) origins[origin] = toOrigin(stats);
    return origins;
  });
}

/** A pool counts its connections; a client says whether its only one is open. */
function toOrigin({ connected, running, pending }: Pool["stats"] | Client["stats"]): OriginStats {
  const open = Number(connected);
  // On HTTP/2 one connection carries several requests.
  const inUse = Math.min(open, running);
  return { inUse, free: open - inUse, waiting: pending };
}
