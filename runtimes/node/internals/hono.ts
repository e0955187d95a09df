/**
 * Undocumented properties of the requests and responses of @hono/node-server.
 *
 * The symbols of a request. Hono documents Node's request as `c.env.incoming`, which cannot be reached from a `Request`.
 * - Rests on: the request has Node's request under a symbol with the description `incomingKey`, and gets further symbols
 *   when its body is used, or when a native `Request` is made of it.
 * - Check: the value must have `rawHeaders`, as Node's request does, and every other symbol must be one of `HARMLESS`,
 *   which have nothing to do with the body.
 * - Otherwise: without the first symbol, the request is read as a web `Request`; with an unknown symbol, only its body is read
 *   from the web `Request`.
 * - Test: test/runtimes/node/internals/hono.test.ts, "a request without the symbols" and "a symbol that is not known".
 *
 * How a response is written.
 * - Rests on: a head that is a plain object is passed unchanged to Node's `writeHead`. If code has read the property `body` of
 *   a response, the server sends the head together with the first chunk, and Node then writes the head as latin1.
 * - Check: none is needed. A plain object is also a valid `HeadersInit`, and reading `body` has no other effect.
 * - Otherwise: the server makes `Headers` of the object, which costs time: names are lower-cased, and a missing
 *   `Content-Type` is added. The bytes of `obs-text` in a head that is sent alone are encoded as UTF-8.
 * - Test: the suite on the host `hono`, "response field names keep their case", "a response without Content-Type stays
 *   without one" and "latin-1 bytes in response fields stay single bytes when the body arrives late".
 *
 * Repeated fields of a response. A record has each name once, and `Headers` joins fields and changes the case of names.
 * - Rests on: Node's `writeHead` writes one line for each value of an array. So the server gets a record of arrays that is also
 *   iterable. `Headers` iterates over the record, and so has each field. The server loops over the names of the record, and
 *   does not see that it is iterable.
 * - Check: when the global `Response` is a new class, a response that is made for this check must store the record under the
 *   symbol `cache`, unchanged, and its `headers` must have each field. Over HTTP/2, only `Set-Cookie` is an array: Node refuses
 *   two lines of some fields.
 * - Otherwise: the fields are `Headers`. The server then changes the head as above.
 * - Test: test/runtimes/node/internals/hono.test.ts, "responses made by a class that", with a class that copies the record and
 *   a class that stores it elsewhere. That lines are kept is tested in the suite on the host `hono` and in
 *   test/runtimes/node/apps.hono.test.ts.
 *
 * A response for srvx's or h3's server, beside which @hono/node-server has replaced the global `Response`: h3 then takes only
 * instances of the new class for responses.
 * - Rests on: the symbol `cache`, as above, and srvx's method `_toNodeResponse()` (srvx.ts).
 * - Check: the class must have passed the check of repeated fields. When srvx's server asks for the parts, the response must
 *   have the symbol; its fields are sent as they arrived only if the same record is stored.
 * - Otherwise: the server reads the web interface of the response: fields are joined, with names in lower case.
 * - Test: test/runtimes/node/apps.hono.test.ts, "sends the lines of repeated response fields unchanged" and "an h3 app in
 *   the same process as @hono/node-server can add a cookie, and sends the whole body".
 *
 * A body that writes itself to Node's response. The server would read it from a web stream, chunk by chunk.
 * - Rests on: a response has its status, body and head under a symbol with the description `cache`, until other code uses
 *   its body. The server then writes this head, calls `getReader` on this body, and ends the response when `read` returns
 *   the end. The response belongs to the connection's `_httpMessage` (see pipelining.ts).
 * - Check: when `getReader` is called, the response must still have the symbol, which shows that no other code has used its
 *   body. The response on the connection must be the one to this request, and its head must be written.
 * - Otherwise: `getReader` is the stream's own method.
 * - Test: test/runtimes/node/internals/hono.test.ts, "a body that other code reads after the head was written" and "pipelined
 *   responses". That the server does not read the stream is tested there, too.
 */
import type { IncomingMessage } from "node:http";
import { type HeaderList, toHeaderList, toHeaders } from "../../../src/fields/headers.ts";
import type { NodeSide, SrvxParts } from "./srvx.ts";

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

/** The symbol under which the last request had Node's request. Each copy of the server's module has its own symbol. */
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
  // A GET or HEAD has no body, so do not list the request's symbols: that would only allocate memory.
  const { method } = request;
  const isFresh = method !== "GET" && method !== "HEAD" && hasFreshBody(request);
  return req?.rawHeaders && { req, res: undefined, ownBody: isFresh, isFresh, isRebuilt: false };
}

/** Whether the symbols of a request show that no code has used its body. */
function hasFreshBody(request: Request): boolean {
  return Object.getOwnPropertySymbols(request).every(({ description }) =>
    HARMLESS.has(description),
  );
}

/** The number of list entries above which `toRecord` gives up: it compares each name with all others. */
const MAX_COMPARED = 2 * 64;

/**
 * Returns header fields for the constructor of a `Response`.
 * @param hasLines whether the client's protocol has lines, as HTTP/1.1 has, so that repeated fields should stay separate
 */
export function toFields(list: HeaderList, hasLines: boolean): HeadersInit {
  return toRecord(list) ?? (keepsRecords() ? toLines(list, hasLines) : toHeaders(list));
}

