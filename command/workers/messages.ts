/**
 * The messages between the parent process and its workers, as JSON.
 *
 * Each message is wrapped in an object with one member, `WORKER_MARK`. Messages without it come from the code of a config file,
 * which may also call `process.send`.
 */
import type { PoolStats } from "#fetchway";
import type { ClientStats } from "../limits/clientconnections.ts";
import type { Colours } from "../log/lineforms.ts";
import type { LogForm } from "../log/requestlog.ts";
import type { Running } from "../serve/listen.ts";
import type { MetricsReport } from "../status/metrics.ts";

/** The environment variable that marks a process as a worker, and the member that wraps a message. */
export const WORKER_MARK = "FETCHWAY_WORKER";

/** The first message to a worker, after its `hello`: what it must know before it listens. */
export interface Begin {
  readonly type: "begin";
  readonly port: number;
  readonly host: string;
  /** Milliseconds within which the worker finishes its requests and tunnels after `stop`. */
  readonly stopTimeout: number;
  /** The number of workers: each gets its share of the limits for connections. */
  readonly count: number;
  /** The form of the log. With `--log auto`, it depends on the stdout of the parent. */
  readonly log: LogForm;
  /** Whether the two streams of the parent, to which it passes on the output of the worker, show colours. */
  readonly colours: Colours;
  /** The origin of the demo upstream, which runs in the parent; undefined without `--demo`. */
  readonly demo: string | undefined;
  /** The secret for the sticky cookies of routes that configure none. */
  readonly secret: string;
  /** The file of the recording, which the parent writes; undefined for no recording. */
  readonly record: string | undefined;
  /** The address of the status page, which the parent serves; undefined for no status page. */
  readonly admin: number | string | undefined;
}

/** A message to a worker. */
export type Order =
  | Begin
  /** Finish running requests and tunnels without a deadline, because another worker has taken over. */
  | { readonly type: "retire" }
  /** Finish running requests and tunnels within `stopTimeout`. */
  | { readonly type: "stop" }
  /** Exit immediately. */
  | { readonly type: "end" }
  /** Send a report. */
  | { readonly type: "report" }
  /** Send no further entries: the recording is full. */
  | { readonly type: "full" }
  /** The answer to `closed`. It follows the last connection that the parent hands over to the worker. */
  | { readonly type: "handed" };

/** The counters of a worker. */
export interface WorkerReport {
  readonly pool: PoolStats | undefined;
  readonly clients: ClientStats | undefined;
  /** Resident memory in bytes. */
  readonly memory: number;
  /** CPU time in seconds. */
  readonly cpu: number;
  /** The counts since the previous report; undefined if there were no requests. */
  readonly metrics: MetricsReport | undefined;
}

/** A message of a worker. */
export type WorkerMessage =
  /** The worker listens for messages. A message that is sent earlier may be lost on some versions of Node. */
  | { readonly type: "hello" }
  /** A heartbeat: the event loop of the worker runs. */
  | { readonly type: "beat" }
  | {
      readonly type: "ready";
      /** The origin on which the worker listens, or `unix:/path`. */
      readonly address: string;
      /** The origin of the worker's listener that redirects to HTTPS. */
      readonly redirect: string | undefined;
      /** The options of the server as texts, by name. */
      readonly server: Readonly<Record<string, string>>;
      /** The warnings about the flags and the config file. */
      readonly doubts: readonly string[];
    }
  | { readonly type: "report"; readonly report: WorkerReport }
  /** An entry of the recording, as JSON. */
  | { readonly type: "entry"; readonly entry: string }
  /** The requests and tunnels that are running when the worker begins to stop. */
  | { readonly type: "running"; readonly running: Running }
  /** The requests and tunnels that the worker has cut off. */
  | { readonly type: "cut"; readonly cut: Running }
  /** The worker has closed its server. */
  | { readonly type: "closed" };

/** Wraps a message in the object that is sent. */
export function wrapMessage(message: Order | WorkerMessage): Record<string, unknown> {
  return { [WORKER_MARK]: message };
}

/** Returns the message that the other side has wrapped; undefined for an object that other code has sent. */
export function unwrapMessage(sent: unknown): unknown {
  return (sent as Partial<Record<string, unknown>> | null)?.[WORKER_MARK];
}
