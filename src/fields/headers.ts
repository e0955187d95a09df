import type { HeaderList } from "../transport.ts";

/**
 * Fields that describe one connection, not the message (RFC 9110 §7.6.1). They include `Proxy-Connection`, which is not
 * standard, and `HTTP2-Settings`, which belongs to an upgrade to HTTP/2.
 */
export const HOP_BY_HOP: readonly string[] = [
  "connection",
  "http2-settings",
  "keep-alive",
  "proxy-connection",
  "te",
  "trailer",
  "transfer-encoding",
  "upgrade",
];

/**
 * Fields of the client's request that are not forwarded: they are meant for this proxy, or this proxy writes its own
 * values. The option `forwardHeaders` can make an exception for `proxy-authorization` only.
 */
export const REQUEST_DROPPED: readonly string[] = [
  ...HOP_BY_HOP,
  "content-length",
  "expect",
  "host",
  "proxy-authorization",
];

/**
 * Fields by which an untrusted client could claim another address, host or scheme. `x-forwarded-` stands for all names
 * that begin with it. Many upstreams trust `x-real-ip` and similar names as well. Fields of one vendor, such as
 * `cf-connecting-ip`, are not in the list.
 */
export const REQUEST_ASSERTIONS: readonly string[] = [
  "forwarded",
  "x-forwarded-",
  "x-real-ip",
  "x-client-ip",
  "x-cluster-client-ip",
];

/**
 * A set of field names with a fast lookup: it compares the lengths first, and allocates nothing.
 *
 * A name that ends in `-` stands for all names that begin with it. `_` equals `-`, because CGI-like upstreams cannot
 * distinguish `X_Forwarded_For` from `X-Forwarded-For` (CVE-2026-30851).
 */
export class NameSet {
  readonly #byLength: (readonly string[])[];
  readonly #prefixes: string[];

  /** @param base a set; this set contains all its names as well */
  constructor(names: Iterable<string>, base?: NameSet) {
    this.#byLength = base === undefined ? [] : base.#byLength.slice();
    this.#prefixes = base === undefined ? [] : base.#prefixes.slice();
    for (const name of names) {
      const lower = normalizeName(name);
      if (lower.endsWith("-")) this.#prefixes.push(lower);
      // This list may be shared with the base set, so copy it instead of appending to it.
      else this.#byLength[lower.length] = [...(this.#byLength[lower.length] ?? []), lower];
    }
  }

  has(name: string): boolean {
    const candidates = this.#byLength[name.length];
    if (candidates !== undefined) {
      for (let i = 0; i < candidates.length; i++) {
        if (beginsWith(name, candidates[i] as string, HYPHEN)) return true;
      }
    }
    for (let i = 0; i < this.#prefixes.length; i++) {
      const prefix = this.#prefixes[i] as string;
      if (name.length > prefix.length && beginsWith(name, prefix, HYPHEN)) return true;
    }
    return false;
  }
}

/**
 * Fields of a request that follow from its connection, body and target. No option and no hook sets them. An app may set
 * `Proxy-Authorization`, for an upstream that is a proxy.
 */
export const REQUEST_DERIVED: NameSet = new NameSet(
  REQUEST_DROPPED.filter((name) => name !== "proxy-authorization"),
);

const HYPHEN = 0x2d;
const UNDERSCORE = 0x5f;

/**
 * Whether a name begins with a text, whatever the case of its letters.
 * @param lower the text in lower case, not longer than the name
 * @param underscore the character that `_` in the name stands for
 */
function beginsWith(name: string, lower: string, underscore: number): boolean {
  for (let i = 0; i < lower.length; i++) {
    let code = name.charCodeAt(i);
    if (code >= 0x41 /* A */ && code <= 0x5a /* Z */) code += 0x20;
    else if (code === UNDERSCORE) code = underscore;
    if (code !== lower.charCodeAt(i)) return false;
  }
  return true;
}

/**
 * Whether a field has this name. Most names differ in their length or their first letter, and none is copied, as
 * `toLowerCase` would.
 * @param lower the name in lower case
 */
export function isName(name: string, lower: string): boolean {
  return name.length === lower.length && beginsWith(name, lower, UNDERSCORE);
}

function normalizeName(name: string): string {
  const lower = name.toLowerCase();
  return lower.includes("_") ? lower.replaceAll("_", "-") : lower;
}

/**
 * Options of `Connection` that lead to no removal here: `close` is not the name of a field, `keep-alive`, `upgrade` and
 * `te` are removed as members of `HOP_BY_HOP`, and `""` is an empty member of the list.
 */
