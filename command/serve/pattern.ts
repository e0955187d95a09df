/** The patterns of routes: an optional host, then a path prefix. */
import { quoteInput } from "#fetchway/options";
import { decodeLayers } from "#fetchway/requests";

export interface Pattern {
  /** The host in lower case without a port; `"*.example.com"` for all subdomains of example.com, undefined for any host. */
  readonly host: string | undefined;
  /** The path prefix without a slash at its end; `""` for every path. */
  readonly prefix: string;
}

const HOST = /^(?:\*\.)?(?:[\w-]+(?:\.[\w-]+)*\.?|\[[\da-f:.]+\])$/i;
/** Matches a host that the user may have meant as a path. */
const ONE_WORD = /^(?!localhost$)[\w-]+$/i;

/** Returns what is wrong with a pattern; undefined for a valid one. */
export function checkPattern(text: unknown): string | undefined {
  if (typeof text !== "string" || text === "") {
    return 'use a path such as "/api", or a host and a path such as "shop.example/api"';
  }
  if (text.includes("://")) {
    return `leave out the scheme, and write ${quoteInput(text.replace(/^.*?:\/\//, ""))}`;
  }
  const slash = text.indexOf("/");
  const host = slash < 0 ? text : text.slice(0, slash);
  const path = slash < 0 ? "/" : text.slice(slash);
  if (/:\d+$/.test(host) && !host.endsWith("]")) {
    return `leave out the port, and write ${quoteInput(host.replace(/:\d+$/, "") + path)}`;
  }
  if (host === "*") return `for any host, write ${quoteInput(path)}`;
  if (host !== "" && !HOST.test(host)) return `${quoteInput(host)} is not a host`;
  if (path.endsWith("*")) {
    return `a prefix matches all paths below it; write ${quoteInput(host + (path.replace(/\/?\*+$/, "") || "/"))}`;
  }
  if (slash < 0 && ONE_WORD.test(host)) {
    return `write ${quoteInput(`/${host}`)} for the path, or ${quoteInput(`${host}/`)} for the host`;
  }
  return checkPath(host, path);
}

/**
 * Returns what is wrong with the path of a pattern. A path that is not in its simplest form is refused: the pattern would not
 * match the simpler path that clients send, and a request for the path as it is written would be ambiguous to the router.
 */
