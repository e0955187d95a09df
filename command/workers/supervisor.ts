/**
 * The parent's side: it starts the workers, hands new connections to them in turn, restarts those that die, and replaces and
 * stops them.
 *
 * `node:cluster` keeps the one listening socket in the parent as long as a worker runs. If each worker had its own listening
 * socket (`SO_REUSEPORT`), closing one would make the system reset the connections in its queue.
 */
import cluster, { type Worker } from "node:cluster";
import process from "node:process";
import { LineWriter } from "../log/linewriter.ts";
import { type Level, printNotice, renderMessage } from "../log/ownmessages.ts";
import { describeDropped } from "../log/requestlog.ts";
import type { HarFile } from "../record/harfile.ts";
import type { Running } from "../serve/listen.ts";
import { describeRunning } from "../serve/stop.ts";
import type { Readiness } from "../status/condition.ts";
import type { Metrics, WorkersState } from "../status/metrics.ts";
import { Heartbeat } from "./heartbeat.ts";
import {
  type Begin,
  unwrapMessage,
  type Order,
  wrapMessage,
  WORKER_MARK,
  type WorkerMessage,
  type WorkerReport,
} from "./messages.ts";
import { relayLines } from "./relaylines.ts";
import { WorkerTotals } from "./workertotals.ts";

/** A worker that ends within these milliseconds after it became ready has died early. */
const STABLE_TIME = 10_000;
/**
 * Milliseconds until a worker that died early is replaced. The delay doubles with each further early death, up to a maximum.
 */
const FIRST_RESTART_DELAY = 100;
const MAX_RESTART_DELAY = 30_000;
/** Milliseconds within which a worker must be ready. */
const START_TIMEOUT = 30_000;
/** Milliseconds beyond `stopTimeout` after which a worker that does not respond is killed. */
const KILL_AFTER = 3000;
/** Milliseconds to wait until the replaced workers have closed their servers. Only a busy worker takes longer. */
const CLOSE_TIMEOUT = 2000;
/** Milliseconds to wait for the reports of the workers, and for workers that must end immediately, before these are killed. */
const REPORT_TIMEOUT = 300;
/**
 * The number of workers, for each place, that may be retired and have no deadline for their requests and tunnels. Beyond it,
 * the oldest ones must end within `stopTimeout`.
 */
const MAX_RETIRED = 2;

/** A worker process, whether it is starting, serving or retired. */
interface WorkerProcess {
  readonly worker: Worker;
  /**
   * The state of the process. Nothing is sent to a `forked` process: on some versions of Node, messages may be lost
   * before the process has sent `hello`.
   */
  state: "forked" | "starting" | "serving" | "silent" | "retired";
  /** Whether the process is retired, and must end within `stopTimeout`. */
  isEnding: boolean;
  readyAt: number;
  report: WorkerReport | undefined;
  /** Resolved when the next report of the worker arrives; undefined if no caller waits for one. */
  reported: PromiseWithResolvers<void> | undefined;
  /** Resolves when the worker no longer accepts connections. */
  readonly closed: Promise<void>;
  readonly close: () => void;
  /** Resolves when the process has ended, and its output has been read. */
  readonly ended: Promise<void>;
  /** The requests and tunnels that were running when the worker began to stop; undefined until the worker has reported them. */
  running: Running | undefined;
}

/** The place of one worker. When its process ends or is replaced, another process takes the place. */
interface Slot {
  member: WorkerProcess | undefined;
  /** The number of processes in a row that died early. */
  deaths: number;
  timer: ReturnType<typeof setTimeout> | undefined;
}

/** The message by which a worker reports that it is ready. */
type Ready = Extract<WorkerMessage, { type: "ready" }>;

/** A worker that did not become ready. */
export class WorkerFailure extends Error {
  readonly exitCode: number;
  /** Why the worker did not start, such as " (exit code 1)"; `""` if the worker itself has printed the reason. */
  readonly reason: string;

  constructor(exitCode: number, how: string) {
    const reason = exitCode === MISUSE ? "" : ` (${how})`;
    super(`a worker did not start${reason}`);
    this.exitCode = exitCode;
    this.reason = reason;
  }
}