/** Returns header fields as a record; undefined if a name occurs twice, and for very many fields. */
export function toRecord(list: HeaderList): Record<string, string> | undefined {
  if (list.length > MAX_COMPARED) return undefined;
  const record: Record<string, string> = {};
  for (let i = 0; i < list.length; i += 2) {
    const name = list[i] as string;
    // `in` also finds `__proto__`, which cannot be a name in a plain object.
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

/**
 * Returns header fields as a record with the values of each name. A name has the case of its first field. Code that iterates
 * over the result gets each field. Only `Set-Cookie` has several values if `hasLines` is false.
 */
function toLines(list: HeaderList, hasLines: boolean): HeadersInit {
  // Without a prototype, `__proto__` is a name like any other.
  const lines = Object.create(null) as Record<string, string | string[]>;
  const names = new Map<string, string>();
  for (const [own, value] of pairsOf(list)) {
    const lower = own.toLowerCase();
    const name = names.get(lower) ?? own;
    const before = lines[name];
    if (before === undefined) {
      names.set(lower, name);
      lines[name] = value;
    } else if (Array.isArray(before)) before.push(value);
    else lines[name] = hasLines || lower === "set-cookie" ? [before, value] : `${before}, ${value}`;
  }
  return Object.defineProperty(lines as unknown as HeadersInit & object, Symbol.iterator, {
    value: () => pairsOf(list),
  });
}

function* pairsOf(list: HeaderList): Generator<[name: string, value: string], void> {
  for (let i = 0; i < list.length; i += 2) yield [list[i] as string, list[i + 1] as string];
}

/** The global class of responses that `keepsRecords` has tried last. */
let tried: typeof Response | undefined;
let keeps = false;

/** Whether the global class of responses stores a record unchanged, and makes `Headers` of it by iterating. */
function keepsRecords(): boolean {
  const { Response: Current } = globalThis;
  if (Current === tried) return keeps;
  tried = Current;
  const fields = toLines(["Set-Cookie", "a=1", "Set-Cookie", "b=2"], true);
  const response = new Current(null, { headers: fields });
  keeps = cacheOf(response)?.[2] === fields && response.headers.getSetCookie().length === 2;
  return keeps;
}

/** Makes the server write the head together with the first chunk of the body, by reading `body`: see the top of this file. */
export function sendHeadWithBody(response: Response): void {
  void response.body;
}

/** The runtime's own reader of a stream, or a stand-in for it while the body writes itself. */
type BodyReader = Pick<ReadableStreamDefaultReader<Uint8Array>, "read" | "closed" | "cancel">;

/**
 * Makes the body of a response write itself when the server asks for a reader of the stream.
 * @param response the response of the server's class that was made with the stream
 * @param write writes the body; returns false if the server must read the stream. Cancelling the stream must cancel the body
 */
export function writeForServer(
  response: Response,
  stream: ReadableStream<Uint8Array>,
  write: () => boolean,
): void {
  const getOwnReader = stream.getReader.bind(stream) as (...options: unknown[]) => BodyReader;
  const getReader = (...options: unknown[]): BodyReader => {
    if (cacheOf(response) === undefined || !write()) return getOwnReader(...options);
    // The body ends the response by itself, so the server needs to know neither the end of the stream nor its chunks.
    const pending = new Promise<never>(() => {});
    return { closed: pending, read: () => pending, cancel: (reason) => stream.cancel(reason) };
  };
  Object.assign(stream, { getReader });
}

/** The parts of a response of @hono/node-server, as long as no code has used its body. */
type Cache = readonly [status: number, body: SrvxParts["body"], fields: unknown];

/** The symbol under which the last response had its parts. Each copy of the server's module has its own symbol. */
let cacheKey: symbol | undefined;

/** Returns the parts of a response; undefined if other code has used its body, and for other classes. */
function cacheOf(response: Response): Cache | undefined {
  if (cacheKey === undefined || !(cacheKey in response)) {
    cacheKey = Object.getOwnPropertySymbols(response).find(
      ({ description }) => description === "cache",
    );
  }
  return cacheKey && (response as unknown as Record<symbol, Cache>)[cacheKey];
}

/**
 * Whether other code has used the body of a response. Reading `bodyUsed` of a response with cached parts would replace the
 * parts by a native response, whose body the server reads chunk by chunk.
 */
export function isBodyUsed(response: Response): boolean {
  return cacheOf(response) === undefined && response.bodyUsed;
}

/**
 * Makes srvx's server send the header fields of a response of @hono/node-server's class as they arrived, unless other code
 * has read or changed them.
 * @param head the parts from which the response was made
 */
export function sendFromSrvx(response: Response, head: Omit<SrvxParts, "body">): void {
  if (!keepsRecords()) return;
  const fields = cacheOf(response)?.[2];
  const toParts = (): SrvxParts => {
    const cache = cacheOf(response);
    const { status, statusText } = cache === undefined ? response : head;
    const isSame = cache !== undefined && cache[2] === fields;
    const headers = isSame ? head.headers : toHeaderList(response.headers);
    return { status, statusText, headers, body: cache === undefined ? response.body : cache[1] };
  };
  Object.defineProperty(response, "_toNodeResponse", { value: toParts });
}
