/** How the command stops: it finishes what is running within a time, and tells what it had to cut. */
import process from "node:process";
import type { Proxy } from "#fetchway";
import type { Front, Running } from "./listen.ts";
import type { SignalActions } from "./signals.ts";
import { printNotice } from "./printnotice.ts";

/** The exit code if requests or tunnels had to be cut. */
const CUT = 1;
/** Milliseconds between two looks at what is still running. */
const POLL = 20;
/** The same for a worker that has been replaced, which may take hours for its WebSockets. */
const SLOW_POLL = 100;
/** Milliseconds for which an idle connection stays open after the server has stopped accepting connections. */
const GRACE = 500;
/** The same for a worker that has been replaced: the longer a connection is idle, the less likely a request is on its way. */
const LONG_GRACE = 10_000;
/** Milliseconds at the deadline in which clients are sent 503, or the close frame of their WebSocket. */
const LAST_ANSWERS = 250;

/** What stopping needs of a proxy, or of several. */
export type Stoppable = Pick<Proxy, "destroy" | "stats">;

/** What is called when a server stops. */
export type OnRunning = (running: Running) => void;

/** Finishes what is running on a server, until a deadline that may be set while it waits. */
export class Drain {
  readonly #front: Front;
  readonly #proxy: Stoppable;
  #deadline = Infinity;

  constructor(front: Front, proxy: Stoppable) {
    this.#front = front;
    this.#proxy = proxy;
  }

  /** Sets the deadline: what is running after these milliseconds is cut. */
  limit(stopTimeout: number): void {
    this.#deadline = Math.min(this.#deadline, performance.now() + stopTimeout);
  }

  /**
   * Stops the server. Without a deadline, idle connections are kept for longer, because their clients are not told.
   * @param onRunning is called with what is running when the server has stopped accepting connections
   * @param afterClose is awaited when the server has stopped accepting connections
   * @returns what was cut at the deadline
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
 * Returns what ends the process when all requests and tunnels have ended or `stopTimeout` is over, and what ends it at once.
 * @param finish writes what is left, before the process exits
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

/** Tells what is still running when the command stops. */
export function printRunning(running: Running): void {
  if (running.requests + running.tunnels === 0) return;
  printNotice(`stopping: ${describeRunning(running)} still running; Ctrl+C again to end at once`);
}

/** Prints what was cut. */
export function printCut(cut: Running, after: number): void {
  if (cut.requests + cut.tunnels === 0) return;
  process.stderr.write(
    `fetchway: stopped after ${Math.round(after)} ms: ${describeRunning(cut)} cut off; ` +
      "a longer --stop-timeout leaves them more time\n",
  );
}

/** Renders what is running, without the kind of which there is none. */
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