const CONNECTION_OPTIONS = new Set(["", "close", "keep-alive", "upgrade", "te"]);

/**
 * Drops the fields that the `Connection` field nominates: they belong to the connection (RFC 9110 §7.6.1).
 * @param connection the value of `Connection`, if there is one
 * @returns the list itself if no field is nominated
 */
export function withoutNominated(headers: HeaderList, connection: string | undefined): HeaderList {
  // Nearly every `Connection` field has one of these two values.
  if (connection === undefined || connection === "keep-alive" || connection === "close") {
    return headers;
  }
  const nominated = new Set<string>();
  for (const option of connection.split(",")) {
    const name = normalizeName(trimOws(option));
    if (!CONNECTION_OPTIONS.has(name)) nominated.add(name);
  }
  if (nominated.size === 0) return headers;
  const left: HeaderList = [];
  for (let i = 0; i < headers.length; i += 2) {
    const name = headers[i] as string;
    if (!nominated.has(normalizeName(name))) left.push(name, headers[i + 1] as string);
  }
  return left;
}

/** Returns a list without the fields in `names`. */
export function withoutNames(list: HeaderList, names: NameSet): HeaderList {
  const left: HeaderList = [];
  for (let i = 0; i < list.length; i += 2) {
    const name = list[i] as string;
    if (!names.has(name)) left.push(name, list[i + 1] as string);
  }
  return left;
}

/** Returns a list with one field of this name in place of all fields of this name. */
export function setHeader(headers: HeaderList, name: string, value: string): HeaderList {
  return [...deleteHeader(headers, name), name, value];
}

/** Returns a list without the fields of this name. */
export function deleteHeader(headers: HeaderList, name: string): HeaderList {
  return withoutNames(headers, new NameSet([name]));
}

/**
 * Returns the value of the first field of this name, or undefined if there is none.
 * @param lower the name in lower case
 */
export function getHeader(headers: HeaderList, lower: string): string | undefined {
  for (let i = 0; i < headers.length; i += 2) {
    const name = headers[i] as string;
    if (isName(name, lower)) return headers[i + 1];
  }
  return undefined;
}

/**
 * Returns the values of all fields of this name.
 * @param lower the name in lower case
 */
export function getHeaders(headers: HeaderList, lower: string): string[] {
  return headers.filter((_, i) => i % 2 === 1 && isName(headers[i - 1] as string, lower));
}

/**
 * Removes all fields of this name from a list, in place, and returns their values.
 * @param lower the name in lower case
 */
export function removeHeader(headers: HeaderList, lower: string): string[] {
  const values: string[] = [];
  let end = 0;
  for (let i = 0; i < headers.length; i += 2) {
    const name = headers[i] as string;
    const value = headers[i + 1] as string;
    if (isName(name, lower)) {
      values.push(value);
      continue;
    }
    headers[end++] = name;
    headers[end++] = value;
  }
  headers.length = end;
  return values;
}

/**
 * Returns a field value, or a member of one, without the spaces and tabs around it (OWS, RFC 9110 §5.6.3).
 *
 * `String.prototype.trim` also removes U+00A0 and other Unicode white space, which are bytes of the value: two proxies on
 * one path would then read two different values. A regular expression that ends in `$` would take quadratic time for a
 * run of spaces in the middle.
 */
export function trimOws(value: string): string {
  let start = 0;
  let end = value.length;
  while (start < end && isOws(value.charCodeAt(start))) start++;
  while (end > start && isOws(value.charCodeAt(end - 1))) end--;
  return end - start === value.length ? value : value.slice(start, end);
}

function isOws(code: number): boolean {
  return code === 0x20 || code === 0x09;
}

/** Whether a response is an event stream, which may be silent for any length of time. */
export function isEventStream(headers: HeaderList): boolean {
  return /^text\/event-stream\b/i.test(getHeader(headers, "content-type") ?? "");
}

/** Converts a flat list to `Headers`. */
export function toHeaders(list: HeaderList): Headers {
  const headers = new Headers();
  for (let i = 0; i < list.length; i += 2) headers.append(list[i] as string, list[i + 1] as string);
  return headers;
}

/** Converts `Headers` to a flat list. Each `Set-Cookie` field stays separate. */
export function toHeaderList(headers: Headers): HeaderList {
  const list: HeaderList = [];
  // On every runtime, `forEach` yields each `Set-Cookie` separately. It costs less than iteration, which makes a result
  // object and an array for each field; on workerd, these are made by native code.
  headers.forEach((value, name) => void list.push(name, value));
  return list;
}
