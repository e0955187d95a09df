/** How the command stops: it finishes what is running within a time, and tells what it had to cut. */
import process from "node:process";
import type { Proxy } from "#proxy";
import type { Front, Running } from "./listen.ts";
import { tell } from "./tell.ts";

/** Milliseconds within which two signals count as one: under npm, one Ctrl+C arrives from the terminal and from npm. */
const SAME_SIGNAL = 250;
const EXIT_CODES = { SIGINT: 130, SIGTERM: 143 };
/** The exit code if requests or tunnels had to be cut. */
const CUT = 1;
/** Milliseconds between two looks at what is still running. */
const POLL = 20;
/** Milliseconds at the deadline in which clients are sent 503, or the close frame of their WebSocket. */
const LAST_ANSWERS = 250;

/** What stopping needs of a proxy, or of several. */
export type Stoppable = Pick<Proxy, "destroy" | "stats">;

/**
 * Ends the process on SIGINT or SIGTERM, when all requests and tunnels have ended or `stopTimeout` is over. A second signal
 * ends the process at once.
 * @param finish writes what is left, before the process exits
 */
export function stopOnSignals(
  front: Front,
  proxy: Stoppable,
  stopTimeout: number,
  finish: () => Promise<void>,
): void {
  let since: number | undefined;
  for (const signal of ["SIGINT", "SIGTERM"] as const) {
    process.on(signal, () => {
      if (since === undefined) {
        since = performance.now();
        void stop(front, proxy, stopTimeout, finish);
      } else if (performance.now() - since > SAME_SIGNAL) {
        printCut(front.countRunning(proxy), performance.now() - since);
        process.exit(EXIT_CODES[signal]);
      }
    });
  }
}

async function stop(
  front: Front,
  proxy: Stoppable,
  stopTimeout: number,
  finish: () => Promise<void>,
): Promise<void> {
  const begin = performance.now();
  await front.stopAccepting();
  const running = front.countRunning(proxy);
  if (running.requests + running.tunnels > 0) {
    tell(`stopping: ${describeRunning(running)} still running; Ctrl+C again to end at once`);
  }
  while (!front.isFinished(proxy) && performance.now() - begin < stopTimeout) await delay(POLL);
  const cut = front.countRunning(proxy);
  if (cut.requests + cut.tunnels === 0) {
    await finish();
    process.exit(0);
  }
  proxy.destroy();
  const end = performance.now() + LAST_ANSWERS;
  while (!front.isFinished(proxy) && performance.now() < end) await delay(POLL);
  printCut(cut, stopTimeout);
  await finish();
  process.exit(CUT);
}

function printCut(cut: Running, after: number): void {
  if (cut.requests + cut.tunnels === 0) return;
  process.stderr.write(
    `fetchway: stopped after ${Math.round(after)} ms: ${describeRunning(cut)} cut off; ` +
      "a longer --stop-timeout leaves them more time\n",
  );
}

/** Renders what is running, without the kind of which there is none. */
function describeRunning({ requests, tunnels }: Running): string {
  const parts = [countOf(requests, "request"), countOf(tunnels, "tunnel")];
  return parts.filter((part) => part !== "").join(" and ");
}

function countOf(count: number, what: string): string {
  return count === 0 ? "" : `${count} ${what}${count === 1 ? "" : "s"}`;
}

function delay(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
