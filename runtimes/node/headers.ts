import type { IncomingHttpHeaders, IncomingMessage } from "node:http";
import type { HeaderList } from "../../src/transport.ts";

const PROBE = "fetchway-probe";
const PROBED = Object.freeze({ [PROBE]: "1" });

/**
 * Whether the `Headers` of a server's request are still what came in.
 *
 * Both servers answer `get` from Node's parsed headers until somebody needs
 * more of `Headers`, as every change does. So a name that Node's headers have
 * only for this moment is seen only where nothing was changed.
 */
export function headersUntouched(request: Request, req: IncomingMessage): boolean {
  const own = req.headers;
  req.headers = PROBED;
  try {
    return request.headers.get(PROBE) === "1";
  } finally {
    req.headers = own;
  }
}

/**
 * The fields of a message as they came, with what middleware has changed in
 * `req.headers` since: that is where Express and Fastify change them.
 */
export function messageHeaders({ rawHeaders, headers }: IncomingMessage): HeaderList {
  for (let i = 0; i < rawHeaders.length; i += 2) {
    if (headers[(rawHeaders[i] as string).toLowerCase()] !== rawHeaders[i + 1]) {
      return withChanges(rawHeaders, headers);
    }
  }
  let names = 0;
  for (const _ in headers) names += 2;
  return names === rawHeaders.length ? rawHeaders : withChanges(rawHeaders, headers);
}

/** Node keeps no field of this name, and only the first of several `Host`, which must be seen to be refused. */
function isNotNodes(lower: string): boolean {
  return lower === "__proto__" || lower === "host";
}

function withChanges(raw: HeaderList, headers: IncomingHttpHeaders): HeaderList {
  const values = new Map<string, string[]>();
  for (let i = 0; i < raw.length; i += 2) {
    const lower = (raw[i] as string).toLowerCase();
    const lines = values.get(lower);
    if (lines === undefined) values.set(lower, [raw[i + 1] as string]);
    else lines.push(raw[i + 1] as string);
  }
  const list: HeaderList = [];
  /** Asked once for each name: to join all lines of a field for each of its lines takes quadratic time. */
  const unchanged = new Map<string, boolean>();
  for (let i = 0; i < raw.length; i += 2) {
    const name = raw[i] as string;
    const lower = name.toLowerCase();
    const now = headers[lower];
    let stays = unchanged.get(lower);
    if (stays === undefined) {
      stays = isNotNodes(lower) || isUnchanged(values.get(lower) as string[], now);
      unchanged.set(lower, stays);
      if (!stays && now !== undefined) pushAll(list, name, now);
    }
    if (stays) list.push(name, raw[i + 1] as string);
  }
  for (const [name, value] of Object.entries(headers)) {
    if (value !== undefined && !values.has(name.toLowerCase())) pushAll(list, name, value);
  }
  return list;
}

/** Whether Node would make just this of the lines of a field. */
function isUnchanged(lines: string[], now: string | string[] | undefined): boolean {
  if (Array.isArray(now)) return lines.join("\n") === now.join("\n");
  return now === lines.join(", ") || now === lines.join("; ");
}

function pushAll(list: HeaderList, name: string, value: string | string[]): void {
  for (const each of Array.isArray(value) ? value : [value]) list.push(name, each);
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
