/**
 * What the parent process and its workers tell each other, as JSON.
 *
 * Each message is in an object with one member, whose name tells it from the messages of a config file's code, which may
 * call `process.send` itself.
 */
import type { PoolStats } from "#fetchway";
import type { ClientStats } from "../limits/clientconnections.ts";
import type { LogForm } from "../log/requestlog.ts";
import type { Running } from "../serve/listen.ts";
import type { MetricsReport } from "../status/metrics.ts";

/** The environment variable by which a process knows that it is a worker. */
export const WORKER_MARK = "FETCHWAY_WORKER";

/** The first message to a worker, after its `hello`: what it must know before it listens. */
export interface Begin {
  readonly type: "begin";
  readonly port: number;
  readonly host: string;
  /** The number of workers: each gets its share of the limits for connections. */
  readonly count: number;
  /** The form of the log, which depends on the stdout of the parent. */
  readonly log: LogForm;
  /** The origin of the demo upstream, which runs in the parent. */
  readonly demo: string | undefined;
  /** The secret of the sticky cookies which have none. */
  readonly secret: string;
}

/** A message to a worker. */
export type Order =
  | Begin
  /** Finish what is running without a deadline, because another worker has taken over. */
  | { readonly type: "retire" }
  /** Finish what is running within `stopTimeout`. */
  | { readonly type: "stop" }
  /** End at once. */
  | { readonly type: "end" }
  /** Send a report. */
  | { readonly type: "report" }
  /** All connections that the parent had handed over before the worker closed its server have been sent. */
  | { readonly type: "handed" };

/** A worker in numbers. */
export interface WorkerReport {
  readonly pool: PoolStats | undefined;
  readonly clients: ClientStats | undefined;
  /** Bytes. */
  readonly memory: number;
  /** Seconds. */
  readonly cpu: number;
  /** What has been counted since the report before; undefined if nothing has been. */
  readonly metrics: MetricsReport | undefined;
}

/** A message of a worker. */
export type WorkerMessage =
  /** The worker listens for messages: one that came earlier may be lost on some versions of Node. */
  | { readonly type: "hello" }
  /** The event loop of the worker runs. */
  | { readonly type: "beat" }
  | {
      readonly type: "ready";
      /** The origin on which it listens, or `unix:/path`. */
      readonly address: string;
      /** The options of the server as texts, by name. */
      readonly server: Readonly<Record<string, string>>;
    }
  | { readonly type: "report"; readonly report: WorkerReport }
  /** What is running when it begins to stop. */
  | { readonly type: "running"; readonly running: Running }
  /** What it has cut. */
  | { readonly type: "cut"; readonly cut: Running }
  /** It has closed its server. */
  | { readonly type: "closed" };

/** Puts a message into the object in which it is sent. */
export function wrapMessage(message: Order | WorkerMessage): Record<string, unknown> {
  return { [WORKER_MARK]: message };
}

/** Returns what was sent, a message of the other side; undefined for what other code has sent. */
export function unwrapMessage(sent: unknown): unknown {
  return (sent as Partial<Record<string, unknown>> | null)?.[WORKER_MARK];
}
