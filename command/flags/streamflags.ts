/** The options of a route that add the interceptors of `fetchway/streams`. */
import type { CreateProxyOptions } from "#fetchway";
import { milliseconds, type Schema } from "#fetchway/options";
import { awaitFirstByte, sendHeartbeats } from "#fetchway/streams";
import type { Flags } from "./flagtable.ts";

/** The options `firstByteTimeout` and `heartbeat` of a route. */
export interface StreamSettings {
  /**
   * Milliseconds from the response headers to the first event of an event stream, or to the first byte of another body. Until
   * then, the client gets nothing, and another upstream may take the request; see `awaitFirstByte` of `fetchway/streams`. `0`
   * for no limit.
   */
  firstByteTimeout?: number;
  /**
   * Milliseconds of silence after which the client of an event stream gets a comment; see `sendHeartbeats` of
   * `fetchway/streams`. `0` for no comments.
   */
  heartbeat?: number;
}

export const streamSchema: Schema<StreamSettings> = {
  firstByteTimeout: { kind: milliseconds },
  heartbeat: { kind: milliseconds },
};

export const streamFlags: Flags<StreamSettings> = {
  heading: "Streams",
  flags: {
    firstByteTimeout: "to the first byte or event, before the next upstream",
    heartbeat: "send a comment on an event stream after this silence",
  },
};

type Interceptors = NonNullable<CreateProxyOptions["interceptors"]>;

/** Adds the interceptors of the two options for streams to the other interceptors of a route. */
export function addStreamInterceptors(
  { request = [], attempt = [] }: Interceptors = {},
  firstByteTimeout: number | undefined,
  heartbeat: number | undefined,
): Interceptors {
  return {
    request: heartbeat ? [sendHeartbeats({ interval: heartbeat }), ...request] : request,
    attempt:
      firstByteTimeout === undefined ? attempt : [...attempt, awaitFirstByte({ firstByteTimeout })],
  };
}
