/**
 * What @hono/node-server does not document of its requests and responses.
 *
 * The symbols of a request. Hono documents Node's request as `c.env.incoming`, which a `Request` alone does not lead to.
 * - Rests on: the request has Node's request under a symbol with the description `incomingKey`, and further symbols once
 *   its body has been used or a native `Request` has been made of it.
 * - Check: the value must look like a message of Node's, and every other symbol must be one that has nothing to do with
 *   the body.
 * - Otherwise: without the first symbol, the request is read as a web `Request`; with an unknown symbol, its body is.
 * - Test: test/internals.hono.node.test.ts, "a request without the symbols" and "a symbol that is not known".
 *
 * How a response is written.
 * - Rests on: a head that is a plain object is passed to Node's `writeHead` as it is. A response whose `body` was read
 *   before is sent with its first chunk, and Node then writes the head as latin1.
 * - Check: a plain object is also a valid `HeadersInit`, and reading `body` has no other effect: nothing else depends on
 *   either.
 * - Otherwise: the server makes `Headers` of the object, which costs time, and lower-cases the names. The bytes of
 *   `obs-text` in a head that is sent alone are encoded as UTF-8.
 * - Test: test/hosts.hono.test.ts, which compares names and bytes of response fields as the client receives them.
 */
import type { IncomingMessage } from "node:http";
import type { HeaderList } from "../../../src/transport.ts";
import type { NodeSide } from "./srvx.ts";

/** The descriptions of the symbols that a request may have while no code has used its body. */
const HARMLESS: ReadonlySet<string | undefined> = new Set([
  "incomingKey",
  "methodKey",
  "urlKey",
  "headersKey",
  "abortController",
  "abortReason",
]);

/** Returns Node's request under a request of @hono/node-server's; undefined for any other request. */
export function honoSideOf(request: Request): NodeSide | undefined {
  let req: IncomingMessage | undefined;
  let isFresh = true;
  for (const symbol of Object.getOwnPropertySymbols(request)) {
    const { description } = symbol;
    if (description === "incomingKey") {
      req = (request as unknown as Record<symbol, IncomingMessage>)[symbol];
    } else if (!HARMLESS.has(description)) isFresh = false;
  }
  return req?.rawHeaders && { req, res: undefined, ownBody: isFresh, isFresh };
}

/** The number of list entries above which `toRecord` gives up: it compares each name with all others. */
const COMPARED = 2 * 64;

/** Returns header fields as a record; undefined if a name occurs twice, and for very many fields. */
export function toRecord(list: HeaderList): Record<string, string> | undefined {
  if (list.length > COMPARED) return undefined;
  const record: Record<string, string> = {};
  for (let i = 0; i < list.length; i += 2) {
    const name = list[i] as string;
    // `in` also finds `__proto__`, which a record cannot have as a name.
    if (name in record || isAmong(list, i, name)) return undefined;
    record[name] = list[i + 1] as string;
  }
  return record;
}

/** Whether a name occurs among the fields before an index, in upper or lower case. */
function isAmong(list: HeaderList, end: number, name: string): boolean {
  for (let i = 0; i < end; i += 2) {
    const other = list[i] as string;
    if (other.length === name.length && other.toLowerCase() === name.toLowerCase()) return true;
  }
  return false;
}

/** Makes the server write the head together with the first chunk of the body. */
export function sendHeadWithBody(response: Response): void {
  void response.body;
}
