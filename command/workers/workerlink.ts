/** The worker's side of the connection to its parent: the worker serves requests, and obeys its parent's orders. */
import process from "node:process";
import { Worker as Thread } from "node:worker_threads";
import type { ServerSettings } from "../flags/commandoptions.ts";
import type { Front, Running } from "../serve/listen.ts";
import type { Observers } from "../serve/observe.ts";
import type { Router } from "../serve/routes.ts";
import { Drain } from "../serve/stop.ts";
import { BEAT_INTERVAL } from "./heartbeat.ts";
import {
  type Begin,
  unwrapMessage,
  type Order,
  wrapMessage,
  WORKER_MARK,
  type WorkerMessage,
} from "./messages.ts";

/** Milliseconds between two reports for the status page. */
const REPORT_INTERVAL = 1000;

/** The parts of the command that serve in a worker. */
export interface Serving {
  readonly front: Front;
  readonly router: Router;
  readonly observers: Observers;
  readonly server: ServerSettings;
  /** The options of the server as the flags and the config file set them, which the parent compares with its own. */
  readonly configured: ServerSettings;
  /** The warnings about the flags and the config file. */
  readonly doubts: readonly string[];
  /** Reads the config file again, and applies its routes; undefined without a file. */
  readonly reload: (() => Promise<void>) | undefined;
}

/**
 * Connects this process to its parent.
 * @returns undefined if this process is no worker of the command
 */
export async function joinParent(): Promise<WorkerLink | undefined> {
  // Test `process.send` first: without a parent, Deno would require a permission to read the environment variable.
  if (process.send === undefined || process.env[WORKER_MARK] === undefined) return undefined;
  // Delete the variable, because programs that a config file starts inherit the environment, and would act as workers.
  delete process.env[WORKER_MARK];
  // A terminal, for example, sends its signals to all processes. Ignore them, because the parent sends orders instead.
  for (const signal of ["SIGINT", "SIGHUP", "SIGBREAK", "SIGUSR1"]) process.on(signal, () => {});
  const link = new WorkerLink();
  await link.begun;
  endWithParent();
  return link;
}

/**
 * The code of a thread that kills this process when its parent is gone: then `process.ppid` has changed, or no process has
 * the parent's id.
 */
const WATCH_PARENT = `
  const { ppid } = process;
  let missed = 0;
  setInterval(() => {
    let isGone = process.ppid !== ppid;
    try { process.kill(ppid, 0); } catch ({ code }) { isGone ||= code === "ESRCH"; }
    if (isGone && ++missed > 2) process.kill(process.pid, "SIGKILL");
  }, 1000);
`;

/**
 * Makes sure that this process ends within a few seconds after its parent. Node ends this process when the channel to the
 * parent closes, but a blocked event loop does not notice that, so a thread watches the parent.
 */
function endWithParent(): void {
  try {
    const watcher = new Thread(WATCH_PARENT, {
      eval: true,
      resourceLimits: { maxOldGenerationSizeMb: 8, maxYoungGenerationSizeMb: 1, stackSizeMb: 1 },
    });
    watcher.on("error", () => {}).unref();
  } catch {
    // Node's permission model may forbid threads. Then a blocked worker may outlive its parent; nothing else depends on the
    // thread.
  }
}

/** The connection of a worker to its parent. */
export class WorkerLink {
  /** The first message of the parent. */
  begin!: Begin;
  /** Resolves when `begin` is set. */
  readonly begun: Promise<void>;
  #serving: Serving | undefined;
  /** The orders that arrived before `serve` was called. */
  readonly #early: Order[] = [];
  #drain: Drain | undefined;
  #isEnding = false;
  #whenHanded: (() => void) | undefined;

