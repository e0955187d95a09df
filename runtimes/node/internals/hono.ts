/**
 * Undocumented properties of the requests and responses of @hono/node-server.
 *
 * The symbols of a request. Hono documents Node's request as `c.env.incoming`, which cannot be reached from a `Request`.
 * - Rests on: the request has Node's request under a symbol with the description `incomingKey`, and gets further symbols
 *   when its body is used, or when a native `Request` is made of it.
 * - Check: the value must have `rawHeaders`, as Node's request does, and every other symbol must be one of `HARMLESS`,
 *   which have nothing to do with the body.
 * - Otherwise: without the first symbol, the request is read as a web `Request`; with an unknown symbol, only its body is.
 * - Test: test/internals.hono.node.test.ts, "a request without the symbols" and "a symbol that is not known".
 *
 * How a response is written.
 * - Rests on: a head that is a plain object is passed to Node's `writeHead` as it is. A response whose `body` was read
 *   before is sent with its first chunk, and Node then writes the head as latin1.
 * - Check: none is needed. A plain object is also a valid `HeadersInit`, and reading `body` has no other effect.
 * - Otherwise: the server makes `Headers` of the object, which costs time: names are lower-cased, and a missing
 *   `Content-Type` is added. The bytes of `obs-text` in a head that is sent alone are encoded as UTF-8.
 * - Test: test/hosts.hono.test.ts, "the case of response field names is kept", "a response without content-type gets none"
 *   and "latin-1 bytes in response fields stay single bytes when the body arrives late".
 *
 * A body that writes itself to Node's response. The server would read it from a web stream, chunk by chunk.
 * - Rests on: a response has its status, body and head under a symbol with the description `cache`, until other code uses
 *   its body. The server then writes this head, calls `getReader` on this body, and ends the response when `read` returns
 *   the end. The response belongs to the connection's `_httpMessage` (see pipelining.ts).
 * - Check: when `getReader` is called, the response must have the symbol, so that no other code has its body. The response
 *   on the connection must be the one to this request, and its head must be written.
 * - Otherwise: `getReader` is the stream's own method.
 * - Test: test/internals.hono.node.test.ts, "a body that other code reads after the head was written" and "pipelined
 *   responses". That the server does not read the stream is tested there, too.
 */
import type { IncomingMessage } from "node:http";
import type { HeaderList } from "../../../src/fields/headers.ts";
import type { NodeSide } from "./srvx.ts";

/**
 * Descriptions of the symbol properties that a request may have even if no code has used its body. Any other symbol means
 * that some code may have used the body.
 */
const HARMLESS: ReadonlySet<string | undefined> = new Set([
  "incomingKey",
  "methodKey",
  "urlKey",
  "headersKey",
  "abortController",
  "abortReason",
]);

/** The symbol under which the last request had Node's request. Each copy of the server's module has its own. */
let incomingKey: symbol | undefined;

/** Returns Node's request under a request of @hono/node-server; undefined for a request of another server. */
export function honoSideOf(request: Request): NodeSide | undefined {
  if (incomingKey === undefined || !(incomingKey in request)) {
    incomingKey = Object.getOwnPropertySymbols(request).find(
      ({ description }) => description === "incomingKey",
    );
  }
  if (incomingKey === undefined) return undefined;
  const req = (request as unknown as Record<symbol, IncomingMessage>)[incomingKey];
  // A GET or HEAD has no body: listing its symbols would only allocate memory.
  const { method } = request;
  const isFresh = method !== "GET" && method !== "HEAD" && hasFreshBody(request);
  return req?.rawHeaders && { req, res: undefined, ownBody: isFresh, isFresh, isRebuilt: false };
}

/** Whether no code has used the body of a request, as far as its symbols tell. */
function hasFreshBody(request: Request): boolean {
  return Object.getOwnPropertySymbols(request).every(({ description }) =>
    HARMLESS.has(description),
  );
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

/** Whether a name occurs among the fields before an index; upper and lower case count as equal. */
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

/** The runtime's own reader of a stream, or one that stands for a body that writes itself. */
type BodyReader = Pick<ReadableStreamDefaultReader<Uint8Array>, "read" | "closed" | "cancel">;

/**
 * Makes the body of a response write itself when the server asks for a reader of the stream.
 * @param response the response of the server's class that was made with the stream
 * @param write writes the body, which cancelling the stream cancels; returns false if the server must read the stream
 */
export function writeForServer(
  response: Response,
  stream: ReadableStream<Uint8Array>,
  write: () => boolean,
): void {
  const getOwnReader = stream.getReader.bind(stream) as (...options: unknown[]) => BodyReader;
  const getReader = (...options: unknown[]): BodyReader => {
    if (!hasCache(response) || !write()) return getOwnReader(...options);
    // The body ends the response by itself, so the server needs to know neither the end of the stream nor its chunks.
    const pending = new Promise<never>(() => {});
    return { closed: pending, read: () => pending, cancel: (reason) => stream.cancel(reason) };
  };
  Object.assign(stream, { getReader });
}

/** The symbol under which the last response had its parts. Each copy of the server's module has its own. */
let cacheKey: symbol | undefined;

/** Whether a response has its parts still, so that no code has used its body. */
function hasCache(response: Response): boolean {
  if (cacheKey !== undefined && cacheKey in response) return true;
  cacheKey = Object.getOwnPropertySymbols(response).find(
    ({ description }) => description === "cache",
  );
  return cacheKey !== undefined;
}
