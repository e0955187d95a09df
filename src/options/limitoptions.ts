import { bytes, milliseconds, toggle } from "../schema/kinds.ts";
import type { Schema } from "../schema/schema.ts";

/** The options about time and size. */
export interface LimitOptions {
  /**
   * Milliseconds to wait for the response headers, then 504; each chunk of the request body that is sent restarts the
   * wait. `0` for no limit.
   *
   * It does not limit the time of the response body. On Workers, the runtime itself sends request bodies of up to 64
   * KiB whose length is known; their chunks do not restart the wait. The runtime itself also sends longer bodies of
   * known length, but the proxy checks their progress: every half second, or eight times within a `timeout` below 4 s.
   * @default 60000
   */
  timeout?: number;
  /**
   * Milliseconds to connect to the upstream, then 504. `0` leaves the limit to the system. The time begins when the
   * proxy opens a connection for the request; a request that uses an open connection has no such limit.
   *
   * Where the connections are not the proxy's own (Workers, `fetch`, a dispatcher of undici), this option has no effect, and
   * `timeout` includes the time to connect. With `fetchway/undici`, it is an option of `createProxy` only.
   * @default 10000
   */
  connectTimeout?: number;
  /**
   * Milliseconds to wait for each chunk of the response body, then the body fails. `0` for no limit. It does not apply to
   * `text/event-stream`, nor while the client does not read. A response that the app never begins to read also fails after
   * this time, which frees its connection. On Workers, it has no default, because the runtime moves the bodies itself.
   *
   * If this option or `signal` is set on Workers, return the response itself, its `clone()`, or
   * `new Response(body, response)`. If a new response is made from the `headers` only, the runtime encodes an encoded
   * body a second time.
   * @default 300000
   */
  idleTimeout?: number;
  /**
   * Maximum bytes of a request body; a longer body gets 413, and the upstream request is aborted. No limit by default.
   * @example 10_000_000
   */
  bodyLimit?: number;
  /**
   * Drops the body of a GET or HEAD, which is forwarded by default.
   *
   * Some upstreams do not read that body, and would take it for the next request on the connection (RFC 9110 §9.3.1). So the
   * proxy closes the connection to the upstream after a GET, HEAD or DELETE with a body, and does not send the request again.
   * Bun, Deno, Workers and `fetch` hide the body of a GET or HEAD: without this option, a request that announces one gets 501.
   * @default false
   */
  dropGetBody?: boolean;
  /**
   * Milliseconds that a tunnel may be silent in both directions; then it is closed. By default (`0`), the proxy never closes
   * a tunnel because it is silent.
   *
   * A WebSocket may be silent for hours, unless its application sends pings. `timeout` and `idleTimeout` do not apply to
   * tunnels. On Workers, this option has no effect.
   * @default 0
   */
  tunnelTimeout?: number;
  /**
   * Milliseconds that a tunnel stays open after one side has closed it: bytes that the other side has not read by then are
   * dropped, and both connections are closed. `0` for no limit.
   *
   * A WebSocket is closed when either side ends its stream, with or without a close frame. With another protocol in
   * `upgrades`, one direction may end while the other one stays in use for hours: the time then begins only when both
   * sides have ended, when the connection to the upstream is closed, or when a side that has ended takes no more of the bytes
   * that are sent to it. A tunnel whose sides are both open is never closed by this option. On Workers, this option has no
   * effect.
   * @default 20000
   */
  tunnelCloseTimeout?: number;
}

/** The options that limit a tunnel. */
export type TunnelOptions = Pick<LimitOptions, "tunnelTimeout" | "tunnelCloseTimeout">;

export const limitSchema: Schema<
  LimitOptions,
  | "timeout"
  | "connectTimeout"
  | "idleTimeout"
  | "dropGetBody"
  | "tunnelTimeout"
  | "tunnelCloseTimeout"
> = {
  timeout: { kind: milliseconds, default: 60_000 },
  connectTimeout: { kind: milliseconds, default: 10_000 },
  idleTimeout: { kind: milliseconds, default: 300_000 },
  bodyLimit: { kind: bytes },
  dropGetBody: { kind: toggle, default: false },
  tunnelTimeout: { kind: milliseconds, default: 0 },
  tunnelCloseTimeout: { kind: milliseconds, default: 20_000 },
};

/** Returns the limits of a tunnel in milliseconds; 0 for no limit. */
export function fillTunnelOptions({
  tunnelTimeout = limitSchema.tunnelTimeout.default,
  tunnelCloseTimeout = limitSchema.tunnelCloseTimeout.default,
}: TunnelOptions): Required<TunnelOptions> {
  return { tunnelTimeout, tunnelCloseTimeout };
}
