/**
 * What srvx does not document of its requests and responses. h3 uses srvx's, so this holds for h3, too.
 *
 * The body limit of a request. srvx documents `request.runtime.node.req` and `.res`.
 * - Rests on: the same object has the server's option `maxRequestBodySize`, which only srvx's own body stream applies.
 * - Check: the member must exist and be undefined. srvx sets it for every request, with a limit or without.
 * - Otherwise: the body is read from the request's web stream, where srvx applies its limit.
 * - Test: test/internals.srvx.node.test.ts, "a limit under another name still holds".
 *
 * The method `_toNodeResponse()` of a response.
 * - Rests on: srvx's server sends what this method returns, instead of reading the web interface of the response. It
 *   writes the head, and then calls `pipe(res)` on the body.
 * - Check: the method only returns data, and the web interface of the response works without it. `pipe` checks that
 *   the head has been written.
 * - Otherwise: the server reads `status`, `headers` and `body` as of any other `Response`. `pipe` writes the head.
 * - Test: test/internals.srvx.node.test.ts, "a server that reads the response as a web one" and "a server that leaves
 *   the head to the body". That the fast way is taken is tested in test/work.hosts.test.ts.
 *
 * The class of a response.
 * - Rests on: srvx and @hono/node-server may replace the global `Response` by a subclass, and then accept only its
 *   instances. A class whose prototype is another class extends that class.
 * - Check: the global `Response` is compared with the runtime's own when a response is made.
 * - Otherwise: the response is made with the global class, of bytes or of a web stream.
 * - Test: test/internals.srvx.node.test.ts, "a global Response that was replaced".
 */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { HeaderList } from "../../../src/transport.ts";

/** Node's own request and response under a web `Request`. */
export interface NodeSide {
  readonly req: IncomingMessage;
  /** The response to write to, if the server accepts a body that writes itself. */
  readonly res: ServerResponse | undefined;
  /** Whether the body may be read from `req`, past the web `Request`. */
  readonly ownBody: boolean;
  /** Whether it is known that no other code has used the body of the web `Request`. */
  readonly isFresh: boolean;
}

/** What srvx shows of a request on Node. */
interface NodePair {
  req?: IncomingMessage;
  res?: ServerResponse;
  maxRequestBodySize?: number | undefined;
}

/** Returns Node's request and response under a request of srvx's; undefined for any other request. */
export function srvxSideOf(request: Request): NodeSide | undefined {
  const pair = (request as { runtime?: { node?: NodePair } }).runtime?.node;
  // Other servers may use these names for other things: a message of Node's has `rawHeaders`.
  if (pair?.req?.rawHeaders === undefined) return undefined;
  const ownBody = "maxRequestBodySize" in pair && pair.maxRequestBodySize === undefined;
  return { req: pair.req, res: pair.res, ownBody, isFresh: false };
}

/** The parts that srvx's server takes from a response. */
export interface SrvxParts {
  readonly status: number;
  readonly statusText: string;
  readonly headers: HeaderList;
  body: SrvxBody | ReadableStream<Uint8Array> | null;
}

/** A body that srvx lets write itself. */
export interface SrvxBody {
  /** Writes the body and ends the response; called after the head has been written. */
  pipe(res: ServerResponse): void;
  /** Drops the body; called instead of `pipe` if the client has disconnected, or sent HEAD. */
  destroy(): void;
}

/** The runtime's own `Response`, also if a server has replaced the global before this module was loaded. */
export const NativeResponse: typeof Response = nativeOf(globalThis.Response);

function nativeOf(current: typeof Response): typeof Response {
  const parent = Object.getPrototypeOf(current) as Partial<typeof Response>;
  return parent.prototype === undefined ? current : nativeOf(parent as typeof Response);
}

/** Whether the server accepts responses that are not of the global class: it has not replaced that class. */
export function acceptsOwnResponses(): boolean {
  return globalThis.Response === NativeResponse;
}

/** A response that srvx's server takes apart. It passes for a `Response` of the runtime's. */
export abstract class SrvxResponse {
  /** Returns the parts to send. */
  protected abstract toSrvxParts(): SrvxParts;

  /** Called by srvx's server. */
  _toNodeResponse(): SrvxParts {
    return this.toSrvxParts();
  }
}

Object.setPrototypeOf(SrvxResponse.prototype, NativeResponse.prototype);
