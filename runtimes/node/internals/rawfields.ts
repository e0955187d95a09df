/**
 * The header fields of a request as the client sent them, with the changes of middleware.
 *
 * Node's parsed headers.
 * - Rests on: `headers` has its names in the order in which `rawHeaders` has them. Middleware in Connect's style changes
 *   `headers` and leaves `rawHeaders` as it was.
 * - Check: each name and value of `headers` is compared with the entries of `rawHeaders`.
 * - Otherwise: the list is built from both, name by name.
 * - Test: test/runtimes/node/headers.test.ts.
 *
 * The `Headers` of srvx (also under h3) and @hono/node-server.
 * - Rests on: `get` answers from Node's parsed headers, until the `Headers` have to hold all fields themselves, as after
 *   every change and every iteration.
 * - Check: `readsFromNode` calls `get` while Node's headers are in a `Proxy` object, which records whether `get` reads them.
 * - Otherwise: the fields are read by iterating the `Headers`.
 * - Test: test/runtimes/node/internals/rawfields.test.ts and test/runtimes/node/headers.keepers.test.ts.
 */
import type { IncomingHttpHeaders, IncomingMessage } from "node:http";
import { isName, toHeaderList, type HeaderList } from "../../../src/fields/headers.ts";
import { TOKEN } from "../../../src/fields/token.ts";

const PROBE = "fetchway-probe";
let isAsked = false;

/** Returns the values of Node's headers, and records in `isAsked` whether the field `PROBE` is read. */
const observer: ProxyHandler<IncomingHttpHeaders> = {
  get(headers, name) {
    if (name === PROBE) isAsked = true;
    return headers[name as string];
  },
  has(headers, name) {
    if (name === PROBE) isAsked = true;
    return name in headers;
  },
  getOwnPropertyDescriptor(headers, name) {
    if (name === PROBE) isAsked = true;
    return Reflect.getOwnPropertyDescriptor(headers, name);
  },
};

/**
 * Whether the `Headers` of a server's request still answer `get` from Node's parsed headers. The observer returns the true
 * values, because a server may copy fields during this check, or keep the observer.
 */
function readsFromNode(headers: Headers, req: IncomingMessage): boolean {
  const own = req.headers;
  const observed = new Proxy(own, observer);
  isAsked = false;
  // In HTTP/2 `headers` is a getter of the class, without a setter.
  const isHidden = req.httpVersionMajor !== 1 && "stream" in req;
  if (isHidden) Object.defineProperty(req, "headers", { value: observed, configurable: true });
  else req.headers = observed;
  try {
    headers.get(PROBE);
  } finally {
    if (isHidden) Reflect.deleteProperty(req, "headers");
    else req.headers = own;
  }
  return isAsked;
}

/**
 * Returns the fields of a server's request with the values that `request.headers.get()` returns to a handler.
 *
 * Some middleware changes `req.headers`, and some `request.headers`. Iterating `request.headers` would lose the changes of
 * `req.headers`, because srvx and @hono/node-server then build their `Headers` from `rawHeaders`.
 */
export function visibleHeaders({ headers }: Request, req: IncomingMessage): HeaderList {
  return readsFromNode(headers, req) ? messageHeaders(req, headers) : toHeaderList(headers);
}

/**
 * Returns the fields of a message as they arrived, with the changes that middleware has made in `req.headers`, as it does
 * under Express and Fastify.
 * @param seen the `Headers` that the handler sees, if their values may differ from `req.headers`
 */
export function messageHeaders(req: IncomingMessage, seen?: Headers): HeaderList {
  const { rawHeaders, headers } = req;
  let i = 0;
  for (const name in headers) {
    // A repeated field is one property of `headers`, so it differs here: `withChanges` compares it with all of its lines.
    if (headers[name] !== rawHeaders[i + 1] || !isName(rawHeaders[i] ?? "", name)) {
      return withChanges(req, seen);
    }
    i += 2;
  }
  return i === rawHeaders.length ? rawHeaders : withChanges(req, seen);
}

/** Fields of which Node keeps only the first line, whereas srvx joins all lines of `rawHeaders`. */
const FIRST_LINE_ONLY: ReadonlySet<string> = new Set([
  "age",
  "authorization",
  "content-length",
  "content-type",
  "etag",
  "expires",
  "from",
  "host",
  "if-modified-since",
  "if-unmodified-since",
  "last-modified",
  "location",
  "max-forwards",
  "proxy-authorization",
  "referer",
  "retry-after",
  "server",
  "user-agent",
]);

/** The value of a field. Middleware without type checks also sets numbers and null. */
type Value = string | readonly string[] | number | null | undefined;

function withChanges(
  { rawHeaders, headers }: IncomingMessage,
  seen: Headers | undefined,
): HeaderList {
  const valueOf = (name: string): Value =>
    seen === undefined || !TOKEN.test(name) ? headers[name] : (seen.get(name) ?? undefined);
  const lines = linesOf(rawHeaders);
  const values = new Map<string, Value>();
  const last: string[] = [];
  for (const [lower, { length }] of lines) {
    // Node's `headers` never has this field, so `isKept` keeps its lines. (Every object has a property of this name.)
    if (lower === "__proto__") continue;
    if (seen === undefined || length === 1 || !FIRST_LINE_ONLY.has(lower)) {
      values.set(lower, valueOf(lower));
    } else last.push(lower);
  }
  const added: HeaderList = [];
  for (const name of Object.keys(headers)) {
    if (!lines.has(name.toLowerCase())) pushAll(added, name, valueOf(name));
  }
  for (const lower of last) {
    // If `get` is called with one of these names, srvx builds its `Headers` from `rawHeaders`, and later calls of `get` no
    // longer show the changes of middleware. So call it for these names last, and only if Node's value is not that of the
    // first line.
    const before = lines.get(lower) as string[];
    values.set(lower, headers[lower] === before[0] ? before : valueOf(lower));
  }

  // Decide once for each name: comparing all lines of a field for each of its lines would take quadratic time.
  const kept = new Set<string>();
  for (const [lower, each] of lines) if (isKept(lower, each, values.get(lower))) kept.add(lower);
  const list: HeaderList = [];
  for (let i = 0; i < rawHeaders.length; i += 2) {
    const name = rawHeaders[i] as string;
    const lower = name.toLowerCase();
    if (kept.has(lower)) {
      list.push(name, rawHeaders[i + 1] as string);
    } else {
      pushAll(list, name, values.get(lower));
      // The new value replaces all lines of the field.
      values.delete(lower);
    }
  }
  return [...list, ...added];
}

function linesOf(raw: HeaderList): Map<string, string[]> {
  const lines = new Map<string, string[]>();
  for (let i = 0; i < raw.length; i += 2) {
    const lower = (raw[i] as string).toLowerCase();
    const before = lines.get(lower);
    if (before === undefined) lines.set(lower, [raw[i + 1] as string]);
    else before.push(raw[i + 1] as string);
  }
  return lines;
}

/** Whether a field still has the value of its received lines: middleware has not changed it. */
function isKept(lower: string, lines: string[], now: Value): boolean {
  // Node's `headers` has only the first of several Host fields, but `cleanRequestHeaders` must see all of them: it refuses
  // a request with more than one.
  if (lower === "__proto__" || (lower === "host" && lines.length > 1)) return true;
  if (typeof now === "object") return lines.join("\n") === now?.join("\n");
  return now === lines.join(", ") || now === lines.join("; ");
}

function pushAll(list: HeaderList, name: string, value: Value): void {
  if (value === undefined || value === null) return;
  for (const each of typeof value === "object" ? value : [value]) list.push(name, `${each}`);
}
