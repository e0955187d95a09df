/**
 * The order of pipelined requests (RFC 9112 §9.3.2).
 *
 * - Rests on: `socket._httpMessage` is the response that Node writes to the connection now, the first of those that are
 *   not finished; null if there is none. Another response becomes the first before the finished one emits `close`.
 * - Check: the value must have a request with `rawHeaders`.
 * - Otherwise: pipelined requests are sent concurrently, when they arrive. Node still sends the responses in order. The answer
 *   to an upgrade, which is written past Node, may come before them.
 * - Test: test/runtimes/node/internals/pipelining.test.ts, "pipelined requests on a connection that does not show its
 *   current response". The order itself is tested in test/runtimes/node/pipelining.test.ts and test/suite/pipelining.ts.
 */
import type { ServerResponse } from "node:http";
import type { Socket } from "node:net";

/**
 * The property of a connection that holds its current response. `NodeIncoming.turn` compares it with the request's own response
 * first, because that costs less than a call of `turnOf`.
 */
export const CURRENT = "_httpMessage";

/** A connection of Node's HTTP/1 server. */
export type Served = Socket & { readonly [CURRENT]?: Partial<ServerResponse> | null };

/**
 * Returns the response that Node writes to a connection now.
 * @returns null for no response; undefined if this version of Node does not show the response
 */
export function responseOn(socket: Socket): ServerResponse | null | undefined {
  const current = (socket as Served)[CURRENT];
  if (current === null || current === undefined) return current;
  return current.req?.rawHeaders === undefined ? undefined : (current as ServerResponse);
}