/** The exit code for wrong options, about which the command has printed a message. */
const MISUSE = 2;

/** The workers of the command, seen from their parent. */
export class Supervisor {
  readonly #begin: Begin;
  readonly #places: readonly Slot[];
  readonly #members: Set<WorkerProcess> = new Set();
  readonly #lines: LineWriter;
  readonly #errors: LineWriter;
  /** Writes the messages of the parent to the same stream as those of the workers, so that they stay in order. */
  readonly #messages: LineWriter;
  #isStopping = false;
  /** The order that ends all workers; undefined until the command stops. */
  #finalOrder: Order | undefined;
  /** Settles when the last replacement or restart of workers has ended. The next one waits for that. */
  #last: Promise<unknown> = Promise.resolve();
  #restarts = 0;
  #cut: Running = { requests: 0, tunnels: 0 };
  #wasKilled = false;
  #onRunning: ((running: Running) => void) | undefined;
  readonly #heartbeat: Heartbeat<WorkerProcess>;
  /** The sums of the workers' counters. */
  readonly totals: WorkerTotals = new WorkerTotals(() =>
    [...this.#members].flatMap(({ report }) => report ?? []),
  );
  /** The counts of the requests of all workers; undefined without a status page. */
  metrics: Metrics | undefined;
  /** The file to which the entries of all workers are written; undefined without a recording. */
  recording: HarFile | undefined;

  /**
   * @param workerTimeout milliseconds without a heartbeat after which a worker is replaced; 0 for never
   */
  constructor(begin: Omit<Begin, "type">, workerTimeout: number) {
    this.#heartbeat = new Heartbeat(workerTimeout, (member) => this.#onSilence(member));
    this.#begin = { type: "begin", ...begin };
    this.#places = Array.from({ length: begin.count }, () => ({
      member: undefined,
      deaths: 0,
      timer: undefined,
    }));
    this.#errors = new LineWriter(process.stderr, noteDropped);
    this.#lines = new LineWriter(process.stdout, noteDropped, (text) =>
      this.#errors.write(renderMessage("error", text)),
    );
    this.#messages = begin.log === "json" ? this.#lines : this.#errors;
    process.on("exit", () => {
      this.#lines.flushNow();
      this.#errors.flushNow();
    });
    cluster.schedulingPolicy = cluster.SCHED_RR;
    // A single executable contains its script, and passes all arguments to the command.
    const isScriptInside = process.getBuiltinModule("node:sea").isSea();
    const [exec = "", ...args] = process.argv.slice(isScriptInside ? 2 : 1);
    cluster.setupPrimary({
      exec,
      args,
      stdio: ["ignore", "pipe", "pipe", "ipc"],
    });
  }

  /**
   * Starts all workers. The first one starts alone, because its start shows whether the port or the socket is free, and
   * whether the config file is valid.
   * @returns the first worker's message, which says where all workers listen
   * @throws WorkerFailure if a worker does not start
   */
  async start(): Promise<Ready> {
    const [first, ...others] = this.#places;
    const ready = await this.#fill(first as Slot);
    await Promise.all(others.map((place) => this.#fill(place)));
    return ready;
  }

  /** `ready` if at least one worker accepts connections and sends heartbeats in time. */
  get readiness(): Readiness {
    if (this.#isStopping) return "stopping";
    return this.#places.some(({ member }) => member?.state === "serving") ? "ready" : "starting";
  }

  /** Returns the state of the workers for the status page. */
  describeWorkers(): WorkersState {
    return {
      running: this.#places.filter(({ member }) => member !== undefined).length,
      retired: [...this.#members].filter(({ state }) => state === "retired").length,
      restarts: this.#restarts,
      pids: this.#places.flatMap(({ member }) => member?.worker.process.pid ?? []),
    };
  }

  /**
   * Replaces the workers one after another: an old worker retires when the new one serves. If a new worker does not start,
   * the remaining old workers are kept.
   * @param why the reason, for the notice
   * @returns the message of a new worker; undefined if a new worker did not start, or if the command stops
   */
  replace(why: string): Promise<Ready | undefined> {
    const replaced = this.#last.then(async () => {
      let ready: Ready | undefined;
      let count = 0;
      const closed: Promise<void>[] = [];
      for (const place of this.#places) {
        if (this.#isStopping) return undefined;
        const old = place.member;
        try {
          ready = await this.#fill(place);
        } catch (error) {
          const { reason } = error as WorkerFailure;
          const which = count === 0 ? "the workers" : `${count} are new, the other workers`;
          this.#report("error", `the new worker did not start${reason}: ${which} stay as they are`);
          return undefined;
        }
        count++;
        if (old === undefined) continue;
        this.#retire(old);
        closed.push(old.closed);
      }
      await within(Promise.all(closed), CLOSE_TIMEOUT);
      printNotice(`${count} workers have been replaced: ${why}`);
      return ready;
    });
    this.#last = replaced;
    return replaced;
  }

  /** Asks all workers for a report, and resolves when they have answered, or after `REPORT_TIMEOUT` if a worker is busy. */
  async refresh(): Promise<void> {
    const reports = [...this.#members].map(async (member) => {
      if (member.state === "forked") return;
      // Ask a worker again only after it has reported, so that no messages for a busy worker accumulate in this process.
      if (member.reported === undefined) {
        if (!send(member.worker, { type: "report" })) return;
        member.reported = Promise.withResolvers();
      }
      await member.reported.promise;
    });
    await within(Promise.all(reports), REPORT_TIMEOUT);
  }

  /**
   * Stops all workers. They may finish their requests and tunnels within `stopTimeout`.
   * @param onRunning is called once with the running requests and tunnels
   * @returns the requests and tunnels that were cut off
   */
  async stop(onRunning: (running: Running) => void): Promise<Running> {
    this.#isStopping = true;
    this.#onRunning = onRunning;
    for (const { timer } of this.#places) clearTimeout(timer);
    await this.#endAll({ type: "stop" }, this.#begin.stopTimeout + KILL_AFTER);
    return this.#cut;
  }

  /** Ends all workers immediately, and returns the requests and tunnels that were cut off. */
  async end(): Promise<Running> {
    this.#isStopping = true;
    await this.#endAll({ type: "end" }, REPORT_TIMEOUT);
    return this.#cut;
  }

  /** Whether a worker was killed. If so, the number of cut requests and tunnels is unknown. */
  get wasKilled(): boolean {
    return this.#wasKilled;
  }

  async #endAll(order: Order, limit: number): Promise<void> {
    const members = [...this.#members];
    const timer = setTimeout(() => {
      for (const { worker } of this.#members) {
        this.#wasKilled = true;
        worker.process.kill("SIGKILL");
      }
    }, limit);
    this.#finalOrder = order;
    for (const { worker, state } of members) if (state !== "forked") send(worker, order);
    await Promise.all(members.map(({ ended }) => ended));
    clearTimeout(timer);
    await Promise.all([this.#lines.close(), this.#errors.close()]);
  }

  /** Starts a worker process for a place. The process takes the place when it is ready. */
  async #fill(place: Slot): Promise<Ready> {
    const worker = this.#fork();
    const { promise: closed, resolve: close } = Promise.withResolvers<void>();
    const ended = new Promise<void>((resolve) => worker.process.once("close", resolve));
    const member: WorkerProcess = {
      worker,
      closed,
      close,
      ended,
      state: "forked",
      isEnding: false,
      readyAt: 0,
      report: undefined,
      reported: undefined,
      running: undefined,
    };
    this.#members.add(member);
    const { stdout, stderr } = worker.process;
    if (stdout) relayLines(stdout, (lines) => this.#lines.write(lines));
    if (stderr) relayLines(stderr, (lines) => this.#relayErrors(lines));
    // An order to a process that is ending may fail, which emits `error`.
    worker.on("error", () => {});
    let how: string | undefined;
    const timer = setTimeout(() => {
      how = `not ready within ${START_TIMEOUT / 1000} s`;
      worker.process.kill("SIGKILL");
    }, START_TIMEOUT);
    const ready = new Promise<Ready>((resolve, reject) => {
      worker.on("message", (sent) => {
        const message = unwrapMessage(sent) as WorkerMessage | undefined;
        if (message?.type === "ready") resolve(message);
        else if (message !== undefined) this.#note(member, message);
      });
      worker.process.once("error", (error: NodeJS.ErrnoException) => {
        how = `it cannot be forked: ${error.code ?? error.message}`;
        if (worker.process.pid !== undefined) return;
        this.#forget(member);
        reject(new WorkerFailure(1, how));
      });
      worker.process.on("close", (code: number | null, signal: string | null) => {
        this.#forget(member);
        reject(new WorkerFailure(code || 1, how ?? signal ?? `exit code ${code}`));
        this.#onEnd(member, place, signal ?? `with exit code ${code}`);
      });
    });
    try {
      const message = await ready;
      member.state = "serving";
      member.readyAt = performance.now();
      clearTimeout(place.timer);
      place.member = member;
      this.#heartbeat.beat(member);
      return message;
    } finally {
      clearTimeout(timer);
    }
  }

  #report(level: Level, text: string): void {
    this.#messages.write(renderMessage(level, text));
  }

  /**
   * Passes on what a worker prints on stderr. With `--log json`, only its runtime prints there, for example when
   * memory runs out; those lines become messages.
   */
  #relayErrors(lines: string): void {
    if (this.#messages === this.#errors) return this.#errors.write(lines);
    for (const line of lines.split("\n")) if (line !== "") this.#report("error", line);
  }

  #fork(): Worker {
    try {
      return cluster.fork({ [WORKER_MARK]: "1" });
    } catch (error) {
      throw new WorkerFailure(1, `it cannot be forked: ${(error as Error).message}`);
    }
  }

  #note(member: WorkerProcess, message: WorkerMessage): void {
    switch (message.type) {
      case "hello":
        member.state = "starting";
        send(member.worker, this.#begin);
        if (this.#finalOrder !== undefined) send(member.worker, this.#finalOrder);
        break;
      case "beat":
        if (member.state === "serving") this.#heartbeat.beat(member);
        break;
      case "report":
        member.report = message.report;
        member.reported?.resolve();
        member.reported = undefined;
        if (message.report.metrics !== undefined) this.metrics?.add(message.report.metrics);
        break;
      case "entry":
        if (this.recording?.add(message.entry) === true) break;
        for (const { worker } of this.#members) send(worker, { type: "full" });
        break;
      case "running":
        member.running = message.running;
        this.#reportRunning();
        break;
      case "cut":
        this.#noteCut(message.cut);
        break;
      case "closed":
        member.close();
        send(member.worker, { type: "handed" });
        break;
      case "ready":
    }
  }

  #noteCut(cut: Running): void {
    if (this.#isStopping) this.#cut = addRunning(this.#cut, cut);
    else if (cut.requests + cut.tunnels > 0) {
      this.#report(
        "warn",
        `${describeRunning(cut)} of a replaced worker cut off: too many replaced workers were still running`,
      );
    }
  }

  /** Reports the running requests and tunnels once all remaining workers have reported theirs. */
  #reportRunning(): void {
    const all = [...this.#members].map(({ running }) => running);
    if (this.#onRunning === undefined || all.includes(undefined)) return;
    this.#onRunning((all as Running[]).reduce(addRunning, { requests: 0, tunnels: 0 }));
    this.#onRunning = undefined;
  }

  /** Notes that a process has ended, or could not be started. */
  #forget(member: WorkerProcess): void {
    this.#heartbeat.forget(member);
    member.close();
    member.reported?.resolve();
    this.#members.delete(member);
    // This may have been the last worker whose `running` message was awaited.
    this.#reportRunning();
    if (member.report !== undefined) this.totals.keep(member.report);
  }

  #retire(member: WorkerProcess): void {
    if (!this.#members.has(member)) return;
    member.state = "retired";
    this.#heartbeat.forget(member);
    send(member.worker, { type: "retire" });
    this.#killUnless(member, member.closed);
    const retired = [...this.#members].filter(({ state }) => state === "retired");
    const surplus = retired.length - MAX_RETIRED * this.#places.length;
    for (const each of retired.slice(0, Math.max(0, surplus))) {
      if (each.isEnding) continue;
      each.isEnding = true;
      send(each.worker, { type: "stop" });
      this.#killUnless(each, each.ended);
    }
  }

  /**
   * Kills a retired process unless `obeyed` resolves within `stopTimeout` plus `KILL_AFTER`. A process that does not obey in
   * time has a blocked event loop, and serves no connection.
   */
  #killUnless({ worker }: WorkerProcess, obeyed: Promise<void>): void {
    const timer = setTimeout(() => {
      const { pid } = worker.process;
      this.#report(
        "error",
        `worker ${pid}, which was replaced, does not answer: it is killed with all its connections`,
      );
      worker.process.kill("SIGKILL");
    }, this.#begin.stopTimeout + KILL_AFTER);
    void obeyed.then(() => clearTimeout(timer));
  }

  /**
   * Replaces a worker whose event loop is blocked. If its event loop recovers in time, the worker still finishes its requests
   * and tunnels.
   */
  #onSilence(member: WorkerProcess): void {
    const place = this.#places.find((each) => each.member === member);
    if (place === undefined || this.#isStopping) return;
    member.state = "silent";
    const { pid } = member.worker.process;
    this.#report("error", `worker ${pid} does not answer; another one takes its place`);
    this.#last = this.#last.then(() => this.#replaceSilent(place, member));
  }

  async #replaceSilent(place: Slot, member: WorkerProcess): Promise<void> {
    if (place.member !== member || this.#isStopping) return;
    place.member = undefined;
    if (isStable(member)) place.deaths = 0;
    await this.#restart(place);
    this.#retire(member);
  }

  /** Starts another process in place of one that ended while it served. */
  #onEnd(member: WorkerProcess, place: Slot, how: string): void {
    if (place.member !== member) return;
    place.member = undefined;
    if (this.#isStopping) return;
    place.deaths = isStable(member) ? 0 : place.deaths + 1;
    const delay = this.#restartLater(place);
    const when = delay === 0 ? "now" : `in ${delay} ms`;
    const { pid } = member.worker.process;
    this.#report("error", `worker ${pid} has ended (${how}); another one starts ${when}`);
  }

  /** Starts a process for a place after a delay, and returns the delay in milliseconds. */
  #restartLater(place: Slot): number {
    const { deaths } = place;
    const delay =
      deaths === 0 ? 0 : Math.min(FIRST_RESTART_DELAY * 2 ** (deaths - 1), MAX_RESTART_DELAY);
    place.timer = setTimeout(() => {
      this.#last = this.#last.then(() => this.#restart(place));
    }, delay);
    return delay;
  }

  async #restart(place: Slot): Promise<void> {
    // During the delay, `replace` may have filled the place.
    if (place.member !== undefined || this.#isStopping) return;
    try {
      await this.#fill(place);
      this.#restarts++;
    } catch (error) {
      if (this.#isStopping) return;
      if (this.readiness === "starting" && this.#members.size === 0)
        process.exit((error as WorkerFailure).exitCode);
      place.deaths++;
      const delay = this.#restartLater(place);
      const { message } = error as WorkerFailure;
      this.#report("error", `${message}; the next try is in ${delay} ms`);
    }
  }
}

function isStable({ readyAt }: WorkerProcess): boolean {
  return performance.now() - readyAt > STABLE_TIME;
}

/** Resolves when a promise has resolved, or after `limit` milliseconds. Rejects if the promise rejects before that. */
async function within(promise: Promise<unknown>, limit: number): Promise<void> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<void>((resolve) => (timer = setTimeout(resolve, limit)));
  await Promise.race([promise, late]);
  clearTimeout(timer);
}

function noteDropped(count: number): string {
  return renderMessage("error", describeDropped(count));
}

/** Sends an order. Returns false if the process is ending. */
function send(worker: Worker, order: Order): boolean {
  if (!worker.isConnected()) return false;
  worker.send(wrapMessage(order));
  return true;
}

function addRunning(one: Running, other: Running): Running {
  return { requests: one.requests + other.requests, tunnels: one.tunnels + other.tunnels };
}
