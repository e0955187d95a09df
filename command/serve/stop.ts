/**
 * How the command stops: running requests and tunnels may finish within a time limit, and those that are cut off are reported.
 */
import process from "node:process";
import type { Proxy } from "#fetchway";
import type { Front, Running } from "./listen.ts";
import type { SignalActions } from "./signals.ts";
import { hasTerminal, printNotice, printWarning } from "../log/ownmessages.ts";

/** The exit code if requests or tunnels were cut off. */
const CUT = 1;
/** Milliseconds between two checks whether everything has ended. */
const POLL = 20;
/** Milliseconds between two such checks in a replaced worker, whose WebSockets may last for hours. */
const SLOW_POLL = 100;
/** Milliseconds for which an idle connection stays open after the server has stopped accepting connections. */
const GRACE = 500;
/**
 * Milliseconds for which a replaced worker, which need not end soon, keeps an idle connection open. The longer a connection
 * has been idle, the less likely it is that a request is on its way.
 */
const LONG_GRACE = 10_000;
/** Milliseconds after the deadline in which clients still get their 503, or the close frame of their WebSocket. */
const LAST_ANSWERS = 250;

/** The members of a proxy or of a router that are used here. */
export type Stoppable = Pick<Proxy, "destroy" | "stats">;

/** Receives the numbers of running requests and tunnels when a server stops. */
export type OnRunning = (running: Running) => void;

/** Waits until the requests and tunnels of a server have ended, or until a deadline, which may be set later. */
export class Drain {
  readonly #front: Front;
  readonly #proxy: Stoppable;
  #deadline = Infinity;

  constructor(front: Front, proxy: Stoppable) {
    this.#front = front;
    this.#proxy = proxy;
  }

  /** Sets a deadline in `stopTimeout` ms, unless an earlier one is set. What still runs at the deadline is cut off. */
  limit(stopTimeout: number): void {
    this.#deadline = Math.min(this.#deadline, performance.now() + stopTimeout);
  }

  /**
   * Stops the server. Without a deadline, idle connections are kept for longer, because HTTP/1.1 cannot announce their close.
   * @param onRunning is called with the running requests and tunnels after `afterClose`
   * @param afterClose is called when the server has stopped accepting connections, and awaited
   * @returns the requests and tunnels that were cut off at the deadline
   */
  async run(onRunning: OnRunning, afterClose?: () => Promise<void>): Promise<Running> {
    const front = this.#front;
    await front.stopAccepting();
    await afterClose?.();
    onRunning(front.countRunning(this.#proxy));
    while (!this.#isFinished() && performance.now() < this.#deadline) {
      await delay(this.#deadline === Infinity ? SLOW_POLL : POLL);
    }
    const cut = front.countRunning(this.#proxy);
    if (cut.requests + cut.tunnels === 0) return cut;
    this.#proxy.destroy();
    const end = performance.now() + LAST_ANSWERS;
    while (!this.#isFinished() && performance.now() < end) await delay(POLL);
    return cut;
  }

  #isFinished(): boolean {
    return this.#front.isFinished(this.#proxy, this.#deadline === Infinity ? LONG_GRACE : GRACE);
  }
}

/**
 * Returns two functions. `stop` ends the process when all requests and tunnels have ended, or after `stopTimeout`; `end` ends
 * it immediately.
 * @param finish writes the remaining lines of the log before the process exits
 */
export function createStop(
  front: Front,
  proxy: Stoppable,
  stopTimeout: number,
  finish: () => Promise<void>,
): Pick<SignalActions, "stop" | "end"> {
  async function stop(): Promise<void> {
    const drain = new Drain(front, proxy);
    drain.limit(stopTimeout);
    const cut = await drain.run(printRunning);
    printCut(cut, stopTimeout);
    await finish();
    process.exit(exitCodeOf(cut));
  }
  return {
    stop: () => void stop(),
    end(after, code) {
      printCut(front.countRunning(proxy), after);
      process.exit(code);
    },
  };
}

/** Returns the exit code of a command that has stopped. */
export function exitCodeOf(cut: Running): number {
  return cut.requests + cut.tunnels === 0 ? 0 : CUT;
}

/** Prints how many requests and tunnels are still running when the command stops. */
export function printRunning(running: Running): void {
  if (running.requests + running.tunnels === 0) return;
  const hint = hasTerminal ? "; press Ctrl+C again to exit immediately" : "";
  printNotice(`stopping: ${describeRunning(running)} still running${hint}`);
}

/** Prints how many requests and tunnels were cut off. */
export function printCut(cut: Running, after: number): void {
  if (cut.requests + cut.tunnels === 0) return;
  printWarning(
    `stopped after ${Math.round(after)} ms: ${describeRunning(cut)} cut off; ` +
      "a longer --stop-timeout gives them more time",
  );
}

/** Renders the counts, such as `2 requests and 1 tunnel`. A count of 0 is left out. */
export function describeRunning({ requests, tunnels }: Running): string {
  const parts = [countOf(requests, "request"), countOf(tunnels, "tunnel")];
  return parts.filter((part) => part !== "").join(" and ");
}

function countOf(count: number, what: string): string {
  return count === 0 ? "" : `${count} ${what}${count === 1 ? "" : "s"}`;
}

function delay(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
