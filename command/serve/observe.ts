import process from "node:process";
import type { PoolStats, RequestEnd } from "#fetchway";
import { quoteInput } from "#fetchway/options";
import type { StateChange } from "#fetchway/upstreams";
import type { ServerSettings } from "../flags/commandoptions.ts";
import { VERSION } from "../flags/ownpackage.ts";
import { isTargetList, type RouteOptions } from "../flags/severalupstreams.ts";
import type { ClientStats } from "../limits/clientconnections.ts";
import { correctEnd } from "../limits/ownanswers.ts";
import type { Colours } from "../log/lineforms.ts";
import { printWarning } from "../log/ownmessages.ts";
import { chooseLogForm, RequestLog } from "../log/requestlog.ts";
import type { HarFile } from "../record/harfile.ts";
import type { AddEntry, Recorder } from "../record/recorder.ts";
import { type AdminAddress, parseAdminAddress } from "../status/adminaddress.ts";
import type { Readiness } from "../status/condition.ts";
import { Metrics, type MetricsReport } from "../status/metrics.ts";
import type { StatusSource } from "../status/statusserver.ts";

type EndListener = (end: RequestEnd) => void;

/** The observers of the command's requests: its log, its status page and its recording. */
export class Observers {
  readonly #log: RequestLog;
  readonly #admin: AdminAddress | undefined;
  #metrics: Metrics | undefined;
  readonly #listeners: readonly EndListener[];
  #poolStats: () => PoolStats | undefined = () => undefined;
  #readiness: Readiness = "starting";
  #recorder: Recorder | undefined;

