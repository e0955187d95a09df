import { text, toggle } from "./kinds.ts";
import type { Flags, Schema } from "./schema.ts";

/** The options that make requests visible to browsers and to the tools that trace them. */
export interface ObservationOptions {
  /**
   * The name of the route that these requests belong to: `onRequestEnd` tells it as `route`, for metrics that must not have
   * one series for each path. It goes nowhere else. The command and `fetchway/rules` set it to the pattern of their route.
   * @example "/users/:id"
   */
  route?: string;
  /**
   * Adds the upstream's times to `Server-Timing` of its responses, after the upstream's own, in milliseconds:
   * `upstream-queue` (the wait for a connection), `upstream-connect` (a new connection only) and `upstream-first-byte` (until
   * the response headers arrived). Browsers show them in their network panel.
   *
   * Every client can read the times. A time that the runtime's client does not tell is left out. An error response of the
   * proxy has none.
   * @default false
   * @see https://www.w3.org/TR/server-timing/
   */
  serverTiming?: boolean;
  /**
   * Starts a trace where the client's request belongs to none: sets a new `traceparent`, with the flag `sampled`, if the
   * request has no valid one, and drops its `tracestate`.
   *
   * By default, and where the client sends a valid `traceparent`, the proxy passes `traceparent`, `tracestate` and
   * `baggage` on unchanged. A client that is not trusted can so choose its trace: name these fields in `filterHeaders` to
   * start a trace for every request. Upstreams that obey the flag record every such request. `onRequest` can replace the
   * field.
   * @default false
   * @see https://www.w3.org/TR/trace-context/
   */
  startTrace?: boolean;
}

export const observationSchema: Schema<ObservationOptions, "serverTiming" | "startTrace"> = {
  route: { kind: text(/^[ -~\u00a0-\uffff]+$/, 'use a text such as "/users/:id"') },
  serverTiming: { kind: toggle, default: false },
  startTrace: { kind: toggle, default: false },
};

export const observationFlags: Flags<ObservationOptions> = {
  heading: "Observation",
  flags: {
    route: { name: "route-name", value: "<name>", help: "the name of the route in the log" },
    serverTiming: "tell browsers the upstream's times in Server-Timing",
    startTrace: "set traceparent where the client sends none",
  },
};
