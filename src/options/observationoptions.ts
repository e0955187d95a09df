import { text, toggle } from "../schema/kinds.ts";
import type { Schema } from "../schema/schema.ts";

/** Durations of an exchange, in milliseconds. */
export interface RequestTimings {
  /** The time that the request waited for its upstream to come back (`wait`); undefined if it did not wait. */
  readonly held: number | undefined;
  /**
   * The time that the request waited for a place at an upstream (`maxRequests`), plus the time that the last attempt waited
   * for a connection; undefined where the transport does not report it.
   */
  readonly queue: number | undefined;
  /** The time to establish the last attempt's connection; undefined if the connection was reused, or the time is unknown. */
  readonly connect: number | undefined;
  /** The time from the client's request to the upstream's response headers; undefined if none arrived. */
  readonly firstByte: number | undefined;
  /** The time from the client's request to the end of the response, or of the tunnel. */
  readonly total: number;
}

/** The report on a request whose response is over. */
export interface RequestEnd {
  /** The client's method. */
  readonly method: string;
  /** The client's path and query. */
  readonly path: string;
  /** The name of the route that the request has taken: the option `route`, or the pattern of a rule; undefined for none. */
  readonly route: string | undefined;
  /** The authority that the client has named, such as `shop.example:8080`. */
  readonly authority: string;
  /** The IP address of the client, or of another proxy that has sent the request; undefined where the server hides it. */
  readonly clientAddress: string | undefined;
  /**
   * The origin of the upstream of the last attempt, such as `http://127.0.0.1:4000` or `unix:/run/app.sock`; undefined if
   * nothing was sent.
   */
  readonly upstream: string | undefined;
  /** The status of the response to the client: 101 for an upgrade, 499 if the client disconnected before the response. */
  readonly status: number;
  /** The protocol of an upgrade, such as `websocket`; undefined for an ordinary response. */
  readonly protocol: string | undefined;
  /**
   * Why no response of the upstream was forwarded, or why its body was cut off: a `ProxyError`, or the exception of a hook;
   * undefined if the exchange is complete.
   */
  readonly error: unknown;
  /**
   * The number of times that the request was sent to an upstream. While a request waits (`wait`), refused attempts do not
   * count.
   */
  readonly attempts: number;
  /** Whether the connection of the last attempt had carried a request before; undefined where that is not known. */
  readonly reused: boolean | undefined;
  /** The `traceparent` that the last attempt sent: the client's, or one that `startTrace` has made. */
  readonly traceparent: string | undefined;
  /**
   * The number of bytes of the request body that the last attempt sent; for a tunnel, the number of bytes from the client.
   * Where the runtime passes the bytes on by itself, the announced length of the body; undefined if none is announced.
   */
  readonly bytesIn: number | undefined;
  /**
   * The number of bytes of the upstream's response body; for a tunnel, the number of bytes from the upstream. Undefined
   * where the runtime passes the bytes on by itself.
   */
  readonly bytesOut: number | undefined;
  /** When the request arrived, in milliseconds since 1970. */
  readonly startedAt: number;
  /** How long the parts of the exchange took. */
  readonly timings: RequestTimings;
  /** The client's request. It is made at the first access; its body has been used. */
  readonly request: Request;
}

/** The report that requests begin to wait for an upstream (`wait`), or that none waits for it any longer. */
export interface WaitChange {
  /** The upstream, such as `http://127.0.0.1:4000` or `unix:/run/app.sock`; of several, the first three. */
  readonly upstream: string;
  /**
   * `waiting`: the first request waits. `back`: the upstream has answered, and no request waits any longer. `over`: the
   * upstream has not answered, and no request waits any longer, because their time is over, their clients have disconnected,
   * or the proxy was closed or has moved them.
   */
  readonly state: "waiting" | "back" | "over";
  /** Why requests wait: the code of the last error, such as `connection refused`. */
  readonly reason: string;
  /** The number of requests that have begun to wait so far, including those that no longer wait. */
  readonly requests: number;
  /** Milliseconds since the first request began to wait. */
  readonly duration: number;
}

/** The options that make requests visible to browsers and to the tools that trace them. */
export interface ObservationOptions {
  /**
   * The name of the route that the requests with these options belong to. `onRequestEnd` reports it as `route`, for metrics
   * that must not have one series for each path. It has no other effect. The command and `fetchway/rules` set it to the pattern
   * of their route.
   * @example "/users/:id"
   */
  route?: string;
  /**
   * Adds the upstream's times to `Server-Timing` of its responses, after the upstream's own, in milliseconds:
   * `upstream-queue` (the wait for a place at the upstream, and for a connection), `upstream-connect` (a new connection only)
   * and `upstream-first-byte` (until the response headers arrived). Browsers show them in their network panel.
   *
   * Every client can read the times. A time that the runtime's HTTP client does not report is left out. An error response of
   * the proxy has none.
   * @default false
   * @see https://www.w3.org/TR/server-timing/
   */
  serverTiming?: boolean;
  /**
   * Starts a trace where the client's request belongs to none: sets a new `traceparent`, with the flag `sampled`, if the
   * request has no valid one, and drops its `tracestate`.
   *
   * By default, and where the client sends a valid `traceparent`, the proxy passes `traceparent`, `tracestate` and
   * `baggage` on unchanged. This lets an untrusted client choose its trace: name these fields in `filterHeaders` to start a
   * trace for every request. Upstreams that obey the flag record every request with a new trace. `onRequest` can replace
   * the field.
   * @default false
   * @see https://www.w3.org/TR/trace-context/
   */
  startTrace?: boolean;
  /**
   * Whether the first failure of a kind at an upstream is printed: one line to `console.error`, with what happened, where and
   * what to do, at most once a minute for each kind and upstream.
   *
   * Nothing is printed if `onError` or `onRequestEnd` is set, or if `NODE_ENV` is `production`. Requests that the client has
   * cut off, and those that it should not have sent, do not count as failures. On Workers, in `fetchway/fetch`, and in the
   * command, which has a log of its own, the option has no effect.
   * @default true
   */
  log?: boolean;
}

export const observationSchema: Schema<ObservationOptions, "serverTiming" | "startTrace" | "log"> =
  {
    route: { kind: text(/^[ -~\u00a0-\uffff]+$/, 'use a text such as "/users/:id"') },
    serverTiming: { kind: toggle, default: false },
    startTrace: { kind: toggle, default: false },
    log: { kind: toggle, default: true },
  };
