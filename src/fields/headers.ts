import { TOKEN, NOT_IN_VALUE } from "./token.ts";

/**
 * Header fields as a flat list, `[name, value, name, value, …]`. It keeps the order, the case and the duplicates, which are
 * lost in a `Headers` object.
 */
export type HeaderList = string[];

/**
 * A set of field names with a fast lookup, which compares the lengths first, and allocates nothing.
 *
 * Every character that is not a letter or a digit matches `-`, because CGI-like upstreams cannot distinguish
 * `X_Forwarded_For` or `X.Forwarded.For` from `X-Forwarded-For` (CVE-2026-30851, CVE-2026-88011).
 */
export class NameSet {
  readonly #byLength: (readonly string[])[];
  readonly #prefixes: readonly string[];

  /**
   * @param base another set, whose names this set contains as well
   * @param prefixes beginnings of further names in the set, in lower case, such as `x-forwarded-`
   */
  constructor(names: Iterable<string>, base?: NameSet, prefixes: readonly string[] = []) {
    this.#byLength = base === undefined ? [] : base.#byLength.slice();
    this.#prefixes = base === undefined ? prefixes : [...base.#prefixes, ...prefixes];
    for (const name of names) {
      const folded = foldName(name);
      // This list may be shared with the base set, so copy it instead of appending to it.
      this.#byLength[folded.length] = [...(this.#byLength[folded.length] ?? []), folded];
    }
  }

  has(name: string): boolean {
    const candidates = this.#byLength[name.length];
    if (candidates !== undefined) {
      for (let i = 0; i < candidates.length; i++) {
        if (foldsTo(name, candidates[i] as string)) return true;
      }
    }
    for (let i = 0; i < this.#prefixes.length; i++) {
      const prefix = this.#prefixes[i] as string;
      if (name.length > prefix.length && foldsTo(name, prefix)) return true;
    }
    return false;
  }
}

const HYPHEN = 0x2d;

/**
 * Whether `foldName(name)` begins with `folded`.
 * @param folded a folded text that is not longer than the name
 */
function foldsTo(name: string, folded: string): boolean {
  for (let i = 0; i < folded.length; i++) {
    const code = toLower(name.charCodeAt(i));
    const wanted = folded.charCodeAt(i);
    if (code !== wanted && (wanted !== HYPHEN || isLetterOrDigit(code))) return false;
  }
  return true;
}

/** Whether a character is a letter in lower case, or a digit. */
function isLetterOrDigit(code: number): boolean {
  return (code >= 0x61 && code <= 0x7a) || (code >= 0x30 && code <= 0x39);
}

/**
 * Whether two names are equal, in any letter case. Most names differ in their length or first letter, so comparing characters
 * is cheaper than `toLowerCase`, which copies the name.
 */
export function isName(name: string, other: string): boolean {
  if (name.length !== other.length) return false;
  for (let i = 0; i < name.length; i++) {
    const code = name.charCodeAt(i);
    const wanted = other.charCodeAt(i);
    if (code !== wanted && toLower(code) !== toLower(wanted)) return false;
  }
  return true;
}

function toLower(code: number): number {
  return code >= 0x41 /* A */ && code <= 0x5a /* Z */ ? code + 0x20 : code;
}

/** Returns a name as a CGI-like upstream may read it: in lower case, with `-` for all characters but letters and digits. */
export function foldName(name: string): string {
  return name.toLowerCase().replaceAll(/[^a-z0-9]/g, "-");
}

/**
 * Options of `Connection` for which `withoutNominated` drops no field: `close` is not the name of a field, `keep-alive`,
 * `upgrade` and `te` are dropped as hop-by-hop fields, and `""` is an empty member of the list.
 */
const CONNECTION_OPTIONS = new Set(["", "close", "keep-alive", "upgrade", "te"]);

/**
 * Drops the fields that the `Connection` field nominates, because they belong to the connection (RFC 9110 §7.6.1).
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
    const name = trimOws(option).toLowerCase();
    if (!CONNECTION_OPTIONS.has(name)) nominated.add(foldName(name));
  }
  if (nominated.size === 0) return headers;
  const left: HeaderList = [];
  for (let i = 0; i < headers.length; i += 2) {
    const name = headers[i] as string;
    if (!nominated.has(foldName(name))) left.push(name, headers[i + 1] as string);
  }
  return left;
}

export function withoutNames(list: HeaderList, names: NameSet): HeaderList {
  const left: HeaderList = [];
  for (let i = 0; i < list.length; i += 2) {
    const name = list[i] as string;
    if (!names.has(name)) left.push(name, list[i + 1] as string);
  }
  return left;
}

/** Returns a list without the fields that `deleteHeader` deletes, and with this field at the end. */
export function setHeader(headers: HeaderList, name: string, value: string): HeaderList {
  return [...deleteHeader(headers, name), name, value];
}

