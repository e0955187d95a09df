import type { IncomingHttpHeaders, IncomingMessage } from "node:http";
import { toHeaderList } from "../../src/fields/headers.ts";
import type { HeaderList } from "../../src/transport.ts";
import { isHttp2 } from "./message.ts";

const PROBE = "fetchway-probe";
let isAsked = false;

/** Answers as the object behind it does, and notes whether it is asked for the probe. */
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
 * Whether the `Headers` of a server's request still answer `get` from Node's parsed headers.
 *
 * srvx and @hono/node-server do so until their `Headers` have to hold all fields themselves, as after every
 * change and every iteration. While `get` is called here, an observer stands in for Node's headers. It never
 * lies: a server that copies or keeps what it is given at that moment has the true fields.
 */
function readsNodes(headers: Headers, req: IncomingMessage): boolean {
  const own = req.headers;
  const observed = new Proxy(own, observer);
  isAsked = false;
  // In HTTP/2 `headers` is a getter of the class, without a setter.
  const isHidden = req.httpVersionMajor !== 1 && isHttp2(req);
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
 * The fields of a server's request as a handler sees them by `get`.
 *
 * Middleware in Connect's style changes `req.headers`, other middleware `request.headers`. Iteration would
 * not do: srvx and @hono/node-server then build their `Headers` of `rawHeaders`, without the former changes.
 */
export function visibleHeaders({ headers }: Request, req: IncomingMessage): HeaderList {
  return readsNodes(headers, req) ? messageHeaders(req, headers) : toHeaderList(headers);
}

/**
 * The fields of a message as they came, with what middleware has changed in
 * `req.headers` since: that is where Express and Fastify change them.
 * @param seen what the handler sees, where that is more than Node's headers
 */
export function messageHeaders(req: IncomingMessage, seen?: Headers): HeaderList {
  const { rawHeaders, headers } = req;
  let i = 0;
  for (const name in headers) {
    // Where a field repeats, what Node made of it is compared with its lines.
    if (headers[name] !== rawHeaders[i + 1] || rawHeaders[i]?.toLowerCase() !== name) {
      return withChanges(req, seen);
    }
    i += 2;
  }
  return i === rawHeaders.length ? rawHeaders : withChanges(req, seen);
}

/** Fields of which Node keeps the first line; servers read the others from `rawHeaders`. */
const FIRST_COUNTS: ReadonlySet<string> = new Set([
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

const TOKEN = /^[!#$%&'*+.^`|~\w-]+$/;

/** Middleware without types sets numbers and null, too. */
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
    // Node has no field of this name, because every object has such a property.
    if (lower === "__proto__") continue;
    if (seen === undefined || length === 1 || !FIRST_COUNTS.has(lower)) {
      values.set(lower, valueOf(lower));
    } else last.push(lower);
  }
  const added: HeaderList = [];
  for (const name of Object.keys(headers)) {
    if (!lines.has(name.toLowerCase())) pushAll(added, name, valueOf(name));
  }
  for (const lower of last) {
    // A `get` of these makes srvx build its Headers of `rawHeaders`, and later ones show no change any more.
    // So it comes last, and only where Node's value is not the first line, which would mean: unchanged.
    const before = lines.get(lower) as string[];
    values.set(lower, headers[lower] === before[0] ? before : valueOf(lower));
  }

  // Asked once for each name: to compare all lines of a field for each of its lines would take quadratic time.
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
      // That stands for the other lines, too.
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

/** Whether the lines of a field, as they came, say what is seen of it now. */
function isKept(lower: string, lines: string[], now: Value): boolean {
  // Node keeps the first of several Host; cleanRequest has to see them all to refuse them.
  if (lower === "__proto__" || (lower === "host" && lines.length > 1)) return true;
  if (typeof now === "object") return lines.join("\n") === now?.join("\n");
  return now === lines.join(", ") || now === lines.join("; ");
}

function pushAll(list: HeaderList, name: string, value: Value): void {
  if (value === undefined || value === null) return;
  for (const each of typeof value === "object" ? value : [value]) list.push(name, `${each}`);
}

/** Names are compared each with all others: with more than 64 fields, `Headers` takes less time. */
const COMPARED = 2 * 64;

/**
 * Fields as a record, which @hono/node-server passes to Node as it is; undefined where one has several lines, and
 * for very many fields.
 */
export function toRecord(list: HeaderList): Record<string, string> | undefined {
  if (list.length > COMPARED) return undefined;
  const record: Record<string, string> = {};
  for (let i = 0; i < list.length; i += 2) {
    const name = list[i] as string;
    // `__proto__`, too, is no name for a record.
    if (name in record || isAmong(list, i, name)) return undefined;
    record[name] = list[i + 1] as string;
  }
  return record;
}

/** Whether the name is among those before the index, in whatever case. */
function isAmong(list: HeaderList, end: number, name: string): boolean {
  for (let i = 0; i < end; i += 2) {
    const other = list[i] as string;
    if (other.length === name.length && other.toLowerCase() === name.toLowerCase()) return true;
  }
  return false;
}
