/**
 * Undocumented properties of srvx's requests and responses. h3 uses these, so all of this holds for h3, too.
 *
 * The body limit of a request. srvx documents `request.runtime.node.req` and `.res`.
 * - Rests on: `request.runtime.node` also has the server's option `maxRequestBodySize`, which only srvx's own body stream
 *   applies.
 * - Check: the member must exist and be undefined. srvx sets it for every request, with a limit or without.
 * - Otherwise: the body is read from the request's web stream, where srvx applies its limit.
 * - Test: test/runtimes/node/internals/srvx.test.ts, "the server's body limit still holds if srvx renames the limit".
 *
 * The class of a request.
 * - Rests on: srvx's class has its own `body`. An app may build a `Request` and copy `runtime` to it, as h3 does for a
 *   request to its own routes: Node's request is then another one, with another method, other fields and another body.
 * - Check: the class of the request must be neither the runtime's own nor a subclass of that without its own `body`.
 * - Otherwise: the request is read as a web `Request`; from Node's request, only the client's address is taken.
 * - Test: test/runtimes/node/internals/srvx.test.ts, "a request that an app has built".
 *
 * The method `_toNodeResponse()` of a response.
 * - Rests on: srvx's server sends what this method returns, instead of reading the web interface of the response. It
 *   writes the head, and then calls `pipe(res)` on the body.
 * - Check: the method only returns data, and the web interface of the response works without it. `pipe` checks that
 *   the head has been written.
 * - Otherwise: the server reads `status`, `headers` and `body`, as it does with any `Response`. `pipe` writes the head.
 * - Test: test/runtimes/node/internals/srvx.test.ts, "a server that uses the methods of a web Response" and "the server
 *   only calls `pipe` of the body". test/work/hosts.test.ts tests that `_toNodeResponse()` is used.
 *
 * The class of a response.
 * - Rests on: @hono/node-server replaces the global `Response` by a subclass, and h3 then accepts only its instances. An
 *   app may set it to srvx's `FastResponse`, which takes each native response for an instance. A class whose prototype
 *   is another class extends that class.
 * - Check: when a response is made, `instanceof` shows whether the global class accepts the proxy's class.
 * - Otherwise: the response is made with the global class, of bytes or of a web stream (see hono.ts).
 * - Test: test/runtimes/node/internals/srvx.test.ts, "a class that has replaced the global Response".
 */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { HeaderList } from "../../../src/fields/headers.ts";

/** Node's own request and response under a web `Request`. */
export interface NodeSide {
  readonly req: IncomingMessage;
  /** The response to write to, if the server accepts a body that writes itself. */
  readonly res: ServerResponse | undefined;
  /** Whether the body may be read from `req` instead of the web `Request`. */
  readonly ownBody: boolean;
  /** Whether it is known that no other code has used the body of the web `Request`. */
  readonly isFresh: boolean;
  /** Whether an app has built the web `Request`, which is then another request than Node's. */
  readonly isRebuilt: boolean;
}

/** The members of `request.runtime.node` under srvx. */
interface NodePair {
  req?: IncomingMessage;
  res?: ServerResponse;
  maxRequestBodySize?: number | undefined;
}

/** Returns Node's request and response under a request of srvx; undefined for a request of another server. */
export function srvxSideOf(request: Request): NodeSide | undefined {
  const pair = (request as { runtime?: { node?: NodePair } }).runtime?.node;
  // Other servers may use these names for other objects: only Node's request has `rawHeaders`.
  if (pair?.req?.rawHeaders === undefined) return undefined;
  const ownBody = "maxRequestBodySize" in pair && pair.maxRequestBodySize === undefined;
  return { req: pair.req, res: pair.res, ownBody, isFresh: false, isRebuilt: isRebuilt(request) };
}

function isRebuilt(request: Request): boolean {
  const own: object = findNatives().Request.prototype;
  const prototype: object = Object.getPrototypeOf(request) as object;
  if (prototype === own) return true;
  // srvx may replace the global `Request` by a subclass without its own members.
  return !Object.hasOwn(prototype, "body") && Object.prototype.isPrototypeOf.call(own, prototype);
}

/** The parts that srvx's server takes from a response. */
export interface SrvxParts {
  readonly status: number;
  readonly statusText: string;
  readonly headers: HeaderList;
  body: SrvxBody | ReadableStream<Uint8Array> | null;
}

/** A body that writes itself: srvx's server calls `pipe` instead of reading a stream. */
export interface SrvxBody {
  /** Writes the body and ends the response; called after the head has been written. */
  pipe(res: ServerResponse): void;
  /** Drops the body; called instead of `pipe` if the client has disconnected, or sent HEAD. */
  destroy(): void;
}

interface Native {
  readonly Request: typeof Request;
  readonly Response: typeof Response;
}

let native: Native | undefined;

/**
 * Returns the runtime's own classes, even if a server has replaced the globals. They are not read before the first request:
 * reading them makes Node load its whole `fetch`, which takes longer than to load Fetchway. By then, the server has read them.
 */
export function findNatives(): Native {
  if (native === undefined) {
    native = { Request: findNative(globalThis.Request), Response: findNative(globalThis.Response) };
    Object.setPrototypeOf(SrvxResponse.prototype, native.Response.prototype);
  }
  return native;
}

function findNative<Class extends object>(current: Class): Class {
  const parent = Object.getPrototypeOf(current) as Class & { prototype?: object };
  return parent.prototype === undefined ? current : findNative(parent);
}

/** Whether the server accepts `SrvxResponse`: a server that replaced the global `Response` may not. */
export function acceptsOwnResponses(): boolean {
  const { Response: Current } = globalThis;
  return Current === findNatives().Response || SrvxResponse.prototype instanceof Current;
}

/** A response whose parts srvx's server takes and sends. For `instanceof`, it is a `Response` of the runtime. */
export abstract class SrvxResponse {
  constructor() {
    // Sets the prototype of this class, if this is its first instance.
    findNatives();
  }

  /** Returns the parts to send. */
  protected abstract toSrvxParts(): SrvxParts;

  /** Returns the parts to send; srvx's server calls it. */
  _toNodeResponse(): SrvxParts {
    return this.toSrvxParts();
  }
}
