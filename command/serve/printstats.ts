import process from "node:process";
import type { PoolStats, Proxy } from "#fetchway";
import { printFigures } from "../log/ownmessages.ts";

/** Renders the counters of the connections as lines of text. */
export function renderStats(stats: PoolStats): string {
  const { created, closed, failed, timedOut, requests, requestsPerSocket, origins } = stats;
  const lines = [
    `connections: ${created} created, ${closed} closed, ${failed} failed, ${timedOut} timed out`,
    `requests: ${requests}, ${Number(requestsPerSocket.toFixed(1))} to a connection`,
    ...Object.entries(origins).map(
      ([origin, { inUse, free, waiting }]) =>
        `${origin}: ${inUse} in use, ${free} free, ${waiting} waiting`,
    ),
  ];
  return lines.join("\n");
}

/**
 * Prints the counters on SIGUSR1, which would otherwise start Node's inspector.
 * @param proxy provides the counters; if they come from other processes, `refresh` updates them
 * @param atExit whether to print the counters also when the process exits
 */
export function printStats(
  proxy: Pick<Proxy, "stats"> & { refresh?(): Promise<void> },
  atExit: boolean,
): void {
  const print = (): void => {
    const stats = proxy.stats();
    if (stats !== undefined) printFigures(renderStats(stats));
  };
  process.on("SIGUSR1", () => {
    if (proxy.refresh === undefined) print();
    else void proxy.refresh().then(print);
  });
  if (atExit) process.on("exit", print);
}