  /** @param colours whether the output shows colours; by default, that depends on the streams of this process */
  constructor({ log, admin }: Pick<ServerSettings, "log" | "admin">, colours?: Colours) {
    const form = log === "auto" ? chooseLogForm(process.stdout) : log;
    this.#log = new RequestLog(form, process.stdout, process.stderr, colours);
    this.#admin = admin === undefined ? undefined : parseAdminAddress(admin);
    if (this.#admin !== undefined) this.#metrics = createMetrics(() => this.#poolStats());
    const own = [
      ...(this.#log.onRequestEnd === undefined ? [] : [this.#log.onRequestEnd]),
      ...(this.#metrics === undefined ? [] : [(end: RequestEnd) => this.#metrics?.record(end)]),
    ];
    const callOwn = callAll(own);
    this.#listeners = own.length === 0 ? [] : [(end) => callOwn(correctEnd(end))];
    process.on("exit", () => this.#log.flushNow());
  }

  /**
   * Adds the listeners to the options of a proxy. With `--log off` and without `--admin`, it adds no
   * `onRequestEnd`, so that successful requests cost nothing.
   */
  readonly prepare = (options: RouteOptions): RouteOptions => {
    const { onRequestEnd, onError, onWait, target, balance } = options;
    const prepared = this.#recorder?.prepare(options) ?? { ...options };
    const listeners = [...this.#listeners, ...(onRequestEnd === undefined ? [] : [onRequestEnd])];
    if (this.#listeners.length > 0) {
      prepared.onRequestEnd =
        listeners.length === 1 ? (listeners[0] as EndListener) : callAll(listeners);
    }
    if (balance !== undefined || isTargetList(target)) {
      const onStateChange = (change: StateChange): void => {
        this.#log.onStateChange(change);
        balance?.onStateChange?.(change);
      };
      prepared.balance = { ...balance, onStateChange };
    }
    prepared.onWait = (change) => {
      this.#log.onWait(change);
      onWait?.(change);
    };
    const isOff = this.#log.onRequestEnd === undefined;
    prepared.onError = async (error, request) => {
      if (isOff) this.#log.onError(error, request);
      const response = await onError?.(error, request);
      // Answer exceptions of hooks here: the servers of Bun and Deno would print them, and Bun would also show the
      // source code to the client.
      return response ?? (error.code === "proxy_internal_error" ? toInternalError() : undefined);
    };
    return prepared;
  };

  /**
   * Answers a request whose proxy throws. Without this answer, the server would print each exception with its stack on Bun
   * and Deno, and none on Node. With `--log off`, this function also reports the failure.
   */
  readonly rescue = (error: unknown, request: Request): Response => {
    if (this.#log.onRequestEnd === undefined) this.#log.onError(error, request);
    return toInternalError();
  };

  /** Reports the end of a request that no proxy has seen. */
  readonly report = (end: RequestEnd): void => {
    const isOff = this.#log.onRequestEnd === undefined;
    if (isOff && end.error !== undefined) this.#log.onRefused(end);
    for (const listener of this.#listeners) listener(end);
  };

  /**
   * Starts the server of the status page, if there is one, and returns its origin. The page reports the command as not ready
   * until `setListening` is called.
   * @throws UsageError if it cannot listen
   */
  async listen(poolStats: () => PoolStats | undefined): Promise<string | undefined> {
    this.#poolStats = poolStats;
    const [admin, metrics] = [this.#admin, this.#metrics];
    if (admin === undefined || metrics === undefined) return undefined;
    return openStatus(admin, { metrics, readiness: () => this.#readiness });
  }

  /**
   * Starts the recording, if `record` is set. Call it before `prepare`: only proxies that are prepared afterwards are recorded.
   * @param add called with each entry; by default, entries are written to the file
   * @returns a function that creates the file; it throws a UsageError if that is not possible
   */
  async record(server: ServerSettings, add?: AddEntry): Promise<() => void> {
    if (server.record === undefined) return () => {};
    const { Recorder: Loaded } = await import("../record/recorder.ts");
    const file = add === undefined ? await prepareRecording(server) : undefined;
    const settings = { maxBody: server.recordMaxBody, secrets: server.recordSecrets };
    this.#recorder = new Loaded(settings, add ?? ((entry) => file?.add(entry) === true));
    return () => void file?.open();
  }

  /** Stops the recording. Called when its file is full. */
  stopRecording(): void {
    this.#recorder?.stop();
  }

  /** Returns the counts since the last call, for the report of a worker to its parent; undefined if there were no requests. */
  takeReport(): MetricsReport | undefined {
    const counted = this.#metrics;
    if (counted === undefined || counted.requests === 0) return undefined;
    this.#metrics = createMetrics(() => this.#poolStats());
    return counted.report();
  }

  /**
   * Called when the command's own server listens. From then on, the status page reports the command as ready.
   * @param clientStats returns the counters of its connections; undefined where the runtime does not show them
   */
  setListening(clientStats: () => ClientStats | undefined): void {
    this.#readiness = "ready";
    if (this.#metrics !== undefined) this.#metrics.clientStats = clientStats;
  }

  /** Called when the command's own server stops. From then on, the status page reports the command as not ready. */
  setStopping(): void {
    this.#readiness = "stopping";
  }

  /**
   * Writes the remaining entries of the recording, and lines of the log. Resolves when they are written, or after a second if
   * the reader of the log is too slow.
   */
  async close(): Promise<void> {
    await Promise.all([this.#recorder?.close(), this.#log.close()]);
  }
}

export function createMetrics(poolStats: () => PoolStats | undefined): Metrics {
  return new Metrics({ version: VERSION, runtime: nameRuntime() }, poolStats);
}

/**
 * Starts the server of the status page, and returns its origin.
 * @throws UsageError if it cannot listen
 */
export async function openStatus(admin: AdminAddress, source: StatusSource): Promise<string> {
  const { listenForStatus } = await import("../status/statusserver.ts");
  const server = await listenForStatus(admin, source);
  if (admin.host === "0.0.0.0" || admin.host === "::") {
    printWarning(
      `--admin ${quoteInput(admin.host)} lets every host on the network read the status page, which asks for no password: name one address instead`,
    );
  }
  return new URL(server.url ?? "").origin;
}

/** Returns the file of the recording, which is not created yet. */
export async function prepareRecording(server: ServerSettings): Promise<HarFile> {
  const { HarFile: Loaded } = await import("../record/harfile.ts");
  return new Loaded(server.record ?? "", server, printWarning);
}

function toInternalError(): Response {
  return new Response("Internal Server Error: proxy_internal_error\n", {
    status: 500,
    headers: {
      "content-type": "text/plain; charset=utf-8",
      "proxy-status": "fetchway; error=proxy_internal_error",
    },
  });
}

function callAll(listeners: readonly EndListener[]): EndListener {
  return (end) => {
    for (const listener of listeners) listener(end);
  };
}

/** Returns the name and the version of the runtime, such as `Node 24.1.0`. */
function nameRuntime(): string {
  const { bun, deno, node } = process.versions;
  if (bun !== undefined) return `Bun ${bun}`;
  return deno === undefined ? `Node ${node}` : `Deno ${deno}`;
}