/** Returns a list without the fields of this name. Letter case and punctuation do not matter: `x_name` counts as `X-Name`. */
export function deleteHeader(headers: HeaderList, name: string): HeaderList {
  return withoutNames(headers, new NameSet([name]));
}

/** Returns the value of the first field of this name, in any letter case; undefined if there is none. */
export function getHeader(headers: HeaderList, name: string): string | undefined {
  for (let i = 0; i < headers.length; i += 2) {
    if (isName(headers[i] as string, name)) return headers[i + 1];
  }
  return undefined;
}

/** Returns the values of all fields of this name, in any letter case. */
export function getHeaders(headers: HeaderList, name: string): string[] {
  const values: string[] = [];
  for (let i = 0; i < headers.length; i += 2) {
    if (isName(headers[i] as string, name)) values.push(headers[i + 1] as string);
  }
  return values;
}

/**
 * Removes all fields of this name, in any letter case, from a list, in place.
 * @returns the values that are not empty, as one list (RFC 9110 §5.3); undefined if there are none
 */
export function removeHeader(headers: HeaderList, name: string): string | undefined {
  let list: string | undefined;
  let end = 0;
  for (let i = 0; i < headers.length; i += 2) {
    const value = headers[i + 1] as string;
    if (!isName(headers[i] as string, name)) {
      headers[end++] = headers[i] as string;
      headers[end++] = value;
    } else if (trimOws(value) !== "") {
      list = list === undefined ? value : `${list}, ${value}`;
    }
  }
  headers.length = end;
  return list;
}

/**
 * Returns a field value, or one member of a list, without the spaces and tabs around it (OWS, RFC 9110 §5.6.3).
 *
 * `String.prototype.trim` also removes U+00A0 and other Unicode white space, which are bytes of the value: two proxies on one
 * path would then read two different values. A regular expression that ends in `$` would take quadratic time for a run of
 * spaces in the middle.
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

/** Whether a field can be sent unchanged. */
export function isSendable(name: string, value: string): boolean {
  return TOKEN.test(name) && !NOT_IN_VALUE.test(value);
}

// A literal in the function would make a new `RegExp` for each response.
const EVENT_STREAM = /^text\/event-stream\b/i;

/** Whether a response is an event stream, which may be silent for any length of time. */
export function isEventStream(headers: HeaderList): boolean {
  return EVENT_STREAM.test(getHeader(headers, "content-type") ?? "");
}

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

/** Returns the `Headers` of a header list, for code of the app. */
export function showHeaders(list: HeaderList): Headers {
  return new (Shown ??= makeClass())(list);
}

/**
 * Returns the fields of any `Headers`, or of an object that code without types passes in its place. If `showHeaders` has made
 * the `Headers`, the fields that the app has not changed keep their order, the case of their names and their lines; without any
 * change, the list itself is returned.
 */
export function takeHeaders(headers: Headers): HeaderList {
  return Shown !== undefined && headers instanceof Shown
    ? headers.takeList()
    : toHeaderList(new Headers(headers));
}

let Shown: ReturnType<typeof makeClass> | undefined;

/**
 * Makes a class of `Headers` that records which names the app has changed, so that only these are read: reading all fields of
 * a `Headers` costs twice as much memory as making it. The class is made at its first use, because Node loads undici when code
 * reads the global `Headers`.
 */
function makeClass() {
  return class extends Headers {
    readonly #list: HeaderList;
    /** The changed names: from each name in lower case to its spelling in the last change. */
    #changed: Map<string, string> | undefined;

    constructor(list: HeaderList) {
      super();
      this.#list = list;
      for (let i = 0; i < list.length; i += 2) {
        super.append(list[i] as string, list[i + 1] as string);
      }
    }

    override append(name: string, value: string): void {
      super.append(name, value);
      this.#recordChange(name);
    }

    override delete(name: string): void {
      super.delete(name);
      this.#recordChange(name);
    }

    override set(name: string, value: string): void {
      super.set(name, value);
      this.#recordChange(name);
    }

    #recordChange(name: string): void {
      (this.#changed ??= new Map()).set(name.toLowerCase(), name);
    }

    takeList(): HeaderList {
      const before = this.#list;
      const changed = this.#changed;
      if (changed === undefined) return before;
      const list: HeaderList = [];
      for (let i = 0; i < before.length; i += 2) {
        const name = before[i] as string;
        if (!changed.has(name.toLowerCase())) list.push(name, before[i + 1] as string);
      }
      changed.forEach((name, lower) => {
        const value = this.get(name);
        if (lower === "set-cookie") for (const line of this.getSetCookie()) list.push(name, line);
        else if (value !== null) list.push(name, value);
      });
      return list;
    }
  };
}
