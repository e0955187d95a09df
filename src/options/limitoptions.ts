import { bytes, milliseconds, toggle } from "../schema/kinds.ts";
import type { Schema } from "../schema/schema.ts";

/** The options about time and size. */
export interface LimitOptions {
  /**
   * Milliseconds to wait for the response headers, then 504; each chunk of the request body that is sent restarts the
   * wait. `0` for no limit.
   *
   * It does not limit the time of the response body. On Workers, the runtime itself sends request bodies of up to 64
   * KiB whose length is known; their chunks do not restart the wait. It also sends larger ones: the proxy sees their
   * progress up to half a second late, or an eighth of a short timeout.
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
   * Milliseconds to wait for each chunk of the response body, then the body fails. `0` for no limit. It does not apply
   * to `text/event-stream`, nor while the client does not read. A response that the app never begins to read ends with it,
   * so that its connection is given back. On Workers, it has no default, because the runtime
   * moves the bodies itself.
   *
   * If this option or `signal` is set on Workers, return the response itself, its `clone()`, or
   * `new Response(body, response)`. If a new response is made from the `headers` only, the runtime encodes an encoded
   * body a second time.
   * @default 300000
   */
  idleTimeout?: number;
  /**
   * Maximum bytes of a request body; a longer body gets 413, and the upstream request is aborted. No limit by default.
   */
  bodyLimit?: number;
  /**
   * Drops the body of a GET or HEAD, which is forwarded by default.
   *
   * Some upstreams do not read such a body, and would take it for the next request on the connection (RFC 9110 §9.3.1). So the
   * proxy closes the connection to the upstream after a GET, HEAD or DELETE with a body, and sends none of them again. Bun, Deno,
   * Workers and `fetch` do not show the body of a GET or HEAD: without this option, a request that announces one gets 501.
   * @default false
   */
  dropGetBody?: boolean;
  /**
   * Milliseconds that a tunnel may be silent in both directions; then it is closed. By default (`0`), the proxy closes no
   * silent tunnel.
   *
   * A WebSocket may be silent for hours, unless its application sends pings. `timeout` and `idleTimeout` do not apply to
   * tunnels.
   * @default 0
   */
  tunnelTimeout?: number;
}

export const limitSchema: Schema<
  LimitOptions,
  "timeout" | "connectTimeout" | "idleTimeout" | "dropGetBody" | "tunnelTimeout"
> = {
  timeout: { kind: milliseconds, default: 60_000 },
  connectTimeout: { kind: milliseconds, default: 10_000 },
  idleTimeout: { kind: milliseconds, default: 300_000 },
  bodyLimit: { kind: bytes },
  dropGetBody: { kind: toggle, default: false },
  tunnelTimeout: { kind: milliseconds, default: 0 },
};