function checkPath(host: string, path: string): string | undefined {
  if (/[?#]/.test(path)) return "write the path without a query";
  if (/%(?![\da-f]{2})/i.test(path)) return "write escapes as in a URL, such as %20 for a space";
  const [undecidable] = /%(?:25|23|3f|[01][\da-f]|7f)/i.exec(path) ?? [];
  if (undecidable !== undefined) {
    return `a prefix with ${undecidable} is ambiguous: use a shorter one`;
  }
  const decoded = path.replace(/%([\da-f]{2})/gi, (escape, code: string) => {
    const character = String.fromCharCode(Number.parseInt(code, 16));
    return /[\w.~/\\;-]/.test(character) ? character : escape;
  });
  const simple = resolve(decoded).replace(/[^\u0021-\u007e]+/g, (each) =>
    encodeURI(each.toWellFormed()),
  );
  const meant = simple !== "/" && /[/\\]$/.test(path) ? `${simple}/` : simple;
  return meant === path ? undefined : `write ${quoteInput(host + meant)}, as in a URL`;
}

/** Parses a pattern that `checkPattern` has accepted. */
export function parsePattern(text: string): Pattern {
  const slash = text.indexOf("/");
  const host = slash < 0 ? text : text.slice(0, slash);
  const path = slash < 0 ? "" : text.slice(slash);
  return {
    host: host === "" ? undefined : host.toLowerCase().replace(/\.$/, ""),
    prefix: path.replace(/(?<!\/)\/+$/, ""),
  };
}

/** Renders a pattern in its normal form: patterns that match the same requests have the same text. */
export function normalizePattern(text: string): string {
  const { host = "", prefix } = parsePattern(text);
  return `${host}${prefix === "" ? "/" : prefix}`;
}

/**
 * Returns a pattern for each other way in which an upstream might read the prefix of a pattern (see `readingsOf`). The router
 * compares the readings of a request's path with these patterns. There are none for an ordinary prefix.
 */
export function decodePattern({ host, prefix }: Pattern): Pattern[] {
  return (readingsOf(prefix) ?? []).flatMap((each) =>
    each === prefix ? [] : [{ host, prefix: each }],
  );
}

/** Returns the host of an authority without its port, in the form of a pattern. */
export function hostOf(authority: string): string {
  const host = authority.replace(/:\d*$/, "").replace(/\.$/, "");
  return host.toLowerCase();
}

export class PatternMap<T> {
  readonly #exact: Map<string, PrefixList<T>> = new Map();
  /** The wildcards by their suffix, such as `.example.com`, the longest first. */
  #wildcards: [suffix: string, prefixes: PrefixList<T>][] = [];
  readonly #any: PrefixList<T> = new PrefixList();

  add({ host, prefix }: Pattern, value: T): void {
    this.#listOf(host).add(prefix, value);
  }

  /**
   * Returns the value of the pattern that a request matches. Patterns for the exact host are tried first, then wildcards, the
   * longest first, then patterns for any host. For one host, the longest prefix takes precedence, and of equal patterns the one
   * that was added first.
   * @param path the path, with or without a query
   * @param accepts returns whether a value may be used for the request; patterns of other values are skipped
   */
  find(
    host: string | undefined,
    path: string,
    accepts: (value: T) => boolean = () => true,
  ): T | undefined {
    if (host !== undefined) {
      const found = this.#exact.get(host)?.find(path, accepts);
      if (found !== undefined) return found;
      for (const [suffix, prefixes] of this.#wildcards) {
        // The wildcard matches at least one character.
        if (host.length <= suffix.length || !host.endsWith(suffix)) continue;
        const match = prefixes.find(path, accepts);
        if (match !== undefined) return match;
      }
    }
    return this.#any.find(path, accepts);
  }

  #listOf(host: string | undefined): PrefixList<T> {
    if (host === undefined) return this.#any;
    const list = host.startsWith("*.")
      ? this.#wildcards.find(([suffix]) => suffix === host.slice(1))?.[1]
      : this.#exact.get(host);
    if (list !== undefined) return list;
    const created = new PrefixList<T>();
    if (host.startsWith("*.")) {
      this.#wildcards.push([host.slice(1), created]);
      this.#wildcards.sort(([one], [other]) => other.length - one.length);
    } else this.#exact.set(host, created);
    return created;
  }
}

/** A list of path prefixes with their values, the longest prefix first. */
class PrefixList<T> {
  readonly #entries: { readonly prefix: string; readonly value: T }[] = [];

  add(prefix: string, value: T): void {
    this.#entries.push({ prefix, value });
    this.#entries.sort((one, other) => other.prefix.length - one.prefix.length);
  }

  find(path: string, accepts: (value: T) => boolean): T | undefined {
    for (const { prefix, value } of this.#entries) {
      if (hasPrefix(path, prefix) && accepts(value)) return value;
    }
    return undefined;
  }
}

/** Whether a path begins with the segments of a prefix. */
function hasPrefix(path: string, prefix: string): boolean {
  if (!path.startsWith(prefix)) return false;
  const next = path[prefix.length];
  return prefix === "" || next === undefined || next === "/" || next === "?";
}

/** Matches the characters at which an upstream may end a path that it has decoded. */
// oxlint-disable-next-line no-control-regex
const PATH_END = /[?#\u0000]/;
/**
 * Matches a path that an upstream might read as another path: with escapes, backslashes, path parameters, dot segments or empty
 * segments.
 */
const READABLE_OTHERWISE = /[%\\;]|\/[./]/;

/**
 * Returns the ways in which an upstream may read a path, as paths: it may decode the path any number of times, resolve dot
 * segments, remove empty segments and path parameters, or end the path at a decoded `?`, `#` or NUL. Returns an empty list for
 * an ordinary path.
 * @returns undefined for a path with too many layers of percent-encoding to decode
 */
export function readingsOf(path: string): string[] | undefined {
  const mark = path.indexOf("?");
  const pathname = mark < 0 ? path : path.slice(0, mark);
  if (!READABLE_OTHERWISE.test(pathname)) return [];
  return decodeLayers(pathname)?.flatMap((reading) => {
    const end = reading.search(PATH_END);
    return end < 0 ? resolve(reading) : [resolve(reading), resolve(reading.slice(0, end))];
  });
}

function resolve(path: string): string {
  const segments: string[] = [];
  // URL parsers remove tabs and line breaks.
  for (const segment of path.replaceAll(/[\t\n\r]/g, "").split(/[/\\]/)) {
    const name = segment.split(";", 1)[0] as string;
    if (name === "..") segments.pop();
    else if (name !== "" && name !== ".") segments.push(name);
  }
  return `/${segments.join("/")}`;
}
