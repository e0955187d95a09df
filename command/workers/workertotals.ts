/** The parent's counters: the sums of all workers, as one process would count them. */
import process from "node:process";
import type { PoolStats } from "#fetchway";
import type { ClientStats } from "../limits/clientconnections.ts";
import { endStats, mergeStats } from "../serve/routes.ts";
import type { WorkerReport } from "./messages.ts";

/** The part of a report that is added up here: all counters but `metrics`, which the parent adds when a report arrives. */
type Totals = Omit<WorkerReport, "metrics">;

const NOTHING: Totals = { pool: undefined, clients: undefined, memory: 0, cpu: 0 };

/** The sums of the last reports of all workers, including those that have ended, because counters must not decrease. */
export class WorkerTotals {
  readonly #live: () => readonly Totals[];
  #ended = NOTHING;

  /** @param live returns the last report of each running worker */
  constructor(live: () => readonly Totals[]) {
    this.#live = live;
  }

  /** Keeps the counters of a process that has ended. */
  keep({ pool, clients, cpu }: Totals): void {
    const ended: Totals = {
      pool: pool && endStats(pool),
      clients: clients && { ...clients, connections: 0, tunnels: 0, overloaded: 0 },
      memory: 0,
      cpu,
    };
    this.#ended = add([this.#ended, ended]);
  }

  /** Returns the counters of the workers' connections to upstreams. */
  readonly poolStats = (): PoolStats | undefined => this.#all().pool;

  /** Returns the counters of the clients' connections. */
  readonly clientStats = (): ClientStats | undefined => this.#all().clients;

  /** Returns the memory and the CPU time of all processes, the parent included. */
  readonly usage = (): { memory: number; cpu: number } => {
    const { memory, cpu } = this.#all();
    const { user, system } = process.cpuUsage();
    return { memory: memory + process.memoryUsage.rss(), cpu: cpu + (user + system) / 1e6 };
  };

  #all(): Totals {
    // Of two equal states of an upstream, the first one gives the reason, so put the processes that have ended last.
    return add([...this.#live(), this.#ended]);
  }
}

function add(all: readonly Totals[]): Totals {
  const clients = all.flatMap((each) => each.clients ?? []);
  return {
    pool: mergeStats(all.flatMap(({ pool }) => pool ?? [])),
    clients: clients.length === 0 ? undefined : clients.reduce(addClients),
    memory: all.reduce((sum, { memory }) => sum + memory, 0),
    cpu: all.reduce((sum, { cpu }) => sum + cpu, 0),
  };
}

function addClients(one: ClientStats, other: ClientStats): ClientStats {
  const names = Object.keys(one) as (keyof ClientStats)[];
  return Object.fromEntries(
    names.map((name) => [name, one[name] + other[name]]),
  ) as unknown as ClientStats;
}
