/**
 * `--record`: writes the requests that are sent to upstreams, and their responses, to a HAR file.
 *
 * An interceptor keeps each attempt. The diagnostics channel `fetchway.request` groups the attempts by exchange, and reports
 * the end of each exchange.
 */
import { AsyncLocalStorage } from "node:async_hooks";
import { tracingChannel } from "node:diagnostics_channel";
import type { RequestTrace } from "#fetchway";
import type { RouteOptions } from "../flags/severalupstreams.ts";
import { type CapturedAttempt, captureAttempts } from "./capture.ts";
import { type EntrySettings, toEntry } from "./harentry.ts";

/** Adds an entry, which is JSON. Returns whether another one can be added. */
export type AddEntry = (entry: string) => boolean;

export class Recorder {
  readonly #settings: EntrySettings;
  readonly #add: AddEntry;
  /** The attempts of the exchange for which the current code runs. */
  readonly #current = new AsyncLocalStorage<CapturedAttempt[]>();
  readonly #running = new WeakMap<RequestTrace, CapturedAttempt[]>();
  /** The entries that are being made. */
  readonly #pending = new Set<Promise<void>>();
  readonly #channel = tracingChannel<CapturedAttempt[], RequestTrace>("fetchway.request");

  constructor(settings: EntrySettings, add: AddEntry) {
    this.#settings = settings;
    this.#add = add;
    this.#channel.start.bindStore(this.#current, (message) => {
      const attempts: CapturedAttempt[] = [];
      this.#running.set(message, attempts);
      return attempts;
    });
    this.#channel.asyncEnd.subscribe(this.#onEnd);
  }

  /** Adds the recording interceptor as the innermost one, so that it gets the request as it is sent. */
  prepare(options: RouteOptions): RouteOptions {
    const { request = [], attempt = [] } = options.interceptors ?? {};
    const isHttp2 = options.pool?.http2 ?? false;
    const { maxBody } = this.#settings;
    const capture = captureAttempts(isHttp2, maxBody, () => this.#current.getStore());
    return { ...options, interceptors: { request, attempt: [...attempt, capture] } };
  }

  /** Stops recording. Requests that are still running are not recorded either. */
  stop(): void {
    this.#channel.start.unbindStore(this.#current);
    this.#channel.asyncEnd.unsubscribe(this.#onEnd);
  }

  /** Resolves when the entries of all exchanges that are over were added. */
  async close(): Promise<void> {
    await Promise.all(this.#pending);
  }

  readonly #onEnd = (message: unknown): void => {
    const trace = message as RequestTrace;
    const attempts = this.#running.get(trace);
    if (attempts === undefined || attempts.length === 0) return;
    const adding = this.#addAll(attempts, trace).finally(() => this.#pending.delete(adding));
    this.#pending.add(adding);
  };

  async #addAll(attempts: readonly CapturedAttempt[], { result }: RequestTrace): Promise<void> {
    const isOnly = attempts.length === 1;
    for (const attempt of attempts) {
      const end = attempt === attempts.at(-1) ? result : undefined;
      const entry = await toEntry(attempt, end, isOnly, this.#settings);
      if (!this.#add(JSON.stringify(entry))) return this.stop();
    }
  }
}
