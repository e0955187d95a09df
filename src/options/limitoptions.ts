import { bytes, milliseconds } from "./kinds.ts";
import type { Flags, Schema } from "./schema.ts";

/** The options about time and size. */
export interface LimitOptions {
  /**
   * Milliseconds until the response headers, counted anew from each chunk of the request body that is sent; then 504.
   * `0` for no limit.
   *
   * It never ends a response body. On Workers, the runtime moves bodies of up to 64 KiB whose length is known, and their
   * chunks do not count.
   * @default 60000
   */
  timeout?: number;
  /**
   * Milliseconds to connect to the upstream, then 504. `0` leaves the limit to the system.
   *
   * Where connections are not the proxy's own (Workers, `fetch`, `fetchway/undici`), `timeout` includes this time.
   * @default 10000
   */
  connectTimeout?: number;
  /**
   * Milliseconds between two chunks of the response body, then the body fails. `0` for no limit. It does not apply to
   * `text/event-stream`, nor while the client does not read. Workers, where the runtime moves bodies itself, have no
   * default.
   *
   * Where it or `signal` is set on Workers, return the response itself, its `clone()`, or `new Response(body, response)`.
   * A response that is made of `headers` alone has an encoded body encoded twice.
   * @default 300000
   */
  idleTimeout?: number;
  /** Bytes that a request body may have; a longer one gets 413, and the upstream request is aborted. No limit by default. */
  bodyLimit?: number;
}

export const limitSchema: Schema<LimitOptions, "timeout" | "connectTimeout" | "idleTimeout"> = {
  timeout: { kind: milliseconds, default: 60_000 },
  connectTimeout: { kind: milliseconds, default: 10_000 },
  idleTimeout: { kind: milliseconds, default: 300_000 },
  bodyLimit: { kind: bytes },
};

export const limitFlags: Flags<LimitOptions> = {
  heading: "Limits",
  flags: {
    timeout: "until response headers; 0 waits for ever",
    connectTimeout: "to connect to the upstream",
    idleTimeout: "between two chunks of a response body",
    bodyLimit: "largest request body, such as 512k or 10mb; over it 413",
  },
};