  constructor() {
    this.begun = new Promise((resolve) => {
      process.on("message", (sent) => {
        const order = unwrapMessage(sent) as Order | undefined;
        if (order === undefined) return;
        if (order.type === "begin") {
          this.begin = order;
          resolve();
        } else if (this.#serving === undefined) this.#early.push(order);
        else this.#obey(order, this.#serving);
      });
    });
    void this.#send({ type: "hello" });
  }

  /**
   * The server options that the parent decides. They override the config file, which may have changed since the parent read
   * it.
   */
  get given(): Pick<ServerSettings, "port" | "host" | "stopTimeout" | "log" | "record" | "admin"> {
    const { port, host, stopTimeout, log, record, admin } = this.begin;
    return {
      port,
      host,
      stopTimeout,
      log,
      ...(record !== undefined && { record }),
      ...(admin !== undefined && { admin }),
    };
  }

  /** Sends an entry of the recording to the parent, which writes the file. */
  readonly addEntry = (entry: string): boolean => {
    void this.#send({ type: "entry", entry });
    return true;
  };

  /** Reports to the parent that the worker is ready, and obeys its orders from now on. */
  serve(serving: Serving): void {
    this.#serving = serving;
    process.on("SIGTERM", () => this.#obey({ type: "stop" }, serving));
    const { front, server, doubts } = serving;
    const { address, redirect } = front;
    const configured = toTexts(serving.configured);
    void this.#send({ type: "ready", address, redirect, server: configured, doubts });
    setInterval(() => void this.#send({ type: "beat" }), BEAT_INTERVAL).unref();
    if (server.admin !== undefined) {
      setInterval(() => void this.#report(serving), REPORT_INTERVAL).unref();
    }
    for (const order of this.#early.splice(0)) this.#obey(order, serving);
  }

  #obey(order: Order, serving: Serving): void {
    const { front, router, server } = serving;
    switch (order.type) {
      case "retire":
        // Reload the config file, which may have changed: requests must not wait for an upstream that the file no longer
        // contains. Check for running requests, not for waiting ones: a request that is just testing whether its upstream is
        // back does not count as waiting, but may wait again.
        if (front.countRunning(router).requests > 0) serving.reload?.().catch(() => {});
        return void this.#stop(serving, () => {});
      case "stop": {
        const reportRunning = (running: Running): void =>
          void this.#send({ type: "running", running });
        if (this.#drain === undefined) void this.#stop(serving, reportRunning);
        else reportRunning(front.countRunning(router));
        return this.#drain?.limit(server.stopTimeout);
      }
      case "end":
        return void this.#end(serving, front.countRunning(router));
      case "report":
        return void this.#report(serving);
      case "full":
        return serving.observers.stopRecording();
      case "handed":
        return this.#whenHanded?.();
      case "begin":
        return undefined;
    }
  }

  async #stop(serving: Serving, onRunning: (running: Running) => void): Promise<void> {
    const { front, router } = serving;
    this.#drain = new Drain(front, router);
    const cut = await this.#drain.run(onRunning, async () => {
      // The parent may have sent connections before it knew that this server is closed. Node hands these back to
      // the parent. Keep running until the parent's answer `handed`, which follows the last of these connections.
      const handed = new Promise<void>((resolve) => (this.#whenHanded = resolve));
      await this.#send({ type: "closed" });
      await handed;
    });
    await this.#end(serving, cut);
  }

  /** Ends the process after the remaining log lines and the final report have been sent. */
  async #end(serving: Serving, cut: Running): Promise<void> {
    // A second signal may arrive just when the deadline passes.
    if (this.#isEnding) return;
    this.#isEnding = true;
    await serving.observers.close();
    await this.#report(serving);
    await this.#send({ type: "cut", cut });
    process.exit(0);
  }

  async #report({ front, router, observers }: Serving): Promise<void> {
    const { user, system } = process.cpuUsage();
    await this.#send({
      type: "report",
      report: {
        pool: router.stats(),
        clients: front.slow?.stats(),
        memory: process.memoryUsage.rss(),
        cpu: (user + system) / 1e6,
        metrics: observers.takeReport(),
      },
    });
  }

  /** Sends a message to the parent. Resolves when the message has been written, or when it cannot be written. */
  #send(message: WorkerMessage): Promise<void> {
    return new Promise((resolve) => {
      if (process.send === undefined || !process.connected) resolve();
      else process.send(wrapMessage(message), undefined, undefined, () => resolve());
    });
  }
}

/** Converts the values of all options that are set to texts, because JSON has no `Infinity`. */
export function toTexts(options: object): Record<string, string> {
  const set = Object.entries(options).filter(([, value]) => value !== undefined);
  return Object.fromEntries(set.map(([name, value]) => [name, String(value)]));
}
